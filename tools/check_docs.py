"""Checks that documents refer to things that exist: links, headings, and paths in backticks.

Usage: tools/check_docs.py [ROOT]
Also checks that tables are well formed, that every layer has a README, and that no file contains
paths of the machine it was written on.
"""
# SPDX-License-Identifier: MIT

import re
import sys
from pathlib import Path

from source_files import REPOSITORY, report, source_files

# `core/dtype.h` in a document is found from any of these, or from the document's own folder.
PATH_ROOTS = (".", "src", "include", "include/tessera", "src/kernels")
# Made by a build, so not in the tree.
GENERATED = ("build/", "tessera/lib/")
PATH_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".md", ".json", ".txt", ".toml", ".yml",
                 ".yaml", ".svg", ".png", ".cmake"}

FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()]*\))?)(?:\s+\"[^\"]*\")?\)")
HTML_LINK = re.compile(r'<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)="([^"\s]+)"')
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
URL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
PATH = re.compile(r"^[\w.\-*/{},\[\]]+$")

# Home folders, mounts and private registries exist on one machine only.
FOREIGN = (
    (re.compile(r"(?<![\w.~-])/(?:home/\w+|root|Users/\w+|work|workspace)/"),
     "an absolute path of one machine"),
    (re.compile(r"[\w-]+\.pkg\.dev\b|\bartifactory\b|\.jfrog\.io\b|\bcodeartifact\b"
                r"|\bindex-url\s*=?\s*https?://", re.IGNORECASE), "the host of a registry"),
)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def anchor_of(heading):
    """The anchor that a rendered heading gets."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))


def anchors_of(path):
    return {anchor_of(heading) for heading in HEADING.findall(FENCE.sub(blank, path.read_text()))}


def check_link(root, document, target):
    if URL.match(target):
        return None
    name, _, fragment = target.partition("#")
    path = (root / document).parent / name if name else root / document
    if not path.exists():
        return f"link to {target}, which does not exist"
    if fragment and path.suffix == ".md" and fragment not in anchors_of(path):
        return f"link to {target}, but {path.name} has no such heading"
    return None


def expand_braces(text):
    """rows.{h,cpp} becomes rows.h and rows.cpp."""
    match = re.search(r"\{([^{}]*)\}", text)
    if not match:
        return [text]
    return [name for part in match[1].split(",")
            for name in expand_braces(text[:match.start()] + part + text[match.end():])]


def looks_like_path(root, text):
    if "/" not in text or not PATH.match(text) or text.startswith(("/", "-", "*")):
        return False
    if text.startswith(GENERATED):
        return False
    first = text.split("/")[0]
    return (text.endswith("/") or Path(text).suffix in PATH_SUFFIXES
            or first not in (".", "..") and (root / first).is_dir())


def check_path(root, document, text):
    """A backticked path must exist; one with * must match something."""
    for name in expand_braces(text):
        folders = [root / place for place in PATH_ROOTS] + [(root / document).parent]
        pattern = name.rstrip("/")
        if not any(next(folder.glob(pattern), None) for folder in folders if folder.is_dir()):
            return f"`{text}` is not a path of this repository"
    return None


def check_tables(text):
    """(position, problem) of rows with another number of cells than their table's first row."""
    problems, num_cells, position = [], None, 0
    for line in CODE_SPAN.sub(blank, text).split("\n"):
        if line.startswith("|"):
            found = line.replace("\\|", "").count("|")
            if num_cells is not None and found != num_cells:
                problems.append((position, f"a table row of {found - 1} cells in a table of "
                                           f"{num_cells - 1}"))
            num_cells = num_cells or found
        else:
            if num_cells is not None and line.strip() and not line.startswith("<!--"):
                problems.append((position, "text that follows a table without an empty line"))
            num_cells = None
        position += len(line) + 1
    return problems


def check_document(root, document):
    text = FENCE.sub(blank, (root / document).read_text())
    problems = check_tables(text)
    for match in CODE_SPAN.finditer(text):
        if any(looks_like_path(root, name) for name in expand_braces(match[1])):
            problems.append((match.start(), check_path(root, document, match[1])))
    prose = CODE_SPAN.sub(blank, text)
    for match in [*LINK.finditer(prose), *HTML_LINK.finditer(prose)]:
        problems.append((match.start(), check_link(root, document, match[1])))
    return [f"{document}:{line_of(text, position)}: {problem}"
            for position, problem in problems if problem]


def check_foreign(root, path):
    try:
        text = (root / path).read_text()
    except UnicodeDecodeError:
        return []
    return [f"{path}:{line_of(text, match.start())}: {match[0]!r} is {what}"
            for pattern, what in FOREIGN for match in pattern.finditer(text)]


def check_readmes(root):
    layers = sorted(path for path in (root / "src").glob("*") if path.is_dir())
    return [f"src/{layer.name}: no README.md; say what lives here, what may include it and which "
            "file to read first" for layer in layers if not (layer / "README.md").exists()]


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    paths = source_files(root)
    problems = check_readmes(root)
    for path in paths:
        problems += check_foreign(root, path)
        if path.suffix == ".md":
            problems += check_document(root, path)
    return problems, len(paths)


if __name__ == "__main__":
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY
    sys.exit(report("check_docs", *check_tree(tree)))
