"""count_path flags lists that are incomplete, too long, not connected, or name missing files."""
# SPDX-License-Identifier: MIT

import json
import unittest

from bad_tree import BadTreeTest

import count_path


class CountPathTest(BadTreeTest):
    checker = count_path

    def setUp(self):
        super().setUp()
        self.write("python/tessera/_gemm.py", "from ._call import run\n")
        self.write("python/tessera/_call.py", "")
        self.write("src/c_api/gemm.cpp", '#include "ops/gemm.h"\n')
        self.write("src/ops/gemm.h", "")
        self.write("src/ops/gemm.cpp", "")
        self.files = [{"file": "python/tessera/_gemm.py", "does": "a"},
                      {"file": "python/tessera/_call.py", "does": "b"},
                      {"file": "src/c_api/gemm.cpp", "does": "c", "by": "ctypes"},
                      {"file": "src/ops/gemm.h", "does": "d"},
                      {"file": "src/ops/gemm.cpp", "does": "e"}]
        self.also, self.left_out = [], []
        self.write_tree(limit=5)

    def write_tree(self, limit, page=None):
        path = {"limit": limit, "files": self.files, "also": self.also}
        data = {"left_out": self.left_out, "paths": {"gemm": path}}
        self.write("docs/call_paths.json", json.dumps(data))
        body = count_path.block(path) if page is None else page
        self.write("docs/architecture.md", f"<!-- path:begin gemm -->\n{body}<!-- path:end -->\n")

    def test_a_connected_path_is_in_order(self):
        self.assert_clean()

    def test_a_file_that_does_not_exist(self):
        (self.root / "src/ops/gemm.cpp").unlink()
        self.assert_flagged("gemm lists src/ops/gemm.cpp, which does not exist")

    def test_more_files_than_the_limit(self):
        self.write_tree(limit=4)
        self.assert_flagged("gemm passes through 5 files; at most 4")

    def test_a_file_listed_twice(self):
        self.files.append(self.files[-1])
        self.write_tree(limit=6)
        self.assert_flagged("gemm lists src/ops/gemm.cpp twice")

    def test_a_file_nobody_includes(self):
        self.write("src/ops/norm.cpp", "")
        self.files.append({"file": "src/ops/norm.cpp", "does": "f"})
        self.write_tree(limit=6)
        self.assert_flagged("no earlier file leads to src/ops/norm.cpp")

    def include_a_check(self):
        self.write("src/ops/gemm.cpp", '#include "ops/check.h"\n')
        self.write("src/ops/check.h", "")
        self.write("src/ops/check.cpp", "")

    def test_an_included_file_that_is_not_listed(self):
        self.include_a_check()
        self.assert_flagged("src/ops/check.h, which src/ops/gemm.cpp uses, is neither listed nor")

    def test_the_source_file_of_a_listed_header(self):
        self.include_a_check()
        self.also = [{"why": "checks", "files": ["src/ops/check.h"]}]
        self.write_tree(limit=6)
        self.assert_flagged("src/ops/check.cpp, which src/ops/check.h uses, is neither listed nor")

    def test_an_imported_module_that_is_not_listed(self):
        self.write("python/tessera/_call.py", "import torch\nfrom ._library import lib\n")
        self.write("python/tessera/_library.py", "")
        self.write("python/tessera/torch.py", "")
        self.assert_flagged("python/tessera/_library.py, which python/tessera/_call.py uses")

    def test_files_beside_the_list_count(self):
        self.include_a_check()
        self.also = [{"why": "checks", "files": ["src/ops/check.h", "src/ops/check.cpp"]}]
        self.write_tree(limit=7)
        self.assert_clean()
        self.write_tree(limit=6)
        self.assert_flagged("gemm passes through 7 files; at most 6")

    def test_what_is_left_out_has_a_reason_and_a_use(self):
        self.include_a_check()
        self.left_out = [{"why": "checks", "files": ["src/ops/check.*"]}]
        self.write_tree(limit=5)
        self.assert_clean()
        self.left_out.append({"why": "unused", "files": ["src/cpu/*"]})
        self.write_tree(limit=5)
        self.assert_flagged("no listed file uses src/cpu/*")

    def test_a_page_that_is_out_of_date(self):
        self.write_tree(limit=5, page="1. something else\n")
        self.assert_flagged("docs/architecture.md: out of date")

    def test_a_page_without_the_list(self):
        self.write("docs/architecture.md", "# Architecture\n")
        self.assert_flagged("no list of gemm")


if __name__ == "__main__":
    unittest.main()
