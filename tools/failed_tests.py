#!/usr/bin/env python3
"""Prints the end of what each failed test printed, from the results that ctest wrote.

Usage: tools/failed_tests.py RESULTS.xml
Among thousands of tests that pass, the output of one that failed is hard to find.
"""
# SPDX-License-Identifier: MIT

import sys
import xml.etree.ElementTree as ElementTree

NUM_LINES = 40


def failures(path):
    """The name and the output of each failed test."""
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None:
            yield case.get("name"), case.findtext("system-out") or ""


def main():
    for name, output in failures(sys.argv[1]):
        lines = output.rstrip().splitlines()
        print(f"\n{name} failed; the last of {len(lines)} lines it printed:")
        print("\n".join("  " + line for line in lines[-NUM_LINES:]))


if __name__ == "__main__":
    main()
