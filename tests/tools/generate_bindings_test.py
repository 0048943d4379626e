"""generate_bindings writes what the tree holds, and a described operation reaches every binding."""
# SPDX-License-Identifier: MIT

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import generate_bindings  # noqa: E402
from bindings_c import ops_header, source  # noqa: E402
from bindings_python import operation  # noqa: E402
from describe import Operation, choice, number, optional, out, tensor  # noqa: E402
from operations import REDUCTION  # noqa: E402


class GenerateBindingsTest(unittest.TestCase):
    def check(self, root):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = generate_bindings.main(["--check"], root)
        return status, said.getvalue()

    def test_the_tree_holds_what_it_writes(self):
        self.assertEqual(self.check(ROOT), (0, ""))

    def test_an_edited_file_is_flagged_and_written_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in generate_bindings.generated().items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            self.assertEqual(self.check(root), (0, ""))
            edited = root / "include/tessera/c_ops.h"
            edited.write_text(edited.read_text().replace("float eps", "double eps"))
            status, said = self.check(root)
            self.assertEqual(status, 1)
            self.assertIn("include/tessera/c_ops.h: is not what", said)
            with contextlib.redirect_stdout(io.StringIO()):
                generate_bindings.main([], root)
            self.assertEqual(self.check(root), (0, ""))

    def test_a_described_operation_is_in_every_binding(self):
        fields = (tensor("x"), optional("mask"), out(), number("scale"), choice("how", REDUCTION))
        op = Operation("blend", "BlendArgs", "blend.h", fields, doc="Blends x.")
        header = ops_header([op], "first")
        self.assertIn("/* tessera/ops/blend.h: Blends x. */\nTesseraStatus tessera_blend(\n"
                      "    const DLTensor* x,\n    const DLTensor* mask, /* optional */\n", header)
        glue = source([op], "table", "first")
        for line in ('read(args.x, x, {"blend", "x"});',
                     'read_optional(args.mask, mask, {"blend", "mask"});',
                     "args.scale = scale;",
                     'args.how = to_enum(how, Reduction::absmax, "blend: how");',
                     'call("blend", &tessera::blend, args, ctx);',
                     'entry<tessera_blend, 3, float, int32_t>("blend"),'):
            self.assertIn(line, glue)
        table = operation(op)
        self.assertIn('"blend": Operation(\n        "x mask out",\n        written="out",', table)
        self.assertIn('Scalar("how", c_int32, "str", REDUCTIONS)', table)


if __name__ == "__main__":
    unittest.main()
