"""make run builds what the machine can use: the CPU side without a GPU, else one architecture."""
# SPDX-License-Identifier: MIT

import os
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

    def test_a_gpu_that_is_too_old_does_not_count(self):
        self.gpu("7.5")
        self.assertNotIn("TESSERA_CUDA=ON", self.commands("run"))

    def test_a_preset_that_is_asked_for_is_used_as_it_is(self):
        self.gpu("9.0")
        commands = self.commands("run", "PRESET=asan")
        self.assertIn("cmake --preset asan", commands)
        self.assertNotIn("TESSERA_CUDA=ON", commands)

    def test_make_test_builds_everything_wherever_there_is_an_nvcc(self):
        self.program("nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.assertIn("tools/test.sh release", self.commands("test"))


if __name__ == "__main__":
    unittest.main()
