"""GRPO in torch from random weights: sort four letters of eight, the task of
the quickstart.  Seconds, and the greedy exact match at the end."""

import statistics
import time

import torch
from common import arguments, emit
from transformers import LlamaConfig, LlamaForCausalLM

LETTERS, LENGTH = 8, 4
VOCABULARY = "\n0123456789abcdefghijklmnopqrstuvwxyz+-=>$ "
FIRST = VOCABULARY.index("a")
PROMPTS, SAMPLES, WARM = 32, 16, 10


def batch(count, generator):
    """ids of `dbca>` and of `abcd`."""
    letters = FIRST + torch.randint(LETTERS, (count, LENGTH),
                                    generator=generator)
    mark = torch.full((count, 1), VOCABULARY.index(">"))
    return torch.cat([letters, mark], 1), letters.sort(1).values


def generate(model, prompt, greedy=False):
    ids, fresh, past = prompt, prompt, None
    with torch.no_grad():
        for _ in range(LENGTH):
            out = model(fresh, past_key_values=past, use_cache=True)
            past, logits = out.past_key_values, out.logits[:, -1]
            fresh = logits.argmax(-1, keepdim=True) if greedy else \
                torch.multinomial(logits.softmax(-1), 1)
            ids = torch.cat([ids, fresh], 1)
    return ids


def loss_of(model, ids, advantage, entropy):
    logits = model(ids[:, :-1], use_cache=False).logits[:, -LENGTH:]
    logprob = torch.log_softmax(logits, -1)
    chosen = logprob.gather(-1, ids[:, -LENGTH:, None])[..., 0]
    ratio = torch.exp(chosen - chosen.detach())
    negative_entropy = (logprob.exp() * logprob).sum(-1).mean()
    return -(ratio * advantage[:, None]).mean() + entropy * negative_entropy


def main():
    args = arguments(__doc__, seed=0, steps=500, lr=2e-3, entropy=0.03,
                     hidden=64, layers=2, heads=4, init=0.08, threads=1,
                     evaluate=1)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=args.hidden,
        intermediate_size=int(args.hidden * 8 / 3) // 16 * 16,
        num_hidden_layers=args.layers, num_attention_heads=args.heads,
        num_key_value_heads=args.heads, max_position_embeddings=64,
        tie_word_embeddings=True, initializer_range=args.init,
        attn_implementation="sdpa")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr,
                                  betas=(0.9, 0.95), weight_decay=0.0,
                                  fused=True)
    generator = torch.Generator().manual_seed(1000 + args.seed)
    history, taken, start = [], [], time.perf_counter()
    for step in range(args.steps):
        begin = time.perf_counter()
        rate = args.lr * min(1, (step + 1) / WARM) * (1 - step / args.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        prompt, target = (x.repeat_interleave(SAMPLES, 0)
                          for x in batch(PROMPTS, generator))
        ids = generate(model, prompt)
        rewards = (ids[:, -LENGTH:] == target).float().mean(1)
        groups = rewards.view(PROMPTS, SAMPLES)
        advantage = (groups - groups.mean(1, keepdim=True)).flatten()
        optimizer.zero_grad()
        loss_of(model, ids, advantage, args.entropy).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(rewards.mean().item())
        taken.append(time.perf_counter() - begin)
    seconds, ends = time.perf_counter() - start, {}
    if args.evaluate:
        prompt, target = batch(256, generator)
        answers = generate(model, prompt, greedy=True)[:, -LENGTH:]
        ends["exact_match"] = (answers == target).all(1).float().mean().item()
    emit("learn_sort", f"{args.steps} steps", "torch", [seconds], "s",
         seed=args.seed, step_s=statistics.median(taken[1:] or taken),
         reward_last20=sum(history[-20:]) / len(history[-20:]), **ends)


if __name__ == "__main__":
    main()
