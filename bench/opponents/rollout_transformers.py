"""Tokens per second of transformers' generate: temperature 1, EOS ignored."""

import torch
from common import (SEED, THREADS, arguments, play, prompts, rate,
                    rollout_cases, sequences_of)
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    args = arguments(__doc__, dtype="float32", sequences="1,8,32", tokens=64)
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype),
        attn_implementation="sdpa").eval()

    def figure(case):
        count = sequences_of(case)
        ids = tok(prompts(count), return_tensors="pt")

        def generate():
            with torch.inference_mode():
                out = model.generate(
                    **ids, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                    max_new_tokens=args.tokens, min_new_tokens=args.tokens,
                    pad_token_id=tok.pad_token_id)
            assert out.shape[1] == ids.input_ids.shape[1] + args.tokens

        return rate(count * args.tokens, generate)

    play(args, "rollout", "transformers", "tokens/s", rollout_cases(args),
         ("transformers", "torch"), figure)


if __name__ == "__main__":
    main()
