"""Sizes that people write, in bytes.

The grammar is the planner's, so it is the same as on the command line, and two forms more: `8G` is 8 GiB, as for Slurm, Docker and
Java, and `8e9`, as a number or as text, is that many bytes.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from ._remat import budget_bytes, format_bytes

__all__ = ["Size", "format_bytes", "in_bytes", "is_percentage"]

Size = int | float | str
SHORT_UNIT = re.compile(r"\s*\d+(\.\d+)?\s*[KMGTkmgt]\s*")
EXPONENT = re.compile(r"\s*\d+(\.\d+)?[eE]\+?\d+\s*")


def is_percentage(size: Size | None) -> TypeGuard[str]:
    """Whether a size is a share of the peak without recomputation."""
    return isinstance(size, str) and size.strip().endswith("%")


def in_bytes(size: Size, keep_all_peak: int) -> int:
    """Bytes of a number, of `"8GiB"`, or of `"50%"` of the peak without recomputation."""
    if isinstance(size, str):
        if SHORT_UNIT.fullmatch(size):
            return budget_bytes(f"{size.strip()}iB", keep_all_peak)
        if not EXPONENT.fullmatch(size):
            return budget_bytes(size, keep_all_peak)
        size = float(size)
    if isinstance(size, float):
        if not size.is_integer():
            raise ValueError(f"a size of {size} bytes is not a whole number; write {round(size)} or a size such as '8GiB'")
        size = int(size)
    if size < 0:
        raise ValueError(f"a size of {size} bytes is negative")
    return size
