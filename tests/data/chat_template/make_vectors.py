"""Writes vectors.json: what Jinja makes of many conversations with the real
chat templates, which are not kept here.

usage: make_vectors.py NAME=TEMPLATE_FILE...   (in a Python with `jinja2`)
NAME is the name of ours that the template should equal; several files may be
given for one name.  The environment is the one of transformers'
apply_chat_template: trim_blocks, lstrip_blocks, raise_exception, strftime_now.
A conversation that a template refuses is kept with "text": null."""
import json
import os
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))


def m(*turns):
    role = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": role[r], "content": c} for r, c in turns]


CHATS = [
    m(("u", "Hi")),
    m(("s", "Be brief."), ("u", "2+2?"), ("a", "4"), ("u", "3+3?")),
    m(("u", " spaces \n"), ("a", "\n and\t newlines \n"), ("u", "\u00a0x\u3000")),
    m(("u", "q"), ("a", "<think>\nlong\n</think>\n\nanswer"), ("u", "again")),
    m(("u", "q"), ("a", "<think>\n\nhm\n\n</think>\n\nanswer\n")),
    m(("u", "q"), ("a", "no thought"), ("a", "</think>x"), ("a", "tail")),
    m(("u", "q"), ("u", "<tool_response>r</tool_response>"),
      ("a", "<think>a</think><think>b</think>c"), ("u", "z")),
    m(("s", "S"), ("u", "")),
    m(("a", "I begin"), ("u", "ok")),
    m(("u", "a"), ("s", "late system"), ("u", "b")),
    m(("s", "only system")),
    m(("s", " padded "), ("u", "日本語 😀"), ("a", "é"), ("u", "b"), ("a", "c")),
]


def raise_exception(text):
    raise jinja2.exceptions.TemplateError(text)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[loopcontrols])
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "@DATE@"
    rows = []
    for arg in sys.argv[1:]:
        name, path = arg.split("=", 1)
        template = env.from_string(open(path, encoding="utf-8").read())
        for messages in CHATS:
            for prompt in (True, False):
                try:
                    text = template.render(
                        messages=messages, add_generation_prompt=prompt,
                        bos_token="<BOS>", eos_token="<EOS>")
                except jinja2.exceptions.TemplateError:
                    text = None
                row = {"name": name, "messages": messages, "prompt": prompt,
                       "text": text}
                if row not in rows:
                    rows.append(row)
    with open(os.path.join(HERE, "vectors.json"), "w") as f:
        f.write('{"vectors":[\n')
        f.write(",\n".join(json.dumps(r) for r in rows))
        f.write("\n]}\n")


main()
