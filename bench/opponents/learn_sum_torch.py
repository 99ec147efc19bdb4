"""GRPO in torch on sums of two numbers of 1-12: what configs/smollm2 does.
Greedy accuracy on held-out pairs before and after, and the seconds it took."""

import os
import random
import re
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import THREADS, arguments, emit
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "You are a calculator. Reply with the number only."


def render(pairs):
    return [f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
            f"What is {a} + {b}?<|im_end|>\n<|im_start|>assistant\n"
            for a, b in pairs]


def reward(text, pair):
    numbers = re.findall(r"\d+", text)
    return float(bool(numbers) and numbers[-1] == str(sum(pair)))


class Policy:
    def __init__(self, path, tokens):
        self.tok = AutoTokenizer.from_pretrained(path)
        self.tok.padding_side = "left"
        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32)
        self.end = self.tok.eos_token_id
        self.tokens = tokens

    def answer(self, pairs, sample):
        ids = self.tok(render(pairs), return_tensors="pt", padding=True,
                       add_special_tokens=False)
        with torch.no_grad():
            out = self.model.generate(
                **ids, max_new_tokens=self.tokens, do_sample=sample,
                temperature=1.0, top_k=0, top_p=1.0, pad_token_id=self.end)
        made = out[:, ids.input_ids.shape[1]:]
        texts = self.tok.batch_decode(made, skip_special_tokens=True)
        return ids, out, torch.tensor([reward(t, p)
                                       for t, p in zip(texts, pairs)])

    def accuracy(self, pairs):
        return self.answer(pairs, False)[2].mean().item()

    def loss(self, ids, out, advantage):
        start = ids.input_ids.shape[1]
        made = out[:, start:]
        ended = torch.cumsum((made == self.end).long(), 1)
        mask = ((ended == 0) | ((made == self.end) & (ended == 1))).float()
        seen = torch.cat([ids.attention_mask, mask.long()], 1)
        logits = self.model(
            out, attention_mask=seen, use_cache=False,
            position_ids=(seen.cumsum(1) - 1).clamp(min=0)).logits
        chosen = torch.log_softmax(logits[:, start - 1:-1], -1).gather(
            -1, made[..., None])[..., 0]
        ratio = torch.exp(chosen - chosen.detach())
        return -(ratio * advantage[:, None] * mask).sum() / mask.sum()


def main():
    args = arguments(__doc__, lr=2e-5, seed=1, steps=20, prompts=4, samples=8,
                     tokens=16, threads=THREADS, evaluate=1, autocast=0)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    pairs = [(a, b) for a in range(1, 13) for b in range(1, 13)]
    random.Random(7).shuffle(pairs)
    held_out, train = pairs[:48], pairs[48:]
    policy = Policy(args.model, args.tokens)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=args.lr,
                                  betas=(0.9, 0.95), weight_decay=0.0,
                                  fused=True)
    draw = random.Random(args.seed)
    history, seconds, ends = [], [], {}
    narrow = torch.autocast("cpu", torch.bfloat16, enabled=bool(args.autocast))
    start = time.perf_counter()
    if args.evaluate:
        with narrow:
            ends["accuracy_before"] = policy.accuracy(held_out)
    for _ in range(args.steps):
        begin = time.perf_counter()
        chosen = [draw.choice(train) for _ in range(args.prompts)]
        batch = [p for p in chosen for _ in range(args.samples)]
        with narrow:
            ids, out, rewards = policy.answer(batch, True)
            groups = rewards.view(args.prompts, args.samples)
            advantage = (groups - groups.mean(1, keepdim=True)).flatten()
            optimizer.zero_grad()
            loss = policy.loss(ids, out, advantage)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        history.append(rewards.mean().item())
        seconds.append(time.perf_counter() - begin)
    if args.evaluate:
        with narrow:
            ends["exact_match"] = policy.accuracy(held_out)
    emit("learn_sum", f"{args.steps} steps", "torch",
         [time.perf_counter() - start], "s", seed=args.seed,
         step_s=statistics.median(seconds[1:] or seconds),
         reward_first5=sum(history[:5]) / 5,
         reward_last5=sum(history[-5:]) / 5, **ends)


if __name__ == "__main__":
    main()
