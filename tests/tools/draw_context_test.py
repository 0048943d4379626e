"""The picture of long contexts follows its record."""
# SPDX-License-Identifier: MIT

import json
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import draw_context  # noqa: E402


def made_up_record(step_of_batch):
    results = []
    for batch in (1, 4, 16):
        for context in (1024, 2048, 4096):
            results.append({
                "shape": {"batch": batch, "prompt": context - 17, "generate": 16},
                "step_ms": {"median": step_of_batch(batch) + context / 4096},
                "memory": {"weight_bytes": 16 * 10**9, "activation_bytes": 10**9,
                           "kv_bytes": batch * context * 131072},
            })
    return {"model": "llama3.1-8b", "dtype": "bf16", "kv": "plain", "commit": "abcdef1234",
            "device": "cuda:0, NVIDIA H200", "results": results}


class DrawContextTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.record = self.root / draw_context.RECORD
        self.record.parent.mkdir(parents=True)

    def run_tool(self, *flags):
        return subprocess.run([sys.executable, ROOT / "tools" / "draw_context.py", "--root",
                               self.root, *flags], capture_output=True, text=True, check=False)

    def test_a_missing_record_is_named(self):
        done = self.run_tool()
        self.assertEqual(done.returncode, 1)
        self.assertIn("e2e_context.json: no such record", done.stdout)

    def test_pictures_show_every_batch_and_follow_the_record(self):
        self.record.write_text(json.dumps(made_up_record(lambda batch: 3 + batch)))
        self.assertEqual(self.run_tool("--check").returncode, 1)
        self.assertEqual(self.run_tool().returncode, 0)
        self.assertEqual(self.run_tool("--check").returncode, 0)
        for name in draw_context.PICTURES:
            document = xml.dom.minidom.parse(str(self.root / "docs" / "pictures" / name))
            texts = [node.firstChild.data for node in document.getElementsByTagName("text")]
            for label in ("batch 1: 5.00 ms", "batch 4: 8.00 ms", "batch 16: 20.00 ms",
                          "batch 16: 25.6 GB", "1K", "4K"):
                self.assertIn(label, texts)
            self.assertTrue(any("NVIDIA H200" in text and "abcdef1" in text for text in texts))
        self.record.write_text(json.dumps(made_up_record(lambda batch: 2 + batch)))
        self.assertEqual(self.run_tool("--check").returncode, 1)

    def test_ticks_are_round_and_reach_the_value(self):
        self.assertEqual(draw_context.ticks_up_to(7.3)[-1], 8)
        self.assertEqual(draw_context.ticks_up_to(139), [0, 20, 40, 60, 80, 100, 120, 140])
        self.assertEqual(draw_context.ticks_up_to(0.9)[-1], 1)


if __name__ == "__main__":
    unittest.main()
