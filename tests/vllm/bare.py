"""vLLM without anything of ours: does it run here?
usage: bare.py MODEL

At TP 3, which wants the most of a machine.  Where this fails no check of the
plugin can say anything."""

import os
import pathlib
import sys

from servers import KV_BYTES, PROMPTS, environment, shared_by


def main():
    os.environ.update(environment(3, VLLM_ENABLE_V1_MULTIPROCESSING="0",
                                  VLLM_LOGGING_LEVEL="ERROR"))
    from vllm import LLM, SamplingParams
    llm = LLM(sys.argv[1], enforce_eager=True, max_model_len=512,
              dtype="float32", tensor_parallel_size=3,
              kv_cache_memory_bytes=KV_BYTES)
    out = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=4),
                       use_tqdm=False)
    # What its ranks share would stay in /dev/shm.
    for name in shared_by(os.getpgid(0)):
        if name.startswith("vllm_dist_"):
            pathlib.Path("/dev/shm", name).unlink()
    assert all(len(one.outputs[0].token_ids) == 4 for one in out), out


if __name__ == "__main__":
    main()
