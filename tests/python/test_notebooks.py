# The notebooks of docs/notebooks run from the first cell to the last.
# SPDX-License-Identifier: MIT
import os
from pathlib import Path

import pytest
import tessera

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, tmp_path, monkeypatch):
    book = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in book.cells)
    if "TESSERA_BINARY" in source and not os.environ.get("TESSERA_BINARY"):
        pytest.skip("TESSERA_BINARY does not name the program tessera")
    for name in ("torch", "transformers", "matplotlib"):
        if f"import {name}" in source or f"from {name}" in source:
            pytest.importorskip(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("TESSERA_LIBRARY", os.path.abspath(tessera.library_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=resources).execute()
