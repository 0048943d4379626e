# Puts libtessera.so and the bundled model into the wheel.
# SPDX-License-Identifier: MIT
"""What pyproject.toml cannot say: the library is built by CMake, and the wheel is of a platform.

The C++ sources are the checkout around this folder or, in a source distribution, `source/` in it.
Environment:
  TESSERA_WHEEL_LIBRARY   a libtessera.so to use in place of building one
  TESSERA_WHEEL_CUDA      ON or OFF: with or without CUDA kernels; ON if there is an nvcc
  CMAKE_ARGS              more arguments for CMake's configuration
  CMAKE_BUILD_PARALLEL_LEVEL   how many files are compiled at once
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

GIVEN = "TESSERA_WHEEL_LIBRARY"
HERE = Path(__file__).resolve().parent
MODEL = Path("models") / "tessera-13m"
# What a source distribution needs of the checkout.
SOURCES = ["CMakeLists.txt", "LICENSE", "include", "src", str(MODEL)]


def find_root():
    """The folder with the C++ sources, or None."""
    for root in (HERE / "source", HERE.parent):
        if (root / "include" / "tessera" / "c.h").exists():
            return root
    return None


def find_nvcc():
    for place in (os.environ.get("CUDACXX"), "nvcc", "/usr/local/cuda/bin/nvcc"):
        found = place and shutil.which(place)
        if found:
            return found
    return None


def run(command, **environment):
    print("+", shlex.join(command), flush=True)
    try:
        subprocess.run(command, check=True, env={**os.environ, **environment})
    except FileNotFoundError:
        sys.exit(f"{command[0]} was not found: install it, or set {GIVEN} to a built library.")
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"{command[0]} ended with status {error.returncode}. The library needs the packages "
            f"that `sh tools/setup.sh build` installs, or set {GIVEN} to a built library."
        )


def build_library(root, folder):
    """Builds libtessera.so in `folder` and returns its path."""
    nvcc = find_nvcc()
    cuda = os.environ.get("TESSERA_WHEEL_CUDA") or ("ON" if nvcc else "OFF")
    configure = ["cmake", "-S", str(HERE), "-B", str(folder), "-D", f"TESSERA_ROOT={root}"]
    configure += ["-D", "CMAKE_BUILD_TYPE=Release", "-D", f"TESSERA_CUDA={cuda}"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    more = {"CUDACXX": nvcc} if cuda == "ON" and nvcc else {}
    run(configure + shlex.split(os.environ.get("CMAKE_ARGS", "")), **more)
    run(["cmake", "--build", str(folder), "--target", "tessera_c", "--parallel"])
    return folder / "tessera" / "src" / "c_api" / "libtessera.so"


class BuildPackage(build_py):
    """The Python files, then the library and the model beside them."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # the package then finds a build of the checkout
        package = Path(self.build_lib) / "tessera"
        root = find_root()
        given = os.environ.get(GIVEN)
        if given:
            library = Path(given)
        elif root is not None:
            base = root if root == HERE.parent else Path(self.build_lib).resolve().parent
            library = build_library(root, base / "build" / "wheel")
        else:
            sys.exit(
                "The C++ sources are neither around this folder nor in source/: build from the "
                f"checkout, or set {GIVEN} to a built library."
            )
        (package / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, package / "lib" / "libtessera.so")
        if root is not None and (root / MODEL).exists():
            shutil.copytree(root / MODEL, package / MODEL, dirs_exist_ok=True)


class SourceDistribution(sdist):
    """The C++ sources go into source/."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        root = find_root()
        if root is None:
            sys.exit("The C++ sources are not around this folder: make it from the checkout.")
        for name in SOURCES:
            to = Path(base_dir) / "source" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (root / name).is_dir() else shutil.copy2)(root / name, to)


# The newest versions that a manylinux platform promises of libstdc++, by its glibc (PEP 600).
LIBSTDCXX_OF_GLIBC = {17: 19, 24: 22, 27: 24, 28: 25, 31: 28, 34: 29, 35: 30, 38: 32, 39: 33}


def newest(versions):
    """The largest of (major, minor), or (0, 0)."""
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def platform_tag(library, plain):
    """ "manylinux_2_35_x86_64" for a library that needs no more than this; else the plain tag.

    The versions of the symbols that a library needs stand as text in it. `auditwheel show` finds
    the same.
    """
    if not plain.startswith("linux_") or not library.exists():
        return plain
    data = library.read_bytes()
    major, glibc = newest(re.findall(rb"GLIBC_(\d+)\.(\d+)", data))
    _, libstdcxx = newest(re.findall(rb"GLIBCXX_(3)\.4\.(\d+)", data))
    fitting = [minor for minor, promised in LIBSTDCXX_OF_GLIBC.items()
               if minor >= glibc and promised >= libstdcxx]
    if major != 2 or not fitting:
        return plain
    return f"manylinux_2_{min(fitting)}_{plain[len('linux_'):]}"


class PlatformWheel(bdist_wheel):
    """For any Python 3, since the library is reached by ctypes, but for one platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        built = Path(self.get_finalized_command("build_py").build_lib)
        library = built / "tessera" / "lib" / "libtessera.so"
        return "py3", "none", platform_tag(library, super().get_tag()[2])


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPackage, "sdist": SourceDistribution, "bdist_wheel": PlatformWheel},
)
