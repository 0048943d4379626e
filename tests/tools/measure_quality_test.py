"""measure_quality asks the program once for each answer, and renders what it found."""
# SPDX-License-Identifier: MIT

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import measure_quality  # noqa: E402

# Stands for the program: notes what it is asked, and answers with numbers that tell forms apart.
PROGRAM = """#!{python}
import json, sys
with open({log!r}, "a") as log: log.write(" ".join(sys.argv[1:]) + "\\n")
verb, folder = sys.argv[1], sys.argv[2]
ppl = 20 if "tessera-13m" in folder else 21
print(json.dumps({{"bytes_after": 5, "seconds": 1, "ppl": ppl, "tokens": 7, "dtype": "bf16",
                  "device": "d", "cpu": "c", "commit": "x", "date": "y"}}))
"""


class MeasureQualityTest(unittest.TestCase):
    def test_a_stopped_run_goes_on(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder, log = Path(scratch), Path(scratch) / "log"
            program = folder / "program"
            program.write_text(PROGRAM.format(python=sys.executable, log=str(log)))
            os.chmod(program, 0o755)
            command = [sys.executable, str(TOOLS / "measure_quality.py"), str(program),
                       str(folder / "out.json"), "--text", "t.txt", "--only", "int4 g128 rtn",
                       "--folder", str(folder / "kept"), "--jobs", "2"]
            subprocess.run(command, check=True, capture_output=True)
            asked = log.read_text().splitlines()
            # One form made, both measured with three caches, and once dequantised.
            self.assertEqual(len(asked), 1 + 2 * 3 + 1)
            made = next(i for i, one in enumerate(asked) if one.startswith("quantize"))
            measured = [i for i, one in enumerate(asked) if "/model8" in one and i != made]
            self.assertGreater(min(measured), made)
            subprocess.run(command, check=True, capture_output=True)
            self.assertEqual(log.read_text().splitlines(), asked)
            result = json.loads((folder / "out.json").read_text())
            self.assertEqual(result["rows"][0]["loss"], 1)
            table = measure_quality.quality_table(result)
            self.assertIn("| int4 g128 rtn | `--method rtn` | 0.0 | 21.0000 |", table[-1])


if __name__ == "__main__":
    unittest.main()
