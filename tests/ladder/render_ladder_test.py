# The ladders' tool on a small repository made here, and the ladders' own files against the rules.
# SPDX-License-Identifier: MIT
import json
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

SOURCE = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu.sum"
MAX_LINES = 150
HEADINGS = ["Changed", "Cause", "Predicted", "Measured", "Shown by", "Profiled", "Needs"]
STEP = f"""// {{}}.
// SPDX-License-Identifier: MIT
//
// Measured   not measured yet
// Shown by   {CONFLICTS}
// Profiled   not profiled yet
int x;
"""


def result(step, us, percent):
    return {"step": step, "dtype": "bf16", "us": us, "p10": us, "p90": us, "tflops": 123.4,
            "percent_of_cublas": percent}


TIMES = {
    "gpu": "A GPU", "driver": "1.2", "cuda": "13.0", "commit": "abc", "date": "2026-11-15",
    "size": 4096,
    "cublas": {"bf16": {"us": 176.0, "p10": 175.0, "p90": 177.0, "tflops": 780.9}},
    "steps": [result("07_one", 1760.0, 10.0), result("08_two", 352.0, 50.0)],
}
ATTENTION_STEP = STEP.replace("// Measured", "// Predicted  1.5 to 2 ms: so it is.\n// Measured")
ATTENTION_TIMES = {
    "gpu": "A GPU", "driver": "1.2", "cuda": "13.0", "commit": "abc", "date": "2026-11-15",
    "size": 4096, "batch": 4, "heads": 16, "product_tflops": 700.0,
    "steps": [{"step": "01_one", "dtype": "bf16", "us": 2000.0, "p10": 2000.0, "p90": 2000.0,
               "tflops": 275.0, "percent_of_product": 39.3,
               "causal": {"us": 1100.0, "p10": 1100.0, "p90": 1100.0, "tflops": 250.0}}],
}
PROFILE = {"commit": "abc", "size": 4096,
           "steps": {"07_one": {CONFLICTS: 2.5e6}, "08_two": {CONFLICTS: 12.0}}}
NCU_CSV = """==PROF== Connected to process 1
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","short","gpu__time_duration.sum","ns","10"
"0","short","launch__registers_per_thread","register/thread","8"
"1","long","gpu__time_duration.sum","ns","1,234"
"1","long","launch__registers_per_thread","register/thread","168"
"1","long","lts__t_sector_hit_rate.pct","","(!) n/a"
"""


