"""make run builds what the machine can use: the CPU side, or the kernels of its one GPU."""
# SPDX-License-Identifier: MIT

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n"


class MakeRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.programs = Path(folder.name)
        self.program("nvcc", NVCC)

    def program(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, capability):
        self.program("nvidia-smi", f"#!/bin/sh\necho '{capability}'\n")

    def commands(self, *arguments):
        """What make would run, in a machine with the programs of this test first on its PATH."""
        environment = dict(os.environ, PATH=f"{self.programs}:{os.environ['PATH']}",
                           CUDACXX=str(self.programs / "nvcc"))
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PRESET"):
            environment.pop(name, None)
        return subprocess.run(["make", "-n", *arguments], cwd=REPOSITORY, env=environment,
                              check=True, capture_output=True, text=True).stdout

    def test_without_a_gpu_the_cpu_side_alone_is_built(self):
        self.program("nvidia-smi", "#!/bin/sh\nexit 9\n")
        commands = self.commands("run")
        self.assertIn("cmake --preset run", commands)
        self.assertNotIn("TESSERA_CUDA=ON", commands)

    def test_with_a_gpu_only_its_architecture_is_built(self):
        self.gpu("9.0")
        self.assertIn("-D TESSERA_CUDA=ON -D TESSERA_PORTABLE_ARCHS=90-real", self.commands("run"))
        self.gpu("12.0")
        self.assertIn("TESSERA_PORTABLE_ARCHS=120-real", self.commands("run"))

    def test_only_hopper_gets_the_hopper_library(self):
        for capability, setting in (("8.0", "OFF"), ("8.9", "OFF"), ("9.0", "ON"), ("12.0", "OFF")):
            self.gpu(capability)
            self.assertIn(f"-D TESSERA_SM90={setting}", self.commands("run"))

    def test_a_gpu_that_is_too_old_does_not_count(self):
        self.gpu("7.5")
        self.assertNotIn("TESSERA_CUDA=ON", self.commands("run"))

    def test_a_preset_that_is_asked_for_is_used_as_it_is(self):
        self.gpu("9.0")
        commands = self.commands("run", "PRESET=asan")
        self.assertIn("cmake --preset asan", commands)
        self.assertNotIn("TESSERA_CUDA=ON", commands)

    def test_the_server_is_built_only_if_it_is_served(self):
        self.gpu("9.0")
        self.assertNotIn("TESSERA_SERVER", self.commands("run"))
        self.assertIn("tools/setup.sh run", self.commands("run"))
        commands = self.commands("serve")
        self.assertIn("TESSERA_SERVER=ON", commands)
        self.assertIn("TESSERA_CUDA=ON", commands)
        self.assertIn("apps/tessera serve", commands)

    def test_the_quantisers_are_built_only_if_they_are_used(self):
        self.gpu("9.0")
        self.assertNotIn("TESSERA_QUANTIZE", self.commands("run"))
        commands = self.commands("quantize", "ARGS=in out")
        self.assertIn("TESSERA_QUANTIZE=ON", commands)
        self.assertIn("TESSERA_CUDA=ON", commands)
        self.assertIn("apps/tessera quantize in out", commands)

    def test_make_test_builds_everything_wherever_there_is_an_nvcc(self):
        self.program("nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.assertIn("tools/test.sh release", self.commands("test"))


class WithoutHopperTest(unittest.TestCase):
    """TESSERA_SM90=OFF compiles no kernel for Hopper and links an empty table for each of its."""

    def test_nothing_is_compiled_for_hopper(self):
        find = ["sh", "tools/find_nvcc.sh"]
        nvcc = subprocess.run(find, cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
        if not nvcc:
            self.skipTest("no nvcc on this machine")
        for setting, expects_hopper in (("ON", True), ("OFF", False)):
            with tempfile.TemporaryDirectory() as build:
                subprocess.run(
                    ["cmake", "--preset", "run", "-B", build, "-D", "TESSERA_CUDA=ON", "-D",
                     "TESSERA_PORTABLE_ARCHS=86-real", "-D", f"TESSERA_SM90={setting}",
                     "-D", "TESSERA_UNITY=OFF"],  # every source has a command of its own
                    cwd=REPOSITORY, env=dict(os.environ, CUDACXX=nvcc), check=True,
                    capture_output=True)
                commands = (Path(build) / "compile_commands.json").read_text()
            self.assertIn("sm_86", commands)
            self.assertEqual("sm_90" in commands, expects_hopper)
            self.assertEqual("/gemm/sm90/rows.cpp" in commands, expects_hopper)
            self.assertEqual("rows_none_sm90.cpp" in commands, not expects_hopper)

    def test_every_table_of_hopper_has_an_empty_one(self):
        kernels = REPOSITORY / "src" / "kernels"
        tables = {name for rows in kernels.rglob("rows.h")
                  for name in re.findall(r"\b(\w+_rows_sm90)\(\);", rows.read_text())}
        empty = (kernels / "rows_none_sm90.cpp").read_text()
        self.assertEqual(tables, set(re.findall(r"\b(\w+_rows_sm90)\(\) \{", empty)))
        for path in kernels.rglob("*.cpp"):
            if "sm90" in path.parts or path.stem == "rows_none_sm90":
                continue
            guarded = re.sub(r"#ifdef TESSERA_SM90.*?#endif", "", path.read_text(), flags=re.DOTALL)
            self.assertIsNone(re.search(r"_rows_sm90\(\) \{", guarded),
                              f"{path}: put Hopper's table between #ifdef TESSERA_SM90 and #endif")


if __name__ == "__main__":
    unittest.main()
