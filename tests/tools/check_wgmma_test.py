"""check_wgmma fails a compilation with serialised WGMMAs, and changes nothing otherwise."""
# SPDX-License-Identifier: MIT

import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKER = Path(__file__).resolve().parents[2] / "tools" / "check_wgmma.sh"
SERIALISED = ("ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions "
              "are serialized due to insufficient register resources for the wgmma pipeline in "
              "the function 'gemm'")


class CheckWgmmaTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.object = Path(folder.name) / "of gemm.o"

    def compile(self, says, status=0):
        """Runs the checker over a compiler that prints `says` and exits with `status`."""
        compiler = 'echo >"$3"; echo heard; echo "$4" >&2; exit "$1"'
        return subprocess.run(
            [CHECKER, "sh", "-c", compiler, "sh", str(status), "-o", self.object, says],
            capture_output=True, text=True, check=False)

    def test_serialised_wgmmas_fail_and_leave_no_object(self):
        result = self.compile(SERIALISED)
        self.assertEqual(result.returncode, 1)
        self.assertIn(SERIALISED, result.stderr)
        self.assertIn("check_wgmma: ", result.stderr)
        self.assertFalse(self.object.exists())

    def test_other_messages_pass_unchanged(self):
        says = "ptxas info    : (C7517) warpgroup.wait is injected in around line 204"
        result = self.compile(says)
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (0, "heard\n", says + "\n"))
        self.assertTrue(self.object.exists())

    def test_a_failing_compiler_keeps_its_status(self):
        result = self.compile("error: no such file", status=4)
        self.assertEqual((result.returncode, result.stderr), (4, "error: no such file\n"))


if __name__ == "__main__":
    unittest.main()
