"""Checks the sizes of files, functions and lines, file headers, and a few banned constructs.

Usage: tools/check_sizes.py [ROOT]
There is no list of exemptions. Split a file that is too long by role.
"""
# SPDX-License-Identifier: MIT

import ast
import re
import sys
from pathlib import Path

from cpp_text import function_bodies, strip_comments_and_strings
from source_files import CPP_SUFFIXES, REPOSITORY, report, source_files

MAX_FILE_LINES = 400
MAX_KERNEL_FILE_LINES = 800  # a kernel should be readable in one file
KERNEL_SUFFIXES = (".cu", ".cuh")
MAX_FUNCTION_LINES = 120
MAX_COLUMNS = 100
MAX_DOCUMENT_LINES = {"README.md": 150, "CONTRIBUTING.md": 80, "Makefile": 59,
                      "docs/README.md": 60}
MAX_FOLDER_README_LINES = 15
FOLDERS_WITH_SHORT_READMES = ("src", "tests", "tools")
ALLOWED_MACROS = {"TESSERA_UNROLL", "TESSERA_DEVICE_ASSERT"}
LINES_UNTIL_LICENCE = 12

CODE_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake")
LICENCE = "SPDX-License-Identifier: MIT"
LICENCE_LINE = re.compile(rf"(//|#|/\*)? ?{LICENCE}( \*/)?")
HEADING = re.compile(r"// [A-Z][a-z]+ {2,}\S")  # "// Work      A block owns ..."
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
UNDEF = re.compile(r"^\s*#\s*undef\s+(\w+)", re.MULTILINE)
ASSERT = re.compile(r"(?<![\w.:])assert\s*\(|#\s*include\s*<(?:cassert|assert\.h)>")


def is_code(path):
    return path.suffix in CODE_SUFFIXES or path.name == "CMakeLists.txt"


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_document(path, lines):
    limit = MAX_DOCUMENT_LINES.get(str(path))
    if path.name == "README.md" and path.parts[0] in FOLDERS_WITH_SHORT_READMES:
        # A folder's README is a map, to be read at a glance.
        limit = MAX_FOLDER_README_LINES
    if limit is not None and len(lines) > limit:
        return [f"{path}: {len(lines)} lines; at most {limit}"]
    return []


def check_lines(path, lines):
    problems = []
    limit = MAX_KERNEL_FILE_LINES if path.suffix in KERNEL_SUFFIXES else MAX_FILE_LINES
    if len(lines) > limit:
        problems.append(f"{path}: {len(lines)} lines; at most {limit}: split it by role")
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_COLUMNS:
            problems.append(f"{path}:{number}: {len(line)} columns; at most {MAX_COLUMNS}")
        if line != line.rstrip():
            problems.append(f"{path}:{number}: spaces at the end of the line")
        if "\t" in line:
            problems.append(f"{path}:{number}: a tab; indent with spaces")
    return problems


def check_head(path, lines):
    """The first line says what the file is for; the licence has a line of its own soon after."""
    if path.suffix not in CPP_SUFFIXES + (".py", ".sh"):
        return []
    problems = []
    if not any(LICENCE in line for line in lines[:LINES_UNTIL_LICENCE]):
        problems.append(f"{path}: no `{LICENCE}` in the first {LINES_UNTIL_LICENCE} lines")
    for number, line in enumerate(lines[:LINES_UNTIL_LICENCE], start=1):
        if LICENCE in line and line.startswith(("//", "#", "/*", LICENCE)):
            if not LICENCE_LINE.fullmatch(line):
                problems.append(f"{path}:{number}: the licence shares its line with other text; "
                                "give it a line of its own")
    if path.suffix in CPP_SUFFIXES and lines and (
            not lines[0].startswith(("// ", "/* ")) or LICENCE in lines[0]):
        problems.append(f"{path}:1: the first line is a comment that says what the file is for")
    return problems


def check_header_block(path, lines):
    """The part of a kernel's header under Work, Pipeline, ... is indented as a whole: clang-format
    breaks a line that is too long without indenting the rest."""
    if path.suffix not in CPP_SUFFIXES:
        return []
    problems, is_inside = [], False
    for number, line in enumerate(lines, start=1):
        if HEADING.match(line):
            is_inside = True
        elif is_inside and re.match(r"// [^A-Z ]", line):
            problems.append(f"{path}:{number}: not indented like the rest of its paragraph")
        elif not re.match(r"// {4}|// [A-Z]", line):
            is_inside = False
    return problems


def python_functions(text):
    nodes = (node for node in ast.walk(ast.parse(text))
             if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [(node.lineno, node.end_lineno, node.name) for node in nodes]


def check_functions(path, text):
    if path.suffix in CPP_SUFFIXES:
        functions = function_bodies(text)
    elif path.suffix == ".py":
        functions = python_functions(text)
    else:
        return []
    return [f"{path}:{first}: {last - first + 1} lines in `{header[:60]}`; "
            f"at most {MAX_FUNCTION_LINES}: name its parts"
            for first, last, header in functions if last - first + 1 > MAX_FUNCTION_LINES]


def check_bans(path, text):
    if path.suffix not in CPP_SUFFIXES:
        return []
    code = strip_comments_and_strings(text)
    problems = []
    undefined = set(UNDEF.findall(code))
    for match in DEFINE.finditer(code):
        if match[1] not in ALLOWED_MACROS | undefined:
            problems.append(
                f"{path}:{line_of(code, match.start(1))}: macro {match[1]}; the tree has "
                f"{' and '.join(sorted(ALLOWED_MACROS))}, and others only if #undef'd in the file")
    for match in ASSERT.finditer(code):
        problems.append(f"{path}:{line_of(code, match.start())}: assert is banned; use expects "
                        "on the host and TESSERA_DEVICE_ASSERT on the device")
    return problems


def check_file(root, path):
    try:
        text = (root / path).read_text()
    except UnicodeDecodeError:
        return [f"{path}: not UTF-8"] if is_code(path) else []
    lines = text.splitlines()
    problems = check_document(path, lines)
    if is_code(path):
        if text and not text.endswith("\n"):
            problems.append(f"{path}: no newline at the end")
        problems += check_lines(path, lines) + check_head(path, lines)
        problems += check_header_block(path, lines)
        problems += check_functions(path, text) + check_bans(path, text)
    return problems


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    paths = source_files(root)
    problems = [problem for path in paths for problem in check_file(root, path)]
    return problems, len(paths)


if __name__ == "__main__":
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY
    sys.exit(report("check_sizes", *check_tree(tree)))
