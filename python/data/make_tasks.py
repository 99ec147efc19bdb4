"""Write the training and held-out rows of the shipped jobs.

    python3 python/data/make_tasks.py            write configs/*/{train,test}.jsonl
    python3 python/data/make_tasks.py --check    fail if they differ

sort4        all 4096 strings of 4 letters a-h; the fifth of them that a hash
             picks is held out
smollm2-sum  what is A + B, both in 1-12; 48 of the 144 pairs, by hash, are
             held out

Only the standard library is needed.
"""

import hashlib
import itertools
import json
import pathlib
import sys

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
SYSTEM = "You are a calculator. Reply with the number only."


def rank(text):
    """A number that looks random, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def sort4():
    rows = ["".join(s) for s in itertools.product("abcdefgh", repeat=4)]
    for letters in rows:
        row = {"letters": letters, "sorted": "".join(sorted(letters))}
        yield rank("sort4 " + letters) % 5 == 0, row


def sums():
    pairs = list(itertools.product(range(1, 13), repeat=2))
    held_out = sorted(pairs, key=lambda p: rank(f"sum {p[0]} {p[1]}"))[:48]
    for a, b in pairs:
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"What is {a} + {b}?"},
        ]
        yield (a, b) in held_out, {"messages": messages, "answer": str(a + b)}


def files():
    for folder, rows in (("quickstart", sort4()), ("smollm2", sums())):
        text = {"train": [], "test": []}
        for held_out, row in rows:
            text["test" if held_out else "train"].append(json.dumps(row))
        for name, lines in text.items():
            yield CONFIGS / folder / f"{name}.jsonl", "\n".join(lines) + "\n"


def main():
    wrong = 0
    for path, text in files():
        if sys.argv[1:] == ["--check"]:
            if path.read_text() != text:
                print(f"{path}: differs: run python3 python/data/make_tasks.py")
                wrong = 1
        else:
            path.write_text(text)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
