#!/usr/bin/env python3
# Writes the table of docs/faults.md from tests/faults.json and the results of a test run.
# SPDX-License-Identifier: MIT
"""tests/faults.json lists faults and the tests that prove what happens; this tool renders it. A row
with "is_not_applicable" has no tests, and says why in its answer.

render_faults.py RESULTS.xml...   writes the table with the results of a test run, from files of
                                  `ctest --output-junit`, `--gtest_output=xml` or
                                  `pytest --junit-xml`
render_faults.py                  writes the table and keeps its results
render_faults.py --check          writes nothing; exit status 1 if a named test does not exist or
                                  the table on the page disagrees with tests/faults.json

The check ignores the results in the table: they belong to one run, and a machine without a GPU
would get others.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree
from pathlib import Path

from source_files import REPOSITORY, report

TABLE = "tests/faults.json"
PAGE = "docs/faults.md"
BLOCK = re.compile(r"(<!-- faults:begin -->\n)(?P<body>.*?)(<!-- faults:end -->)", re.DOTALL)
HEAD = "| # | fault | what happens | proved by | result |\n|---|---|---|---|---|\n"
NOT_RUN = "not run"
NOT_APPLICABLE = "not applicable"

GOOGLETEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
CTEST = re.compile(r"add_test\(\s*NAME\s+([\w.]+)")
PYTEST = re.compile(r"^\s*def (test_\w+)\(", re.MULTILINE)
# The ctest test that runs the Python tests of a folder.
PYTEST_RUNS = {"tests/apps": "apps.command_line", "tests/python": "python",
               "tests/server": "server.api"}


def existing_tests(root):
    """The names of all tests, as tests/faults.json writes them."""
    names = set()
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix in (".cpp", ".cu"):
            names.update(".".join(pair) for pair in GOOGLETEST.findall(path.read_text()))
        elif path.name == "CMakeLists.txt":
            names.update(CTEST.findall(path.read_text()))
        elif path.suffix == ".py":
            place = path.relative_to(root).as_posix()
            names.update(f"{place}::{name}" for name in PYTEST.findall(path.read_text()))
    return names


def plain_name(case):
    """Prefix/Suite.Name/Parameter as Suite.Name, test_x[parameter] as test_x."""
    name, group = case.get("name", ""), case.get("classname", "")
    if group not in ("", name):  # ctest repeats the name there
        name = f"{group}.{name}"
    match = re.fullmatch(r"(?:\w+/)?(\w+\.\w+)(?:/.*)?", name.split("[")[0])
    return match[1] if match else name


def read_results(files):
    """{name: set of "passed", "skipped", "failed"}"""
    results = {}
    for file in files:
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            failed = case.find("failure") is not None or case.find("error") is not None
            skipped = case.find("skipped") is not None or case.get("result") == "skipped"
            result = "failed" if failed else "skipped" if skipped else "passed"
            results.setdefault(plain_name(case), set()).add(result)
    return results


def result_of(test, results):
    """Of all parameters of a test: failed if one is, skipped if all are."""
    found = results.get(test)
    if "::" in test:
        place, name = test.split("::")
        found = results.get(f"{Path(place).stem}.{name}") or results.get(
            PYTEST_RUNS[Path(place).parent.as_posix()])
    if not found:
        return "missing"
    return "failed" if "failed" in found else "passed" if "passed" in found else "skipped"


def result_text(row, results):
    each = [result_of(test, results) for test in row["tests"]]
    if "failed" in each:
        return "**failed**"
    if "missing" in each:
        return f"missing: {', '.join(t for t, r in zip(row['tests'], each) if r == 'missing')}"
    skipped = each.count("skipped")
    if skipped == len(each):
        return "skipped (no GPU)"
    return "passed" + (f"; {skipped} skipped (no GPU)" if skipped else "")


def render(rows, text_of_row):
    lines = [HEAD]
    for row in rows:
        tests = "<br>".join(f"`{test}`" for test in row["tests"])
        result = NOT_APPLICABLE if row.get("is_not_applicable") else text_of_row(row)
        lines.append(
            f"| {row['id']} | {row['fault']} | {row['answer']} | {tests} | {result} |\n")
    return "".join(lines)


def kept_results(body):
    """{id: result} of the table on the page."""
    cells = [line.strip("|").split("|") for line in body.splitlines()[2:]]
    return {cell[0].strip(): cell[-1].strip() for cell in cells}


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    rows = json.loads((root / TABLE).read_text())
    known = existing_tests(root)
    problems = []
    ids = [row["id"] for row in rows]
    for row in rows:
        if ids.count(row["id"]) > 1:
            problems.append(f"{TABLE}: row {row['id']} appears twice")
        if not row["tests"] and not row.get("is_not_applicable"):
            problems.append(f"{TABLE}: row {row['id']} names no test")
        for test in row["tests"]:
            if test not in known:
                problems.append(f"{TABLE}: row {row['id']} names {test}, which does not exist")
    block = BLOCK.search((root / PAGE).read_text())
    if not block:
        problems.append(f"{PAGE}: the markers faults:begin and faults:end are missing")
    else:
        kept = kept_results(block["body"])
        if render(rows, lambda row: kept.get(row["id"], NOT_RUN)) != block["body"]:
            problems.append(f"{PAGE}: the table disagrees with {TABLE}; run tools/render_faults.py")
    return problems, 2


def write_page(root, files):
    page = root / PAGE
    text = page.read_text()
    rows = json.loads((root / TABLE).read_text())
    kept = kept_results(BLOCK.search(text)["body"])
    results = read_results(files)
    body = render(rows, lambda row: result_text(row, results) if files
                  else kept.get(row["id"], NOT_RUN))
    page.write_text(BLOCK.sub(lambda match: match[1] + body + match[3], text))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("results", nargs="*", metavar="RESULTS.xml")
    arguments = parser.parse_args()
    if not arguments.check:
        write_page(REPOSITORY, arguments.results)
        return 0
    problems, num_files = check_tree(REPOSITORY)
    return report("render_faults", problems, num_files)


if __name__ == "__main__":
    sys.exit(main())
