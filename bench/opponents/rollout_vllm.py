"""Tokens per second of vLLM's CPU build, eager mode: temperature 1, EOS
ignored."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def main():
    from common import SEED, arguments, emit, prompts, timed
    from vllm import LLM, SamplingParams

    args = arguments(__doc__, dtype="float32", sequences="1,8,32", tokens=64)
    short = {"float32": "fp32", "bfloat16": "bf16"}[args.dtype]
    llm = LLM(args.model, dtype=args.dtype, enforce_eager=True,
              max_model_len=512)
    sampling = SamplingParams(temperature=1.0, max_tokens=args.tokens,
                              ignore_eos=True, seed=SEED)
    for count in map(int, args.sequences.split(",")):
        def generate():
            out = llm.generate(prompts(count), sampling, use_tqdm=False)
            made = sum(len(x.outputs[0].token_ids) for x in out)
            assert made == count * args.tokens

        rates = [count * args.tokens / s for s in timed(generate, args.runs)]
        emit("rollout", f"{short}/{count}", "vllm", rates, "tokens/s")


if __name__ == "__main__":
    main()
