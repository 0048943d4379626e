"""A small tree in a temporary folder, in which tests make mistakes for a checker to flag."""
# SPDX-License-Identifier: MIT

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

HEAD = "// What this file is for.\n// SPDX-License-Identifier: MIT\n"


class BadTreeTest(unittest.TestCase):
    checker = None  # the module under test

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def problems(self):
        return self.checker.check_tree(self.root)[0]

    def assert_flagged(self, *parts):
        """There is exactly one problem, and its message contains each of the parts."""
        found = self.problems()
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def assert_clean(self):
        self.assertEqual(self.problems(), [])
