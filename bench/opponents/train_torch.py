"""Tokens per second of a training step in torch: forward, policy loss over the
whole vocabulary, backward, fused AdamW, 8 sequences of 144 tokens; fp32, or
with torch's autocast to bf16 (fp32 weights, products in bf16)."""

import time

import torch
from common import SEED, THREADS, arguments, play
from transformers import AutoModelForCausalLM

SEQUENCES, LENGTH = 8, 144


class Step:
    def __init__(self, args):
        torch.set_num_threads(THREADS)
        torch.manual_seed(SEED)
        self.model = AutoModelForCausalLM.from_pretrained(
            args.model, dtype=torch.float32, attn_implementation="sdpa").train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6,
                                           fused=True)
        self.ids = torch.randint(10, 49000, (SEQUENCES, LENGTH))
        self.advantage = torch.randn(SEQUENCES, 1)

    def seconds(self, autocast):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = self.model(self.ids, use_cache=False).logits[:, :-1]
        chosen = torch.log_softmax(logits.float(), -1).gather(
            -1, self.ids[:, 1:, None])[..., 0]
        loss = -(torch.exp(chosen - chosen.detach()) * self.advantage).mean()
        del logits, chosen
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def main():
    args = arguments(__doc__)
    step = Step(args)
    play(args, "train", "torch", "tokens/s", ("fp32/8x144", "bf16/8x144"),
         ("torch", "transformers"),
         lambda case: SEQUENCES * LENGTH / step.seconds(
             case.startswith("bf16")))


if __name__ == "__main__":
    main()
