#!/usr/bin/env python3
# Counts the files that a call passes through, and writes them into docs/architecture.md.
# SPDX-License-Identifier: MIT
"""docs/call_paths.json lists, for a few calls, every file whose code runs between the call and the
first instruction of the kernel, or whose types are passed on the way, in the order of reading.

count_path.py             writes the lists between <!-- path:begin NAME --> and <!-- path:end -->
count_path.py --check     writes nothing; exit status 1 if a file does not exist, a list is longer
                          than its limit, a file is not connected to the ones before it, or the page
                          is out of date

A file is connected if an earlier one includes it (or imports it, in Python), if it has the same
name as an earlier header, or if its entry says how control gets there ("by").
"""

import argparse
import json
import re
import sys
from pathlib import Path

from source_files import REPOSITORY, report

DATA, PAGE = Path("docs/call_paths.json"), Path("docs/architecture.md")
BLOCK = re.compile(r"(<!-- path:begin (?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- path:end -->)",
                   re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from\s+\.?(\w*)\s+)?import\s+(.+)$", re.MULTILINE)


def names_used(text, suffix):
    """Names by which a file refers to others: included paths, or imported modules."""
    if suffix != ".py":
        return set(INCLUDE.findall(text))
    found = set()
    for module, names in IMPORT.findall(text):
        found.add(module)
        found.update(re.findall(r"\w+", names))
    return found


def is_connected(path, before, used):
    """Whether one of the files `before`, which use the names `used`, leads to `path`."""
    path = Path(path)
    if path.suffix == ".py" and path.stem in used:
        return True
    if any(str(path).endswith(f"/{name}") for name in used):
        return True
    return any(Path(earlier).stem == path.stem and Path(earlier).suffix in (".h", ".cuh")
               for earlier in before)


def check_path(root, name, path):
    problems, used, before = [], set(), []
    limit, files = path["limit"], [entry["file"] for entry in path["files"]]
    if len(files) > limit:
        problems.append(f"{DATA}: {name} passes through {len(files)} files; at most {limit}")
    for entry in path["files"]:
        file = entry["file"]
        if file in before:
            problems.append(f"{DATA}: {name} lists {file} twice")
        if not (root / file).is_file():
            problems.append(f"{DATA}: {name} lists {file}, which does not exist")
            continue
        if before and "by" not in entry and not is_connected(file, before, used):
            problems.append(f"{DATA}: {name}: no earlier file leads to {file}; say how control "
                            'gets there ("by"), or remove it')
        used |= names_used((root / file).read_text(), Path(file).suffix)
        before.append(file)
    return problems


def block(path):
    """The list of files as Markdown."""
    lines = [f"{i}. `{entry['file']}`: {entry['does']}" for i, entry in
             enumerate(path["files"], start=1)]
    return "\n".join(lines) + "\n"


def rendered(text, paths):
    return BLOCK.sub(lambda match: match[1] + block(paths[match["name"]]) + match[4], text)


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    paths = json.loads((root / DATA).read_text())
    problems = [problem for name, path in paths.items() for problem in check_path(root, name, path)]
    text = (root / PAGE).read_text()
    shown = {match["name"] for match in BLOCK.finditer(text)}
    problems += [f"{PAGE}: no list of {name}; add <!-- path:begin {name} -->"
                 for name in paths if name not in shown]
    problems += [f"{PAGE}: {name} is not in {DATA}" for name in shown if name not in paths]
    if shown <= set(paths) and rendered(text, paths) != text:
        problems.append(f"{PAGE}: out of date; run tools/count_path.py")
    return problems, sum(len(path["files"]) for path in paths.values())


def main():
    parser = argparse.ArgumentParser(description="Lists and counts the files a call passes through")
    parser.add_argument("--check", action="store_true", help="write nothing, report problems")
    options = parser.parse_args()
    if not options.check:
        paths, page = json.loads((REPOSITORY / DATA).read_text()), REPOSITORY / PAGE
        page.write_text(rendered(page.read_text(), paths))
        for name, path in paths.items():
            print(f"{name}: {len(path['files'])} files, at most {path['limit']}")
    return report("count_path", *check_tree(REPOSITORY))


if __name__ == "__main__":
    sys.exit(main())
