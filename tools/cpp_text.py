"""Reads C++ as text, for the checkers: blanks comments and strings, finds function bodies.

SPDX-License-Identifier: MIT
"""

import re

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                        # comments
    r'|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"'       # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                      # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",     # characters; 1'000 is a number
    re.DOTALL)
_MEMBER_INITIALISER = re.compile(r"\)[^;{}()]*:[^:].*[\w>]\s*$", re.DOTALL)
_TYPE_KEYWORD = re.compile(r"\b(namespace|struct|class|union|enum)\b")


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text):
    """Replaces comments by spaces; strings and line numbers stay."""
    return _TOKEN.sub(lambda match: _blank(match[0]) if match[0][0] == "/" else match[0], text)


def strip_comments_and_strings(text):
    return _TOKEN.sub(lambda match: _blank(match[0]), text)


def _without_template_lists(header):
    """Drops <...>, so that `template <class T>` does not look like a class."""
    kept, depth = [], 0
    for char in header.replace("->", "  "):
        depth += char == "<"
        if depth == 0:
            kept.append(char)
        depth -= char == ">" and depth > 0
    return "".join(kept)


def _opens_function(header):
    plain = _without_template_lists(header)
    if "(" not in plain or plain.rstrip().endswith(("=", ",", "(", "return")):
        return False
    return not _TYPE_KEYWORD.search(plain.split("(")[0])


def function_bodies(text):
    """(first line, last line, header) of each outermost function, including its header."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda match: _blank(match[0]),
                  strip_comments_and_strings(text), flags=re.MULTILINE)
    found, header_start = [], 0
    stack = []  # of open brackets: "{" a scope, "(" a group inside which nothing begins
    function = None  # (first line, depth outside it, header)
    for position, char in enumerate(code):
        header = code[header_start:position]
        if char == "(" or char == "{" and ("(" in stack or _MEMBER_INITIALISER.search(header)):
            stack.append("(")
        elif char == "{":
            if function is None and _opens_function(header):
                start = header_start + len(header) - len(header.lstrip())
                function = (code.count("\n", 0, start) + 1, len(stack), " ".join(header.split()))
            stack.append("{")
        elif char in ")}" and stack:
            was_scope = stack.pop() == "{"
            if function is not None and len(stack) == function[1]:
                found.append((function[0], code.count("\n", 0, position) + 1, function[2]))
                function = None
            if not was_scope:
                continue
        if char in "{};" and "(" not in stack:
            header_start = position + 1
    return found