def run(*args):
    command = [sys.executable, "-B", SOURCE / "tools" / "render_ladder.py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True)


class RenderLadder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.ladder = self.root / "ladder" / "gemm"
        self.results = self.root / "docs" / "results" / "h200"
        self.ladder.mkdir(parents=True)
        self.results.mkdir(parents=True)
        (self.ladder / "07_one.cu").write_text(STEP.format("The first lesson"))
        (self.ladder / "08_two.cu").write_text(STEP.format("The second"))
        (self.ladder / "README.md").write_text(
            "before\n<!-- ladder:begin -->\n<!-- ladder:end -->\nafter\n")

    def tearDown(self):
        self.folder.cleanup()

    def record(self, times=TIMES, profile=PROFILE):
        (self.results / "gemm_ladder.json").write_text(json.dumps(times))
        (self.results / "gemm_ladder_ncu.json").write_text(json.dumps(profile))

    def test_without_results_the_table_says_so_and_there_is_no_plot(self):
        self.assertEqual(run("--root", self.root).returncode, 0)
        text = (self.ladder / "README.md").read_text()
        self.assertIn("| [`07_one`](07_one.cu) | The first lesson | - | not measured yet |", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertFalse((self.results / "gemm_ladder.svg").exists())

    def test_check_fails_until_everything_is_written(self):
        self.record()
        stale = run("--check", "--root", self.root)
        self.assertEqual(stale.returncode, 1)
        for name in ("README.md", "07_one.cu", "08_two.cu", "gemm_ladder.svg"):
            self.assertIn(name, stale.stdout)
        self.assertEqual(run("--root", self.root).returncode, 0)
        self.assertEqual(run("--check", "--root", self.root).returncode, 0)

    def test_results_reach_the_table_and_the_headers(self):
        self.record()
        run("--root", self.root)
        readme = (self.ladder / "README.md").read_text()
        self.assertIn("| The second | bf16 | 352.0 | 123.40 | 50.0 | 5.00 |", readme)
        self.assertIn("bf16 780.9 TFLOPS", readme)
        header = (self.ladder / "08_two.cu").read_text()
        measured = "352.0 us, 123.40 TFLOPS, 50.0 % of cuBLAS (A GPU, 4096 cubed)"
        self.assertIn(f"// Measured   {measured}\n", header)
        self.assertIn("// Profiled   12; step 07: 2.5 M\n", header)

    def test_attention_shows_its_prediction_and_both_masks(self):
        attention = self.root / "ladder" / "attention"
        attention.mkdir()
        (attention / "01_one.cu").write_text(ATTENTION_STEP.format("The first"))
        (attention / "README.md").write_text("<!-- ladder:begin -->\n<!-- ladder:end -->\n")
        run("--root", self.root)
        self.assertIn("| The first | 1.5 to 2 ms | not measured yet | - | - | - | - | - |",
                      (attention / "README.md").read_text())
        (self.results / "attention_ladder.json").write_text(json.dumps(ATTENTION_TIMES))
        run("--root", self.root)
        readme = (attention / "README.md").read_text()
        self.assertIn("batch 4, 4096 tokens, 16 heads of 128, bf16; a large product by cuBLASLt",
                      readme)
        self.assertIn("| 1.5 to 2 ms | 2000 | 275.00 | 39.3 | - | 1100 | 250.00 |", readme)
        measured = "2000 us, 275.00 TFLOPS; causal 1100 us, 250.00 TFLOPS (A GPU)"
        self.assertIn(f"// Measured   {measured}\n", (attention / "01_one.cu").read_text())
        svg = (self.results / "attention_ladder.svg").read_text()
        self.assertIn("39.3 %, 275 TFLOPS", svg)
        xml.dom.minidom.parseString(svg)
        self.assertEqual(run("--check", "--root", self.root).returncode, 0)

    def test_a_changed_result_makes_check_fail(self):
        self.record()
        run("--root", self.root)
        self.record(dict(TIMES, steps=[result("07_one", 1000.0, 17.6), TIMES["steps"][1]]))
        self.assertEqual(run("--check", "--root", self.root).returncode, 1)

    def test_the_plot_is_well_formed_and_shows_every_step(self):
        self.record()
        run("--root", self.root)
        svg = (self.results / "gemm_ladder.svg").read_text()
        document = xml.dom.minidom.parseString(svg)
        texts = [t.firstChild.data for t in document.getElementsByTagName("text") if t.firstChild]
        for text in ("07_one", "08_two", "50.0 %, 123.4 TFLOPS", "100 %"):
            self.assertIn(text, texts)

    def test_the_longest_kernel_of_a_profile_is_gathered(self):
        (self.root / "07_one.csv").write_text(NCU_CSV)
        target = self.root / "ncu.json"
        done = run("--gather", self.root, "--size", 4096, "--json", target)
        self.assertEqual(done.returncode, 0, done.stderr)
        step = json.loads(target.read_text())["steps"]["07_one"]
        self.assertEqual(step["gpu__time_duration.sum"], 1234)
        self.assertEqual(step["launch__registers_per_thread"], 168)
        self.assertIsNone(step["lts__t_sector_hit_rate.pct"])

    def test_a_folder_without_profiles_is_refused(self):
        refused = run("--gather", self.root, "--json", self.root / "ncu.json")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("has no NN_*.csv", refused.stderr)


class GemmSteps(unittest.TestCase):
    """The ladder's own files."""

    FOLDER = SOURCE / "ladder" / "gemm"
    COUNT = 14

    def files(self):
        found = sorted(self.FOLDER.glob("[0-9][0-9]_*"))
        self.assertGreaterEqual(len(found), self.COUNT)
        return found

    def test_every_step_is_short(self):
        for path in self.files():
            self.assertLessEqual(len(path.read_text().splitlines()), MAX_LINES, path.name)

    def test_every_step_has_each_heading_once_and_in_order(self):
        for path in self.files():
            found = re.findall(r"^// ([A-Z][a-z]+(?: by)?) {2,}\S", path.read_text(), re.MULTILINE)
            self.assertEqual(found, HEADINGS, path.name)

    def test_every_metric_named_is_asked_of_ncu(self):
        asked = run("--metrics").stdout.strip().split(",")
        for path in self.files():
            self.assertIn(re.search(r"^// Shown by +(\S+)$", path.read_text(), re.M)[1], asked)

    def test_every_step_is_a_row_in_the_order_of_its_number(self):
        rows = re.findall(r'\{"(\d\d_\w+)", "([\w.]+)"', (self.FOLDER / "steps.cpp").read_text())
        self.assertEqual([file for _, file in rows], [path.name for path in self.files()])
        self.assertEqual([name for name, _ in rows], [path.stem for path in self.files()])


class AttentionSteps(GemmSteps):
    FOLDER = SOURCE / "ladder" / "attention"
    COUNT = 6

    def test_every_step_has_a_prediction_for_the_table(self):
        for path in self.files():
            self.assertRegex(path.read_text(), r"(?m)^// Predicted  [\d.]+( to [\d.]+)? ms:")


if __name__ == "__main__":
    unittest.main()
