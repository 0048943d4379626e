# The tools that render and plot results, on a small repository made here.
# SPDX-License-Identifier: MIT
import json
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path
from unittest import mock

SOURCE = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
RESULT = {
    "workload": "norm",
    "row": "rms_norm_sm90_bf16",
    "dtype": "bf16",
    "shape": {"rows": 16, "hidden": 4096},
    "us": 2.0,
    "p10": 1.9,
    "p90": 2.2,
    "tbs": 0.131,
    "tflops": 0.1,
    "percent_of_floor": 2.9,
    "joules": 0.0005,
    "peers": {"torch": {"us": 5.0, "ratio": 2.5}, "torch_compile": {"us": 4.0, "ratio": 2.0}},
}
DATA = {
    "gpu": "A GPU",
    "driver": "1.2",
    "cuda": "13.0",
    "commit": "abc",
    "date": "2026-11-15",
    "ceilings": {"read_tbs": 4.5, "copy_tbs": 4.2, "bf16_tflops": None},
    "results": [RESULT],
}


def run(tool, *args):
    command = [sys.executable, SOURCE / "tools" / tool, *args]
    return subprocess.run(command, capture_output=True, text=True)


class ResultTools(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        (self.root / "docs" / "kernels").mkdir(parents=True)
        (self.root / "docs" / "results" / "h200").mkdir(parents=True)
        self.json = self.root / "docs" / "results" / "h200" / "elementwise.json"
        self.json.write_text(json.dumps(DATA))
        self.page = self.root / "docs" / "kernels" / "elementwise.md"
        self.page.write_text(
            "before\n<!-- results:begin h200/elementwise norm -->\nold\n<!-- results:end -->\n"
            "after\n"
        )

    def tearDown(self):
        self.folder.cleanup()

    def test_check_fails_until_the_page_is_written(self):
        stale = run("render_results.py", "--check", "--root", self.root)
        self.assertEqual(stale.returncode, 1)
        self.assertIn("out of date", stale.stdout)
        self.assertEqual(run("render_results.py", "--root", self.root).returncode, 0)
        text = self.page.read_text()
        self.assertIn("| `rms_norm_sm90_bf16` | rows=16 hidden=4096 | 2.00 (1.90-2.20) |", text)
        self.assertIn("| 5.00 | 4.00 | 2.00 |", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("old", text)
        self.assertEqual(text.count("`rms_norm_sm90_bf16`"), 1)
        self.assertEqual(run("render_results.py", "--check", "--root", self.root).returncode, 0)

    def test_a_peer_timed_in_turns_brings_its_own_ratio(self):
        peers = {"rms_norm_bf16": {"us": 3.0, "ratio": 1.47}, "torch": {"us": 5.0, "ratio": 2.5}}
        alone = dict(RESULT, row="rms_norm_bf16", peers={})
        results = [dict(RESULT, host_us=1.256, peers=peers), alone]
        self.json.write_text(json.dumps(dict(DATA, results=results)))
        rendered = run("render_results.py", "--root", self.root)
        self.assertEqual(rendered.returncode, 0, rendered.stderr)
        text = self.page.read_text()
        self.assertIn("| mJ | host us | rms_norm_bf16 us | torch us | best peer / ours |", text)
        self.assertIn("| 0.500 | 1.26 | 3.00 | 5.00 | 1.47 |", text)
        self.assertIn("| 0.500 | - | - | - | - |", text)

    def test_compare_adds_its_peers_to_those_of_the_bench(self):
        in_turns = {"us": 3.0, "p10": 2.9, "p90": 3.1, "ratio": 1.47}
        first = dict(RESULT, peers={"rms_norm_bf16": in_turns})
        second = dict(RESULT, row="rms_norm_bf16", us=4.0, peers={})
        self.json.write_text(json.dumps(dict(DATA, results=[first, second])))
        timed = {name: RESULT[name] for name in ("workload", "dtype", "shape")}
        timed.update(op="rms_norm", us={"tessera": 2.5, "torch": 5.0})
        absent = ("torch", "torch.nn", "torch.nn.functional", "tessera")
        with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in absent}), \
                mock.patch.object(sys, "path", [str(SOURCE / "bench"), *sys.path]):
            import compare  # neither PyTorch nor a GPU has a part in merging
            compare.merge(self.json, [timed], None)
        first, second = json.loads(self.json.read_text())["results"]
        self.assertEqual(first["python_us"], 2.5)
        want = {"rms_norm_bf16": in_turns, "torch": {"us": 5.0, "ratio": 2.0}}
        self.assertEqual(first["peers"], want)
        self.assertEqual(second["peers"], {"torch": {"us": 5.0, "ratio": 1.25}})

    def test_a_changed_result_makes_check_fail(self):
        run("render_results.py", "--root", self.root)
        changed = dict(DATA, results=[dict(RESULT, us=3.0)])
        self.json.write_text(json.dumps(changed))
        self.assertEqual(run("render_results.py", "--check", "--root", self.root).returncode, 1)

    def test_perplexities_stand_side_by_side(self):
        page = self.root / "docs" / "kv_formats.md"
        page.write_text("<!-- perplexity:begin -->\n<!-- perplexity:end -->\n")
        (self.root / "docs" / "results" / "cpu").mkdir()
        found = (("cpu", "int4", 25.5), ("cpu", "plain", 24.5), ("h200", "int4", 26.0))
        for folder, kv, ppl in found:
            data = {"kv": kv, "ppl": ppl, "nll": 3.25, "device": folder, "model": "m", "text": "t",
                    "dtype": "bf16", "tokens": 9, "windows": 3, "window": 4, "commit": "abc"}
            path = self.root / "docs" / "results" / folder / f"perplexity_{kv}.json"
            path.write_text(json.dumps(data))
        self.assertEqual(run("render_results.py", "--check", "--root", self.root).returncode, 1)
        self.assertEqual(run("render_results.py", "--root", self.root).returncode, 0)
        rows = [line for line in page.read_text().split("\n") if line.startswith("| `")]
        self.assertEqual(rows, ["| `plain` | 24.5000 | 3.250000 | - | - |",
                                "| `int4` | 25.5000 | 3.250000 | 26.0000 | 3.250000 |"])

    def test_an_unknown_workload_is_refused(self):
        self.page.write_text(self.page.read_text().replace("norm -->", "no_such -->"))
        refused = run("render_results.py", "--root", self.root)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no results of workload no_such", refused.stderr)

    def test_plots_are_well_formed_and_show_every_bar(self):
        drawn = run("plot_results.py", self.json)
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        svg = (self.json.parent / "elementwise_norm.svg").read_text()
        document = xml.dom.minidom.parseString(svg)
        texts = [t.firstChild.data for t in document.getElementsByTagName("text") if t.firstChild]
        for text in ("elementwise: norm", "bf16 rows=16 hidden=4096", "3 %, 2 us", "torch"):
            self.assertIn(text, texts)


if __name__ == "__main__":
    unittest.main()
