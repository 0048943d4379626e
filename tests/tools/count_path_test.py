"""count_path flags lists of files that do not exist, are too long, or are not connected."""
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
        self.write_tree(limit=5)

    def write_tree(self, limit, page=None):
        path = {"limit": limit, "files": self.files}
        self.write("docs/call_paths.json", json.dumps({"gemm": path}))
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

    def test_a_page_that_is_out_of_date(self):
        self.write_tree(limit=5, page="1. something else\n")
        self.assert_flagged("docs/architecture.md: out of date")

    def test_a_page_without_the_list(self):
        self.write("docs/architecture.md", "# Architecture\n")
        self.assert_flagged("no list of gemm")


if __name__ == "__main__":
    unittest.main()
