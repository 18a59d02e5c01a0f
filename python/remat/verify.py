"""Digests of tensors, to prove that a recomputed tensor has the bits of its first value.

Used with `verify=True`. The schedule writes a `digest` after the first run of every operation that runs again, saves it like
any other tensor, and writes a `compare` after each later run; so it works with several steps in flight.
"""

from __future__ import annotations

import torch

from .errors import RecomputeMismatch

# Chunks bound the temporary memory of a digest; it is not part of the planned peak.
CHUNK = 1 << 16
MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """A number that changes with any bit and any two different elements that trade places."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for chunk in raw.split(CHUNK):
        place = torch.arange(1, chunk.numel() + 1, device=tensor.device).mul_(MULTIPLIER)
        mixed = chunk.to(torch.int64).add_(1).mul_(place)
        total.mul_(31).add_(mixed.bitwise_xor_(mixed.bitwise_right_shift(29)).sum())
    return total


def compare(tensor: torch.Tensor, expected: torch.Tensor, op: str, source: str | None) -> None:
    """Raises where a tensor is not what its digest was taken from."""
    if not torch.equal(digest(tensor), expected):
        where = f", from {source}" if source else ""
        raise RecomputeMismatch(
            f"recomputing {op}{where} gave other bits than its first run: the operation is not a function of its"
            " inputs (an unseeded random number, an atomic sum, or memory that something else changed). Atomic sums, as in the"
            " gradient of indexing, repeat with torch.use_deterministic_algorithms(True), or with one thread on the CPU",
            op=op,
            source=source,
        )
