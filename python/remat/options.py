"""The options of the backend: what `torch.compile(..., options={...})` and `remat.compile(...)` accept."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from .budget import in_bytes

Compiler = Literal["eager", "inductor"]
Costs = Literal["analytic", "measured"]


@dataclass(frozen=True)
class Options:
    """How to plan and run.

    `budget`: bytes, `"8GiB"`, or `"50%"` of the peak without recomputation; `None` recomputes nothing.
    `reserved`: bytes or a size that something else holds during the step, such as the optimizer's state.
    `accumulates`: gradients of earlier backwards stay, as with gradient accumulation or `zero_grad(set_to_none=False)`.
    `compiler`: `eager` runs op by op and is exact; `inductor` fuses and allocates by itself.
    `cost`: where the seconds per operation come from.
    `verify`: compare every recomputed tensor with its first value.
    `planner`, `effort`, `time_limit`: as on the command line.
    `cache_dir`: where plans are kept between processes.
    `timeout`: seconds that ranks wait for each other while planning.
    """

    budget: int | str | None = None
    reserved: int | str = 0
    accumulates: bool = False
    compiler: Compiler = "eager"
    cost: Costs = "analytic"
    verify: bool = False
    planner: str = "best"
    effort: float | None = None
    time_limit: float | None = None
    cache_dir: str | None = None
    timeout: float = 300.0

    @staticmethod
    def parse(options: dict[str, Any] | None) -> Options:
        """Reads a dictionary; names that do not exist are an error with the names that do."""
        given = dict(options or {})
        known = [option.name for option in fields(Options)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"unknown option {', '.join(unknown)} of the backend remat; the options are {', '.join(known)}")
        parsed = Options(**given)
        for name, choices in (("compiler", get_args(Compiler)), ("cost", get_args(Costs))):
            if getattr(parsed, name) not in choices:
                raise ValueError(f"the option {name} is {getattr(parsed, name)!r}; it can be {' or '.join(choices)}")
        if isinstance(parsed.budget, bool) or not isinstance(parsed.budget, (int, str, type(None))):
            raise ValueError(f"the budget is {parsed.budget!r}; write bytes as an int, '8GiB' or '50%'")
        is_size = isinstance(parsed.reserved, (int, str)) and not isinstance(parsed.reserved, bool)
        if not is_size or str(parsed.reserved).strip().endswith("%"):
            raise ValueError(f"the reserved memory is {parsed.reserved!r}; write bytes or '2GiB' (a percentage has no base)")
        for size in (parsed.budget, parsed.reserved):
            # Mistakes are told now and not while the first step is compiled.
            in_bytes(0 if size is None else size, 0)
        return parsed
