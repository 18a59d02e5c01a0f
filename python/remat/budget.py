"""Sizes that people write, in bytes. The grammar is the planner's, so it is the same as on the command line."""

from __future__ import annotations

from ._remat import budget_bytes, format_bytes

__all__ = ["format_bytes", "in_bytes"]


def in_bytes(size: int | str, keep_all_peak: int) -> int:
    """Bytes of an int, of `"8GiB"`, or of `"50%"` of the peak without recomputation."""
    if isinstance(size, str):
        return budget_bytes(size, keep_all_peak)
    if size < 0:
        raise ValueError(f"a size of {size} bytes is negative")
    return size
