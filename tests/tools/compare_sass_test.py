"""Tests of tools/compare_sass.py on dumps written by hand."""
# SPDX-License-Identifier: MIT

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import compare_sass  # noqa: E402

DUMP = """
Fatbin elf code:
arch = sm_90a
 code for sm_90a
  Function : {name}
        /*0000*/                   LDC R1, c[0x0][0x28] ;     /* 0x00000a00ff017b82 */
                                                              /* 0x000fe20000000800 */
        /*0010*/                   MOV R4, 32@lo({name}) ;    /* 0x{code} */
                                                              /* 0x000fe20000000800 */
"""


def kernels(name, code="0000000000007918"):
    parsed = compare_sass.parse_dump(DUMP.format(name=name, code=code))
    names = compare_sass.demangle([mangled for _, mangled, _ in parsed])
    return [compare_sass.Kernel(arch, text, "\n".join(lines), len(lines))
            for (arch, _, lines), text in zip(parsed, names)]


class CompareSass(unittest.TestCase):
    def test_namespaces_may_change(self):
        old = kernels("_ZN7tessera7kernels4copyINS_4Sm90EEEvi")
        new = kernels("_ZN7tessera7kernels2kv4copyINS_4Sm90EEEvi")
        self.assertEqual(compare_sass.compare(old, new), ([], 1, 0))

    def test_names_may_change(self):
        old, new = kernels("_Z4copyi"), kernels("_Z5movedi")
        self.assertEqual(compare_sass.compare(old, new), ([], 0, 1))

    def test_one_changed_instruction_is_found(self):
        old, new = kernels("_Z4copyi"), kernels("_Z4copyi", "0000000000007919")
        lines, num_same, num_renamed = compare_sass.compare(old, new)
        self.assertEqual((num_same, num_renamed), (0, 0))
        self.assertEqual(lines, ["differs  sm_90a copy(int): 4 lines before, 4 now"])

    def test_missing_and_new_kernels_are_named(self):
        old, new = kernels("_Z4copyi"), kernels("_Z5movedi", "0000000000007919")
        lines, _, _ = compare_sass.compare(old, new)
        self.assertEqual(lines, ["missing  sm_90a copy(int)", "new      sm_90a moved(int)"])


if __name__ == "__main__":
    unittest.main()
