"""Lists the source files of the tree: tracked by git or untracked and not ignored.

As a program it prints the files with the given suffixes: tools/source_files.py .h .cpp
"""
# SPDX-License-Identifier: MIT

import os
import subprocess
import sys
from pathlib import Path

CPP_SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
SKIPPED_FOLDERS = {".git", "build", ".cache", "__pycache__"}

REPOSITORY = Path(__file__).resolve().parent.parent


def _from_git(root):
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [root / name for name in os.fsdecode(done.stdout).split("\0") if name]


def _from_folders(root):
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        found += [Path(folder) / name for name in names]
    return found


def source_files(root=REPOSITORY, suffixes=None):
    """Sorted paths relative to `root`. Without git (in an archive), all folders are walked."""
    root = Path(root)
    paths = _from_git(root) if (root / ".git").exists() else None
    if paths is None:
        paths = _from_folders(root)
    relative = [path.relative_to(root) for path in paths if path.is_file()]
    return sorted(path for path in relative if suffixes is None or path.suffix in suffixes)


def report(name, problems, num_files):
    """Prints the problems of one checker, or that there are none; returns the exit status."""
    for problem in problems:
        print(f"{name}: {problem}", file=sys.stderr)
    if problems:
        print(f"{name}: {len(problems)} problem(s) in {num_files} files", file=sys.stderr)
        return 1
    print(f"{name}: {num_files} files are in order")
    return 0


if __name__ == "__main__":
    for source in source_files(suffixes=tuple(sys.argv[1:]) or None):
        print(source)
