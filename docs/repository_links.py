#!/usr/bin/env python3
"""A preprocessor of mdBook: links that leave docs/ lead to the repository, whose address is in Cargo.toml."""

import json
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#:]+)((?:#[^)]*)?)\)")


def repository():
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^repository = "(.*)"', text, re.MULTILINE).group(1)


def rewrite(chapter, base):
    def outside(link):
        # From the root of the repository, where docs/ is one directory deep.
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(chapter["path"]), link.group(1)))
        inside = path.startswith("docs/")
        return link.group(0) if inside else f"]({base}/blob/main/{path}{link.group(2)})"

    if chapter.get("path"):
        chapter["content"] = LINK.sub(outside, chapter["content"])
    for item in chapter["sub_items"]:
        if "Chapter" in item:
            rewrite(item["Chapter"], base)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    base = repository()
    # mdBook 0.5 says `items`, earlier versions `sections`.
    for item in book.get("items", book.get("sections")):
        if "Chapter" in item:
            rewrite(item["Chapter"], base)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
