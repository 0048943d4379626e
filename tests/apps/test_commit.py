# The commit a record names: that of the binary, not of the folder it is run in.
# SPDX-License-Identifier: MIT
import os
import re
import shutil
import subprocess

import pytest

from conftest import REPOSITORY, call_json

BINARY = os.environ["TESSERA_BINARY"]
SOURCES = ("write_build_info.cmake", "archive_commit.txt")
GIT = shutil.which("git")
CMAKE = shutil.which("cmake")
COMMIT = re.compile(r"^0\.[0-9]+\.[0-9]+, commit (unknown|[0-9a-f]{12}(-dirty)?)\n$")


def git(folder, *arguments):
    done = subprocess.run([GIT, "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e",
                           *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_tree(folder):
    """A source tree with the files that find its commit."""
    core = folder / "src" / "core"
    core.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(REPOSITORY / "src" / "core" / name, core)
    shutil.copy(REPOSITORY / ".gitattributes", folder)
    return folder


def make_repository(folder, message="one"):
    make_tree(folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return folder


def commit_of(tree, out, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "TESSERA_COMMIT"}
    subprocess.run([CMAKE, f"-DSOURCE={tree}", f"-DOUT={out}", "-DVERSION=1.2.3", "-P",
                    str(tree / "src/core/write_build_info.cmake")],
                   check=True, env={**kept, **environment}, cwd="/", capture_output=True)
    text = out.read_text()
    assert 'kVersion = "1.2.3"' in text
    return re.search(r'kCommit = "(.*)"', text).group(1)


needs_tools = pytest.mark.skipif(not GIT or not CMAKE, reason="git or cmake is not here")


@needs_tools
def test_a_build_knows_its_commit_and_whether_files_were_changed(tmp_path):
    tree, out = make_repository(tmp_path / "tree"), tmp_path / "build_info.cpp"
    head = git(tree, "rev-parse", "--short=12", "HEAD")
    assert commit_of(tree, out) == head
    (tree / "untracked.txt").write_text("a record, or a note")
    assert commit_of(tree, out) == head
    (tree / ".gitattributes").write_text("# changed\n")
    assert commit_of(tree, out) == head + "-dirty"
    git(tree, "checkout", "-q", ".gitattributes")
    assert commit_of(tree, out) == head


@needs_tools
def test_a_build_that_changes_nothing_writes_nothing(tmp_path):
    tree, out = make_repository(tmp_path / "tree"), tmp_path / "build_info.cpp"
    commit_of(tree, out)
    os.utime(out, ns=(10**18, 10**18))
    commit_of(tree, out)
    assert out.stat().st_mtime_ns == 10**18
    git(tree, "commit", "-q", "--allow-empty", "-m", "two")
    commit_of(tree, out)
    assert out.stat().st_mtime_ns != 10**18


@needs_tools
def test_a_source_archive_knows_its_commit_also_inside_another_repository(tmp_path):
    tree, out = make_repository(tmp_path / "tree"), tmp_path / "build_info.cpp"
    other = make_repository(tmp_path / "other", "another")
    unpacked = other / "vendored"
    unpacked.mkdir()
    archive = subprocess.run([GIT, "-C", str(tree), "archive", "HEAD"], capture_output=True,
                             check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(unpacked)], input=archive, check=True)
    head = git(tree, "rev-parse", "HEAD")[:12]
    assert head != git(other, "rev-parse", "HEAD")[:12]
    assert commit_of(unpacked, out) == head


@needs_tools
def test_a_copy_without_git_is_told_or_says_unknown(tmp_path):
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "build_info.cpp"
    assert commit_of(tree, out) == "unknown"
    assert commit_of(tree, out, TESSERA_COMMIT="0123456789ab") == "0123456789ab"


def version_in(folder, **environment):
    return subprocess.run([BINARY, "--version"], cwd=folder, capture_output=True, text=True,
                          check=True, env={**os.environ, **environment}).stdout


def test_the_commit_is_the_binarys_own_wherever_it_is_run(tmp_path):
    version = version_in(REPOSITORY)
    assert COMMIT.match(version)
    assert version_in(tmp_path, TESSERA_COMMIT="0123abcd", PATH="") == version
    commit = version.split()[-1]
    assert call_json("doctor", "--json", TESSERA_COMMIT="0123abcd")["commit"] == commit
    record = call_json("bench", "e2e", "pp4", "--repeat", 1, "--json", "-",
                       TESSERA_COMMIT="0123abcd")
    assert record["commit"] == commit
    if GIT:
        other = make_repository(tmp_path / "other")
        assert version_in(other) == version
