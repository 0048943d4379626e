# Finds the package in the checkout, so that the tests run before it is installed.
# SPDX-License-Identifier: MIT
import sys
from pathlib import Path

_here = Path(__file__).resolve()
sys.path.insert(0, str(_here.parent))
sys.path.insert(0, str(_here.parents[2] / "python"))
