"""Pages lead somewhere: links and their headings, files that are named, and
every page, decision and folder stands in its index."""

import fnmatch
import pathlib
import posixpath
import re

import tree

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./*-]+\.(?:c|h|cc|cu|cuh|py|sh|toml)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
# Files of others, or made by a command.
NOT_OURS = {"cuda.h", "nccl.h", "sys/socket.h", "JOB.toml"}


def anchor(heading):
    """As the pages are shown: letters, digits, - and _ in lower case."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {anchor(h) for h in HEADING.findall(FENCE.sub("", text))}


def dead_links(path, text, files, pages):
    """Links of the page `path` that lead nowhere.  pages: text by path."""
    folders = {str(p) for f in files for p in pathlib.PurePath(f).parents}
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, heading = link.partition("#")
        target = posixpath.normpath(
            posixpath.join(posixpath.dirname(path), name)) if name else path
        if target not in files and target not in folders:
            yield link
        elif heading and heading not in anchors(pages.get(target, "")):
            yield link


def lost_files(text, files):
    """Files in `code` that are not there, by the end of their path."""
    for name in CODE.findall(FENCE.sub("", text)):
        if FILE.fullmatch(name) and name not in NOT_OURS and not any(
                fnmatch.fnmatch("/" + f, "*/" + name) for f in files):
            yield name


def not_listed(index, names):
    return [n for n in names if n not in index]


def main():
    files = {str(p) for p in tree.tracked()}
    pages = {f: tree.read(f) for f in files
             if f == "README.md" or re.fullmatch(r"docs/.*\.md", f)}
    findings = []
    for path, text in sorted(pages.items()):
        findings += [f"{path}: {link} leads nowhere"
                     for link in dead_links(path, text, files, pages)]
        if "/decisions/" not in path:  # never rewritten
            findings += [f"{path}: there is no file {name}"
                         for name in lost_files(text, files)]
    folders = sorted({str(pathlib.PurePath(f).parent) + "/" for f in files})
    rooms = [re.sub(r"^(core|bridge)/", "", f) for f in folders
             if re.fullmatch(r"core/\w+/|bridge/(\w+/){1,2}", f)
             and any(g.startswith(f) and g.count("/") == f.count("/")
                     for g in files)
             and not f.startswith(("core/include", "bridge/device/host/simd"))]
    for page, names in (
            ("docs/README.md", [posixpath.basename(p) for p in pages if
                                re.fullmatch(r"docs/[^/R][^/]*\.md", p)]),
            ("docs/decisions/README.md", [
                posixpath.basename(p) for p in pages
                if re.fullmatch(r"docs/decisions/\d.*\.md", p)]),
            ("docs/architecture.md", rooms)):
        findings += [f"{page}: says nothing of {name}"
                     for name in not_listed(pages[page], sorted(names))]
    tree.report(findings, len(pages), "pages")


if __name__ == "__main__":
    main()
