"""Tokens per second of transformers' generate: temperature 1, EOS ignored."""

import torch
from common import SEED, THREADS, arguments, emit, prompts, timed
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    args = arguments(__doc__, dtype="float32", sequences="1,8,32", tokens=64)
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype),
        attn_implementation="sdpa").eval()
    short = {"float32": "fp32", "bfloat16": "bf16"}[args.dtype]
    for count in map(int, args.sequences.split(",")):
        ids = tok(prompts(count), return_tensors="pt")

        def generate():
            with torch.inference_mode():
                out = model.generate(
                    **ids, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                    max_new_tokens=args.tokens, min_new_tokens=args.tokens,
                    pad_token_id=tok.pad_token_id)
            assert out.shape[1] == ids.input_ids.shape[1] + args.tokens

        rates = [count * args.tokens / s for s in timed(generate, args.runs)]
        emit("rollout", f"{short}/{count}", "transformers", rates, "tokens/s",
             prompt_tokens=int(ids.input_ids.shape[1]))


if __name__ == "__main__":
    main()
