# The line that shows how far a call is.
# SPDX-License-Identifier: MIT
"""Progress, on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Optional


class Progress:
    """A line on a terminal that is rewritten a few times a second."""

    def __init__(self, is_wanted: Optional[bool]):
        self._is_shown = sys.stderr.isatty() if is_wanted is None else is_wanted
        self._next = 0.0

    def show(self, text: str) -> None:
        if self._is_shown and time.monotonic() >= self._next:
            print("\r\x1b[K" + text, end="", file=sys.stderr, flush=True)
            self._next = time.monotonic() + 0.2

    def end(self) -> None:
        if self._is_shown and self._next:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
