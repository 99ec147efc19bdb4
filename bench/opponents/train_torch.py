"""Tokens per second of a training step in torch: forward, policy loss over the
whole vocabulary, backward, fused AdamW, 8 sequences of 144 tokens, fp32."""

import statistics
import time

import torch
from common import SEED, THREADS, arguments, emit
from transformers import AutoModelForCausalLM

SEQUENCES, LENGTH = 8, 144


def step(model, optimizer, ids, advantage):
    """Seconds of forward, backward and update."""
    marks = [time.perf_counter()]
    logits = model(ids, use_cache=False).logits[:, :-1]
    chosen = torch.log_softmax(logits.float(), -1).gather(
        -1, ids[:, 1:, None])[..., 0]
    loss = -(torch.exp(chosen - chosen.detach()) * advantage).mean()
    marks.append(time.perf_counter())
    loss.backward()
    marks.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    marks.append(time.perf_counter())
    return [b - a for a, b in zip(marks, marks[1:])]


def main():
    args = arguments(__doc__)
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    ids = torch.randint(10, 49000, (SEQUENCES, LENGTH))
    advantage = torch.randn(SEQUENCES, 1)
    step(model, optimizer, ids, advantage)
    parts = [step(model, optimizer, ids, advantage) for _ in range(args.runs)]
    forward, backward, update = (statistics.median(p) for p in zip(*parts))
    rates = [SEQUENCES * LENGTH / sum(p) for p in parts]
    params = sum(p.numel() for p in model.parameters())
    emit("train", "fp32/8x144", "torch", rates, "tokens/s",
         forward_s=forward, backward_s=backward, update_s=update,
         gflops_6n=6e-9 * params * statistics.median(rates))


if __name__ == "__main__":
    main()
