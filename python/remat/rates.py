"""Speeds that people write, in bytes per second."""

from __future__ import annotations

import re

UNITS = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
RATE = re.compile(r"\s*(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT])(?P<binary>i?)B/s\s*", re.IGNORECASE)


def rate(text: str) -> float:
    """Bytes per second of a text such as `1.5GB/s`."""
    found = RATE.fullmatch(text)
    if found is None or float(found["number"]) == 0:
        raise ValueError(f"the speed {text!r} is not one; write it as '1.5GB/s'")
    unit = found["unit"].upper()
    return float(found["number"]) * (1024.0 ** ("KMGT".index(unit) + 1) if found["binary"] else UNITS[unit])


def out_and_in(text: object) -> tuple[float, float]:
    """Bytes per second to a store and from it, of `1.5GB/s` or `1GB/s,2GB/s`."""
    if not isinstance(text, str):
        raise ValueError(f"the speed {text!r} is not one; write it as '1.5GB/s', or '1GB/s,2GB/s' for out and in")
    out, _, back = text.partition(",")
    return rate(out), rate(back or out)
