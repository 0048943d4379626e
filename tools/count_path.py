#!/usr/bin/env python3
# Counts the files that a call passes through, and writes them into docs/architecture.md.
# SPDX-License-Identifier: MIT
"""docs/call_paths.json lists, for a few calls, the files that a reader of the call opens, in order:
those that define a function that runs, or a type that is passed, between the call and the first
instruction of the kernel. Nothing is left out silently: every project file that a listed file
includes or imports, and the source file of every listed header, must be listed too ("files" in the
order of reading, "also" the rest) or be named under "left_out" with a reason.

count_path.py             writes the lists between <!-- path:begin NAME --> and <!-- path:end -->
count_path.py --check     writes nothing; exit status 1 if a file does not exist, is neither listed
                          nor left out, or is not connected to the ones before it, if a list is
                          longer than its limit, or if the page is out of date

A file is connected if an earlier one includes it (or imports it, in Python), if it has the same
name as an earlier header, or if its entry says how control gets there ("by").
"""

import argparse
import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

from source_files import REPOSITORY, report

DATA, PAGE = Path("docs/call_paths.json"), Path("docs/architecture.md")
BLOCK = re.compile(r"(<!-- path:begin (?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- path:end -->)",
                   re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
RELATIVE_IMPORT = re.compile(r"^\s*from\s+\.(\w*)\s+import\s+(.+)$", re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from\s+\.?(\w*)\s+)?import\s+(.+)$", re.MULTILINE)


def names_used(text, suffix, imports=IMPORT):
    """Names by which a file refers to others: included paths, or imported modules."""
    if suffix != ".py":
        return set(INCLUDE.findall(text))
    found = set()
    for module, names in imports.findall(text):
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


def neighbours(root, file):
    """Project files that a reader of `file` may have to open next: what it includes or imports, and
    the source file of a header."""
    path = Path(file)
    found = set()
    for name in names_used((root / file).read_text(), path.suffix, RELATIVE_IMPORT):
        candidates = [Path("include") / name, Path("src") / name, path.parent / name]
        if path.suffix == ".py":
            candidates = [path.parent / f"{name}.py"]
        found.update(str(c) for c in candidates if name and (root / c).is_file())
    if path.suffix == ".h":
        folder = Path("src") / path.parent.name if path.parts[0] == "include" else path.parent
        sources = [folder / f"{path.stem}{suffix}" for suffix in (".cpp", ".cu")]
        found.update(str(source) for source in sources if (root / source).is_file())
    return found - {file}


def check_complete(root, name, files, left_out):
    """Problems with files that are neither listed nor left out, and with idle reasons."""
    problems, patterns = [], {pattern for entry in left_out for pattern in entry["files"]}
    idle = set(patterns)
    for file in files:
        if not (root / file).is_file():
            continue
        for other in sorted(neighbours(root, file) - set(files)):
            matching = {pattern for pattern in patterns if fnmatch(other, pattern)}
            idle -= matching
            if not matching:
                problems.append(f"{DATA}: {name}: {other}, which {file} uses, is neither listed "
                                'nor under "left_out"')
    return problems, idle


def all_files(path):
    """Every file that counts: those to be read in order, and the others on the path."""
    listed = [entry["file"] for entry in path["files"]]
    return listed + [file for group in path.get("also", []) for file in group["files"]]


def check_path(root, name, path):
    problems, used, before = [], set(), []
    limit, files = path["limit"], all_files(path)
    if len(files) > limit:
        problems.append(f"{DATA}: {name} passes through {len(files)} files; at most {limit}")
    problems += [f"{DATA}: {name} lists {file} twice"
                 for file in sorted(set(files)) if files.count(file) > 1]
    problems += [f"{DATA}: {name} lists {file}, which does not exist"
                 for file in files if not (root / file).is_file()]
    for entry in path["files"]:
        file = entry["file"]
        if not (root / file).is_file():
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
    also = [f"- {group['why']}: " + ", ".join(f"`{file}`" for file in group["files"])
            for group in path.get("also", [])]
    if also:
        lines += ["", f"Also on the path, which is {len(all_files(path))} files in all:", "", *also]
    return "\n".join(lines) + "\n"


def rendered(text, paths):
    return BLOCK.sub(lambda match: match[1] + block(paths[match["name"]]) + match[4], text)


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    data = json.loads((root / DATA).read_text())
    paths, left_out = data["paths"], data["left_out"]
    problems = [problem for name, path in paths.items() for problem in check_path(root, name, path)]
    idle = {pattern for entry in left_out for pattern in entry["files"]}
    for name, path in paths.items():
        missing, unused = check_complete(root, name, all_files(path), left_out)
        problems += missing
        idle &= unused
    problems += [f"{DATA}: no listed file uses {pattern}; remove it from \"left_out\""
                 for pattern in sorted(idle)]
    text = (root / PAGE).read_text()
    shown = {match["name"] for match in BLOCK.finditer(text)}
    problems += [f"{PAGE}: no list of {name}; add <!-- path:begin {name} -->"
                 for name in paths if name not in shown]
    problems += [f"{PAGE}: {name} is not in {DATA}" for name in shown if name not in paths]
    if shown <= set(paths) and rendered(text, paths) != text:
        problems.append(f"{PAGE}: out of date; run tools/count_path.py")
    return problems, sum(len(all_files(path)) for path in paths.values())


def main():
    parser = argparse.ArgumentParser(description="Lists and counts the files a call passes through")
    parser.add_argument("--check", action="store_true", help="write nothing, report problems")
    options = parser.parse_args()
    if not options.check:
        page, paths = REPOSITORY / PAGE, json.loads((REPOSITORY / DATA).read_text())["paths"]
        page.write_text(rendered(page.read_text(), paths))
        for name, path in paths.items():
            print(f"{name}: {len(all_files(path))} files, at most {path['limit']}")
    return report("count_path", *check_tree(REPOSITORY))


if __name__ == "__main__":
    sys.exit(main())
