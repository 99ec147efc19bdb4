"""Tokens per second of llama.cpp by its low-level interface: all sequences in
one batch per step, temperature 1, EOS ignored.  --gguf: f32 or bf16 file."""

import ctypes

import llama_cpp as api
from common import (SEED, THREADS, arguments, play, prompts, rate,
                    rollout_cases, sequences_of)

CONTEXT = 256  # tokens per sequence


@api.llama_log_callback
def quiet(_level, _text, _data):
    pass


def tokenize(vocab, text):
    room = (api.llama_token * CONTEXT)()
    raw = text.encode()
    count = api.llama_tokenize(vocab, raw, len(raw), room, CONTEXT, False,
                               True)
    return list(room[:count])


class Run:
    """`count` sequences on one model."""

    def __init__(self, model, count, wide_cache):
        params = api.llama_context_default_params()
        params.n_ctx = count * CONTEXT
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_seq_max = count
        params.n_threads = params.n_threads_batch = THREADS
        params.type_k = params.type_v = 0 if wide_cache else 1  # f32, f16
        if hasattr(params, "kv_unified"):
            params.kv_unified = False
        self.context = api.llama_init_from_model(model, params)
        chain = api.llama_sampler_chain_init(
            api.llama_sampler_chain_default_params())
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_temp(1.0))
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_dist(SEED))
        self.sampler = chain
        self.batch = api.llama_batch_init(2048, 0, 1)
        vocab = api.llama_model_get_vocab(model)
        self.prompts = [tokenize(vocab, p) for p in prompts(count)]

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = logits
        assert api.llama_decode(self.context, self.batch) == 0

    def generate(self, tokens):
        api.llama_memory_clear(api.llama_get_memory(self.context), True)
        rows, last = [], []
        for s, prompt in enumerate(self.prompts):
            rows += [(t, i, s, i == len(prompt) - 1)
                     for i, t in enumerate(prompt)]
            last.append(len(rows) - 1)
        self.decode(rows)
        position = [len(p) for p in self.prompts]
        for n in range(tokens):
            fresh = [api.llama_sampler_sample(self.sampler, self.context, i)
                     for i in last]
            if n == tokens - 1:
                break
            self.decode([(t, position[s], s, True)
                         for s, t in enumerate(fresh)])
            position = [p + 1 for p in position]
            last = list(range(len(fresh)))

    def close(self):
        api.llama_free(self.context)


def main():
    args = arguments(__doc__, gguf="", dtype="float32", sequences="1,8,32",
                     tokens=64)
    api.llama_backend_init()
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    params = api.llama_model_default_params()
    params.n_gpu_layers = 0
    model = api.llama_model_load_from_file(args.gguf.encode(), params)
    assert model, f"cannot load {args.gguf}"
    runs = {}  # the one that is open, by its number of sequences

    def figure(case):
        count = sequences_of(case)
        if count not in runs:
            for run in runs.values():
                run.close()
            runs.clear()
            runs[count] = Run(model, count, args.dtype == "float32")
        return rate(count * args.tokens,
                    lambda: runs[count].generate(args.tokens))

    play(args, "rollout", "llama.cpp", "tokens/s", rollout_cases(args),
         ("llama-cpp-python",), figure)


if __name__ == "__main__":
    main()
