"""check_sizes flags what is too long, banned or without a header, and accepts the rest."""
# SPDX-License-Identifier: MIT

import unittest

from bad_tree import HEAD, BadTreeTest

import check_sizes


def function_of(num_lines, head="void f() {\n"):
    return head + "  g();\n" * (num_lines - 2) + "}\n"


class CheckSizesTest(BadTreeTest):
    checker = check_sizes

    def test_a_file_at_every_limit_is_in_order(self):
        self.write("src/a.cpp", HEAD + "//" + " x" * 49 + "\n" + function_of(120) +
                   "int x;\n" * (400 - 123))
        self.write("README.md", "line\n" * 150)
        self.write("CONTRIBUTING.md", "line\n" * 80)
        self.write("Makefile", "line\n" * 59)
        self.write("src/core/README.md", "line\n" * 15)
        self.assert_clean()

    def test_a_file_of_401_lines(self):
        self.write("src/a.cpp", HEAD + "int x;\n" * 399)
        self.assert_flagged("src/a.cpp: 401 lines; at most 400")

    def test_a_line_of_101_columns(self):
        self.write("src/CMakeLists.txt", "# x\n" + "#" * 101 + "\n")
        self.assert_flagged("src/CMakeLists.txt:2: 101 columns")

    def test_a_function_of_121_lines(self):
        self.write("src/a.cpp", HEAD + "namespace a {\n" + function_of(121) + "}\n")
        self.assert_flagged("src/a.cpp:4: 121 lines in `void f()`")

    def test_a_template_kernel_of_121_lines(self):
        head = "template <class Arch>\n__global__ void __launch_bounds__(128) f(Params p) {\n"
        self.write("src/a.cu", HEAD + function_of(120, head))
        self.assert_flagged("src/a.cu:3: 121 lines in `template <class Arch> __global__")

    def test_a_long_member_function_in_a_long_class(self):
        self.write("src/a.h", HEAD + "struct A : B {\n" + "  int x;\n" * 120 +
                   function_of(121, "  int g(int y = {}) const {\n") + "};\n")
        self.assert_flagged("src/a.h:124: 121 lines in `int g(int y = {}) const`")

    def test_a_long_constructor_with_braces_in_its_initialisers(self):
        self.write("src/a.cpp", HEAD + function_of(121, "A::A(int x) : B(x), x_{x}, y_{} {\n"))
        self.assert_flagged("src/a.cpp:3: 121 lines in `A::A(int x)")

    def test_a_long_table_is_no_function(self):
        self.write("src/a.cpp", HEAD + "constexpr Row kRows[] = {\n" + "  row(\"{\"),\n" * 150 +
                   "};\n")
        self.assert_clean()

    def test_a_header_block_that_was_broken(self):
        block = "// Work      A block owns\n//           a tile.\n// Needs     nothing.\n"
        self.write("src/a.cu", HEAD + block + "//\n// More words.\n")
        self.assert_clean()
        self.write("src/a.cu", HEAD + block + "// by\n//           the way.\n")
        self.assert_flagged("src/a.cu:6: not indented like the rest of its paragraph")

    def test_a_long_python_function(self):
        self.write("tools/a.py", "# SPDX-License-Identifier: MIT\ndef f():\n" + "    g()\n" * 120)
        self.assert_flagged("tools/a.py:2: 121 lines in `f`")

    def test_a_macro_of_ones_own(self):
        self.write("src/a.h", HEAD + "#define TESSERA_MAX(a, b) a\n")
        self.assert_flagged("src/a.h:3: macro TESSERA_MAX")

    def test_the_two_macros_and_a_local_one(self):
        self.write("src/a.cuh", HEAD + "#define TESSERA_UNROLL _Pragma(\"unroll\")\n"
                   "#define TESSERA_DEVICE_ASSERT(ok)\n#define OPERANDS 1\n#undef OPERANDS\n")
        self.assert_clean()

    def test_assert_is_banned_and_static_assert_is_not(self):
        self.write("src/a.cpp", HEAD + "static_assert(true);  // not assert(true)\n"
                   "void f() { assert(true); }\n")
        self.assert_flagged("src/a.cpp:4: assert is banned")

    def test_a_file_without_a_licence(self):
        self.write("tools/a.sh", "#!/bin/sh\n# What it is for.\n")
        self.assert_flagged("tools/a.sh: no `SPDX-License-Identifier: MIT`")

    def test_a_licence_that_shares_its_line(self):
        self.write("src/a.cpp", "// What this file\n// is for. SPDX-License-Identifier: MIT\n")
        self.assert_flagged("src/a.cpp:2: the licence shares its line with other text")

    def test_a_file_that_does_not_say_what_it_is_for(self):
        self.write("src/a.cpp", "// SPDX-License-Identifier: MIT\n")
        self.assert_flagged("src/a.cpp:1: the first line is a comment that says")

    def test_space_at_the_end_of_a_line(self):
        self.write("src/a.cpp", HEAD + "int x; \n")
        self.assert_flagged("src/a.cpp:3: spaces at the end")

    def test_a_tab(self):
        self.write("src/a.cpp", HEAD + "\tint x;\n")
        self.assert_flagged("src/a.cpp:3: a tab")

    def test_no_newline_at_the_end(self):
        self.write("src/a.cpp", HEAD + "int x;")
        self.assert_flagged("no newline at the end")

    def test_documents_too_long(self):
        for path, limit in (("README.md", 150), ("CONTRIBUTING.md", 80), ("Makefile", 59),
                            ("docs/README.md", 60), ("src/core/README.md", 15),
                            ("tests/README.md", 15)):
            with self.subTest(path):
                self.write(path, "line\n" * (limit + 1))
                self.assert_flagged(f"{path}: {limit + 1} lines; at most {limit}")
                (self.root / path).unlink()


if __name__ == "__main__":
    unittest.main()
