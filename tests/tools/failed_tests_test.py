# failed_tests.py shows the end of what failed, and nothing else.
# SPDX-License-Identifier: MIT
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "failed_tests.py"
RESULTS = """<testsuite>
<testcase name="good"><system-out>fine</system-out></testcase>
<testcase name="bad"><failure message="Failed"/><system-out>{lines}
the reason &lt;x&gt;</system-out></testcase>
<testcase name="silent"><failure message="Failed"/></testcase>
</testsuite>"""


class FailedTests(unittest.TestCase):
    def test_the_last_lines_of_failures_are_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.xml"
            path.write_text(RESULTS.format(lines="\n".join(f"line {i}" for i in range(100))))
            text = subprocess.run([sys.executable, str(TOOL), str(path)], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
        self.assertIn("bad failed; the last of 101 lines", text)
        self.assertIn("  line 61\n", text)
        self.assertIn("  the reason <x>\n", text)
        self.assertNotIn("line 60\n", text)
        self.assertIn("silent failed", text)
        self.assertNotIn("good", text)


if __name__ == "__main__":
    unittest.main()
