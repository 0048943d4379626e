"""The picture and the tables of the front page follow the results of record."""
# SPDX-License-Identifier: MIT

import json
import shutil
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import draw_speed  # noqa: E402
import front_page  # noqa: E402


class FrontPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.results = self.root / "docs" / "results" / "h200"
        shutil.copytree(ROOT / "docs" / "results" / "h200", self.results)

    def change(self, name, change_result):
        """Applies `change_result` to every result of a record."""
        path = self.results / f"{name}.json"
        data = json.loads(path.read_text())
        for result in data["results"]:
            change_result(result)
        path.write_text(json.dumps(data))

    def picture_texts(self, root):
        svg = draw_speed.draw(draw_speed.Records(root), draw_speed.THEMES["speed.svg"])
        document = xml.dom.minidom.parseString(svg)
        return [node.firstChild.data for node in document.getElementsByTagName("text")]

    def test_the_picture_names_every_system_in_its_panels(self):
        texts = self.picture_texts(self.root)
        for name, panels in (("Tessera", 4), ("FlashAttention-3", 3), ("cuDNN", 3), ("cuBLAS", 1)):
            labels = [text for text in texts if text.split(" ")[0] == name and len(text) < 30]
            self.assertEqual(len(labels), panels, labels)

    def test_a_slower_record_changes_the_picture(self):
        def slow_down(result):
            result["us"] *= 2
            result["tbs"] /= 2
        before = self.picture_texts(self.root)
        self.change("decode", slow_down)
        after = self.picture_texts(self.root)
        changed = [text for text, old in zip(after, before) if text != old]
        self.assertTrue(any(text.startswith("Tessera 2.3") for text in changed), changed)

    def test_cudnn_is_shown_at_its_better_run(self):
        result = {"us": 10.0, "peers": {"cudnn": {"us": 9.0}},
                  "shape": {"batch": 8, "kv_len": 1024, "heads": 32, "kv_heads": 8, "d": 128}}
        records = draw_speed.Records(self.root)
        self.assertEqual(records.times("decode", result)["cudnn"], 9.0)
        result["peers"]["cudnn"]["us"] = 1000.0
        alone = records.times("decode", result)["cudnn"]
        self.assertLess(alone, 1000.0)
        self.assertGreater(alone, 9.0)

    def test_flash_attention_3_has_the_same_figures_in_both_records(self):
        records, num_found = draw_speed.Records(ROOT), 0
        for result in records.load("attention")["results"]:
            fixed = result["peers"].get("fa3_fixed")
            if fixed is None:
                continue
            shape = {name: size for name, size in result["shape"].items() if name != "scales"}
            peer = "fa3_fp8" if "scales" in result["shape"] else "fa3"
            alone = records.peers["prefill", peer, records.key(shape)]
            self.assertAlmostEqual(fixed["tflops"], alone["tflops"], delta=0.51)
            num_found += 1
        self.assertGreater(num_found, 0)

    def test_the_table_says_where_another_system_is_ahead(self):
        def slow_down(result):
            result["decode_tokens_per_second"] = 104.0
        self.change("e2e_single", slow_down)
        line = front_page.systems_block(self.root).split("\n")[2]
        self.assertTrue(line.startswith("| decode, bf16, batch 1 | **104** (512 + 128) |"), line)
        self.assertTrue(line.endswith("| 0.50\u00d7 |"), line)

    def test_a_family_shows_its_median_and_its_worst_shape(self):
        ratios = iter([1.0, 1.2, 0.5, 1.1, 1.3, 1.4, 1.5])

        def set_ratio(result):
            ratio = next(ratios)
            result["peers"] = {"torch": {"ratio": ratio}, "torch_compile": {"ratio": ratio + 1}}
        self.change("gemm_ffn", set_ratio)
        lines = front_page.families_block(self.root).split("\n")
        line = next(line for line in lines if "products with activation" in line)
        self.assertIn("| 7 | PyTorch, torch.compile | 1.20\u00d7 | 0.50\u00d7 |", line)

    def test_a_missing_record_is_named(self):
        (self.results / "e2e_locked.json").unlink()
        with self.assertRaisesRegex(SystemExit, "e2e_locked.json does not exist"):
            front_page.systems_block(self.root)


if __name__ == "__main__":
    unittest.main()
