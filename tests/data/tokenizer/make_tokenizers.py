"""Writes the small tokenizer.json files of this folder and vectors.json, which
says what the `tokenizers` package makes of many texts with them.

usage: make_tokenizers.py   (in a Python with `tokenizers`; made with 0.23)

The files have the parts (normalizer, pre-tokenizer, post-processor, decoder,
added tokens) of the real ones and vocabularies trained on a few lines."""
import json
import os
import random
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = [
    "The cat sat on the mat, and the dog didn't mind that the cat's there.",
    "I'm sure you're right; they'll say we've been there before, I'd say.",
    "In 1969 there were 12 men; in 2024 there are 8000000000 people or so.",
    "def f(x):\n    return x + 1\n\n\ndef g(y):\n    return f(y) * 2\n",
    "What is 9 + 8? The answer is 17. What is 12 + 7? The answer is 19.",
    "Größe, Übermaß, naïve café, déjà vu; señor, mañana; smørrebrød.",
    "Привет, мир! Как дела? Всё хорошо, спасибо, а у тебя?",
    "今日は天気がいいですね。日本語のテキストです。",
    "   indented\t\ttabs   and trailing   \n\n",
    "THE CAT AND THE DOG. HTTP://EXAMPLE.ORG/A?B=C&D=E#F",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(**kw):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **kw)


def train(pre, size, specials=(), **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def special(text, **kw):
    return AddedToken(text, special=True, normalized=False, **kw)


def gpt2():
    tok = train(byte_level(), 520, ["<|endoftext|>"])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def smollm2():
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), byte_level()]), 520,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tok


def llama3():
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        byte_level(use_regex=False)]), 560, ignore_merges=True)
    tok.add_special_tokens([special(t) for t in (
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
        "<|end_header_id|>", "<|eot_id|>")])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B:1",
            special_tokens=[("<|begin_of_text|>", bos)])])
    return tok


def qwen2():
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        byte_level(use_regex=False)]), 540)
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>"),
                            special("<|im_end|>")])
    tok.add_tokens([AddedToken("<tool_call>", normalized=False),
                    AddedToken("</think>", normalized=False)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def flags():
    """Every flag of added tokens, a space in front, a suffix token."""
    tok = train(pre_tokenizers.ByteLevel(add_prefix_space=True), 400)
    tok.normalizer = normalizers.Sequence([normalizers.NFC()])
    tok.add_special_tokens([special("<mask>", lstrip=True),
                            special("<r>", rstrip=True),
                            special("<both>", lstrip=True, rstrip=True),
                            special("</s>")])
    tok.add_tokens([AddedToken("word", single_word=True, normalized=False),
                    AddedToken("e\u0301cole", normalized=True),
                    AddedToken("ab", normalized=False),
                    AddedToken("abc", normalized=False)])
    tok.post_processor = processors.TemplateProcessing(
        single="<r> $A </s>", special_tokens=[
            ("<r>", tok.token_to_id("<r>")),
            ("</s>", tok.token_to_id("</s>"))])
    return tok


def behaviours(name, pattern, behaviour, invert=False, more=()):
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(pattern, behaviour, invert), *more,
        byte_level(use_regex=False)]), 330)
    return name, tok


def all_tokenizers():
    out = {f.__name__: f() for f in (gpt2, smollm2, llama3, qwen2, flags)}
    digits = (pre_tokenizers.Digits(individual_digits=False),)
    out.update([
        behaviours("removed", Regex(r"\s+"), "removed"),
        behaviours("previous", Regex(r"[a-n]"), "merged_with_previous"),
        behaviours("next", Regex(r"[a-n]"), "merged_with_next"),
        behaviours("contiguous", " ", "contiguous", more=digits),
        behaviours("invert", Regex(r"\p{L}+"), "removed", True),
        behaviours("literal", ". ", "isolated"),
    ])
    return out


TEXTS = [
    "", " ", "hello", " hello", "Hello, world!", "  two  spaces   three",
    "\n\n\ttabs\t\tand\nnewlines \n", "1234567890", "a1b22c333d4444",
    "3.14159 + 2 = 5.14159", "cafe\u0301 caf\u00e9 \u212b \u1e9b\u0323",
    "日本語のテキスト", "Привет, мир!", "مرحبا ١٢٣", "😀👍🏽 👩‍👩‍👧‍👦",
    "I'm you're they'll we've he'd IT'S DON'T ’s", "'\u017f long s",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b", "<|begin_of_text|><|start_header_id|>x", "x" * 70,
    "the" * 60, "  trailing   ", "zero\u200bwidth no\u00a0break\u3000wide",
    "\r\n windows\r\nline\r", "½ ² № Ⅳ ٣", "a\u0085b\u180ec\u2028d\u2029e",
    "word sword word2 word, (word) wörd", "x <mask> y<mask>z  <r>  a <both> b",
    "école e\u0301cole \u00e9cole", "abc ab abd xabcx aab", "<tool_call> </think>",
    "<mask", "<|im_start|", "\ufeffbom \ufffd", "tail <both>   ",
]


def random_texts(count):
    rng = random.Random(20260601)
    old = unicodedata.ucd_3_2_0
    pool = [chr(c) for c in range(1, 0x30000)
            if old.category(chr(c)) not in ("Cn", "Cs", "Co")
            and old.category(chr(c)) == unicodedata.category(chr(c))]
    common = list("aetoin shrdlu'.,0123456789\n\t\r ATS") + [
        "the", "'s", "  ", "\u0301", "\u00e9", "か", "<|im_end|>", " <mask>"]
    out = []
    for i in range(count):
        n = rng.randrange(1, 24)
        out.append("".join(rng.choice(common if rng.random() < 0.8 else pool)
                           for _ in range(n)))
    return out


def main():
    vectors = []
    for name, tok in all_tokenizers().items():
        tok.save(os.path.join(HERE, name + ".json"), pretty=False)
        tok = Tokenizer.from_file(os.path.join(HERE, name + ".json"))
        main_four = name in ("gpt2", "smollm2", "llama3", "qwen2", "flags")
        for text in TEXTS + random_texts(150 if main_four else 60):
            ids = tok.encode(text, add_special_tokens=False).ids
            row = {"t": name, "x": text, "i": ids,
                   "d": tok.decode(ids, skip_special_tokens=False)}
            special_ids = tok.encode(text, add_special_tokens=True).ids
            if special_ids != ids:
                row["s"] = special_ids
            skipped = tok.decode(ids, skip_special_tokens=True)
            if skipped != row["d"]:
                row["k"] = skipped
            vectors.append(row)
    with open(os.path.join(HERE, "vectors.json"), "w") as f:
        f.write('{"vectors":[\n')
        f.write(",\n".join(json.dumps(v, separators=(",", ":"))
                           for v in vectors))
        f.write("\n]}\n")


main()
