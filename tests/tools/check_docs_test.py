"""check_docs flags documents that refer to missing things or have broken tables."""
# SPDX-License-Identifier: MIT

import unittest

from bad_tree import BadTreeTest

import check_docs


class CheckDocsTest(BadTreeTest):
    checker = check_docs

    def setUp(self):
        super().setUp()
        self.write("src/core/README.md", "# core\n")
        self.write("src/core/tensor.cpp", "")
        self.write("include/tessera/core/dtype.h", "")
        self.write("docs/architecture.md", "# Rows, and `how` they go\n## The layers\n")

    def test_what_exists_is_in_order(self):
        self.write("README.md",
                   "[plan](docs/architecture.md#rows-and-how-they-go) and [layers](#here)\n"
                   "[far](https://example.org/nothing) `src/core/tensor.cpp` `core/dtype.h`\n"
                   "`src/*/tensor.cpp` `core/{tensor.cpp,dtype.h}` `tokens/s` `build/cpu/tessera`\n"
                   "`a[m,k] / b` `src/core/`\n# Here\n"
                   "```\nsrc/nothing.cpp `src/nothing.cpp` [x](nothing.md)\n```\n")
        self.assert_clean()

    def test_a_dead_link(self):
        self.write("docs/a.md", "text\n[x](missing.md)\n")
        self.assert_flagged("docs/a.md:2: link to missing.md, which does not exist")

    def test_a_picture_that_does_not_exist(self):
        self.write("docs/a.md", '<picture>\n  <source srcset="dark.svg">\n</picture>\n')
        self.assert_flagged("docs/a.md:2: link to dark.svg, which does not exist")
        self.write("docs/dark.svg", "<svg/>\n")
        self.assert_clean()

    def test_a_link_to_a_missing_heading(self):
        self.write("docs/a.md", "[x](architecture.md#the-roof)\n")
        self.assert_flagged("docs/a.md:1", "has no such heading")

    def test_a_link_to_a_missing_heading_of_the_same_file(self):
        self.write("docs/a.md", "[x](#the-roof)\n# The floor\n")
        self.assert_flagged("docs/a.md:1", "has no such heading")

    def test_a_path_that_does_not_exist(self):
        self.write("docs/a.md", "see `src/core/tensors.cpp`\n")
        self.assert_flagged("docs/a.md:1: `src/core/tensors.cpp` is not a path")

    def test_a_path_from_inside_src_that_does_not_exist(self):
        self.write("docs/a.md", "see `core/missing.h`\n")
        self.assert_flagged("`core/missing.h` is not a path")

    def test_a_pattern_that_matches_nothing(self):
        self.write("docs/a.md", "see `src/core/*.cu`\n")
        self.assert_flagged("`src/core/*.cu` is not a path")

    def test_one_of_two_in_braces_is_missing(self):
        self.write("docs/a.md", "see `core/tensor.{cpp,cu}`\n")
        self.assert_flagged("`core/tensor.{cpp,cu}` is not a path")

    def test_a_table_broken_in_the_middle_of_a_row(self):
        self.write("docs/a.md", "| a | b |\n|---|---|\n| one | two\n\nthree |\n")
        self.assert_flagged("docs/a.md:3: a table row of 1 cells in a table of 2")

    def test_text_right_behind_a_table(self):
        self.write("docs/a.md", "| a | b |\n|---|---|\n| one | two |\nthree |\n")
        self.assert_flagged("docs/a.md:4: text that follows a table without an empty line")

    def test_a_whole_table(self):
        self.write("docs/a.md", "| a | b |\n|---|---|\n| `x | y` | 1 \\| 2 |\n\ntext | more\n")
        self.assert_clean()

    def test_a_layer_without_a_readme(self):
        self.write("src/ops/norm.cpp", "")
        self.assert_flagged("src/ops: no README.md")

    def test_a_path_of_one_machine(self):
        for place in ("home/someone", "root", "work"):
            with self.subTest(place):
                self.write("tools/a.sh", f"echo\ncd /{place}/tessera\n")
                self.assert_flagged("tools/a.sh:2", "an absolute path of one machine")

    def test_the_host_of_a_registry(self):
        self.write("tools/a.sh", "pip install --index" + "-url https://somewhere/simple numpy\n")
        self.assert_flagged("tools/a.sh:1", "the host of a registry")


if __name__ == "__main__":
    unittest.main()
