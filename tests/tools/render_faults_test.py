"""render_faults flags tests and rows that do not exist, and renders the results of a run."""
# SPDX-License-Identifier: MIT

import json
import unittest

from bad_tree import BadTreeTest

import render_faults

ROWS = [
    {"id": "M1", "fault": "bad header", "answer": "refused", "tests": ["Header.IsRefused"]},
    {"id": "N1", "fault": "a batch", "answer": "the same",
     "tests": ["Batch.IsTheSame", "BatchOnGpu.IsTheSame", "tests/apps/test_run.py::test_run"]},
]
RUN = """<testsuite>
<testcase name="Header.IsRefused" status="run"/>
<testcase name="Types/Batch.IsTheSame/f32" status="run"/>
<testcase name="Types/Batch.IsTheSame/bf16" status="notrun"><skipped message="s"/></testcase>
<testcase name="BatchOnGpu.IsTheSame" status="notrun"><skipped message="s"/></testcase>
<testcase name="apps.command_line" status="run"/>
</testsuite>"""


class RenderFaultsTest(BadTreeTest):
    checker = render_faults

    def setUp(self):
        super().setUp()
        self.write("tests/a_test.cpp",
                   "TEST(Header, IsRefused) {\n}\nTEST_P(Batch,\n       IsTheSame) {\n}\n"
                   "TEST_F(BatchOnGpu, IsTheSame) {}\n")
        self.write("tests/apps/test_run.py", "def test_run(model):\n    pass\n")
        self.write("tests/CMakeLists.txt", "add_test(NAME soak.short COMMAND soak)\n")
        self.write("docs/faults.md", "# Faults\n<!-- faults:begin -->\n<!-- faults:end -->\nend\n")
        self.set_rows(ROWS)
        render_faults.write_page(self.root, [])

    def set_rows(self, rows):
        self.write("tests/faults.json", json.dumps(rows))

    def page(self):
        return (self.root / "docs/faults.md").read_text()

    def render(self, run):
        self.write("run.xml", run)
        render_faults.write_page(self.root, [self.root / "run.xml"])
        return {line.split("|")[1].strip(): line.split("|")[-2].strip()
                for line in self.page().splitlines() if line.startswith("|")}

    def test_a_rendered_tree_is_in_order(self):
        self.assert_clean()
        self.assertTrue(self.page().endswith("<!-- faults:end -->\nend\n"))

    def test_a_test_that_does_not_exist(self):
        self.write("tests/a_test.cpp",
                   "TEST_P(Batch, IsTheSame) {}\nTEST(BatchOnGpu, IsTheSame) {}\n")
        self.assert_flagged("row M1 names Header.IsRefused, which does not exist")

    def test_a_row_that_is_not_applicable_needs_no_test(self):
        self.set_rows([*ROWS, {"id": "L14", "fault": "a rank dies", "answer": "not applicable: why",
                               "tests": [], "is_not_applicable": True}])
        render_faults.write_page(self.root, [])
        self.assert_clean()
        self.assertIn("| not applicable: why |  | not applicable |", self.page())

    def test_a_python_test_that_does_not_exist(self):
        self.write("tests/apps/test_run.py", "def test_walk():\n    pass\n")
        self.assert_flagged("row N1 names tests/apps/test_run.py::test_run, which does not exist")

    def test_a_row_that_is_not_on_the_page(self):
        self.set_rows(ROWS + [ROWS[0] | {"id": "M2", "tests": ["soak.short"]}])
        self.assert_flagged("docs/faults.md: the table disagrees with tests/faults.json")

    def test_a_row_that_is_on_the_page_alone(self):
        self.set_rows(ROWS[:1])
        self.assert_flagged("docs/faults.md: the table disagrees with tests/faults.json")

    def test_another_test_than_on_the_page(self):
        self.set_rows([ROWS[0] | {"tests": ["soak.short"]}, ROWS[1]])
        self.assert_flagged("docs/faults.md: the table disagrees with tests/faults.json")

    def test_a_row_without_a_test(self):
        self.set_rows([ROWS[0] | {"tests": []}, ROWS[1]])
        render_faults.write_page(self.root, [])
        self.assert_flagged("row M1 names no test")

    def test_a_row_twice(self):
        self.set_rows([ROWS[0], ROWS[0]])
        render_faults.write_page(self.root, [])
        self.assertEqual(len(self.problems()), 2)

    def test_a_page_without_marks(self):
        self.write("docs/faults.md", "# Faults\n")
        self.assert_flagged("faults:begin")

    def test_results_of_a_run_without_a_gpu(self):
        results = self.render(RUN)
        self.assertEqual(results["M1"], "passed")
        self.assertEqual(results["N1"], "passed; 1 skipped (no GPU)")
        self.assert_clean()  # whatever the results are

    def test_a_failure_and_a_test_that_was_not_run(self):
        results = self.render(
            '<testsuite><testcase name="Batch.IsTheSame"><failure/></testcase></testsuite>')
        self.assertEqual(results["M1"], "missing: Header.IsRefused")
        self.assertEqual(results["N1"], "**failed**")

    def test_results_of_googletest_and_pytest(self):
        results = self.render(
            '<testsuites><testcase name="IsRefused" classname="Header" result="completed"/>'
            '<testcase name="IsTheSame/0" classname="Types/Batch" result="completed"/>'
            '<testcase name="IsTheSame" classname="BatchOnGpu" result="skipped"/>'
            '<testcase name="test_run[a.b]" classname="test_run"/></testsuites>')
        self.assertEqual(results["M1"], "passed")
        self.assertEqual(results["N1"], "passed; 1 skipped (no GPU)")

    def test_results_are_kept_until_the_next_run(self):
        self.render(RUN)
        self.set_rows(ROWS + [ROWS[0] | {"id": "M2", "tests": ["soak.short"]}])
        render_faults.write_page(self.root, [])
        self.assertIn("1 skipped (no GPU) |", self.page())
        self.assertIn("| `soak.short` | not run |", self.page())
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
