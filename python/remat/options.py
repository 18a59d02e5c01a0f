"""The options of the backend: what `torch.compile(..., options={...})` and `remat.compile(...)` accept."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ._remat import PLANNERS
from .budget import Size, in_bytes, is_percentage
from .rates import out_and_in

Compiler = Literal["eager", "inductor"]
Costs = Literal["analytic", "measured"]
# Reserve what the optimizers of the model's parameters need.
AUTO = "auto"
# Offload to memory of the machine that does not count.
HOST = "host"
BUDGET_VARIABLE = "REMAT_BUDGET"


@dataclass(frozen=True)
class Options:
    """How to plan and run.

    `budget`: bytes, `"8GiB"`, or `"50%"` of the peak without recomputation; `None` is what the environment variable
    `REMAT_BUDGET` says, and without it recomputes nothing.
    `reserved`: bytes or a size that something else holds during the step, such as the optimizer's state; `"auto"` finds the
    optimizers of the model's parameters, which is the default where the budget comes from the environment.
    `accumulates`: gradients of earlier backwards stay, as with gradient accumulation or `zero_grad(set_to_none=False)`.
    `releases_gradients`: hooks that run after a gradient was accumulated consume it (an optimizer in backward), so they are called
    as soon as it is made. `None` does so where every parameter has such a hook, and looks at what the hooks leave.
    `compiler`: `eager` runs op by op; `inductor` fuses, and plans are sought until the code that it writes fits the budget.
    `offload`: where values may rest while nobody needs them, besides being recomputed: `"host"` (memory outside of the budget) or
    a folder, in which a file without a name is made. `offload_speed`: `"1.5GB/s"`, or `"1GB/s,2GB/s"` for out and in; measured otherwise.
    `offload_optimizer`: the state of the optimizer rests there between its steps.
    `cost`: where the seconds per operation come from.
    `verify`: compare every recomputed tensor with its first value.
    `planner`, `effort`, `time_limit`: as on the command line.
    `cache_dir`: where plans are kept between processes.
    `strict`: raise where a step does not keep the budget for a reason outside of the plan, instead of warning once.
    `timeout`: seconds that ranks wait for each other while planning.
    """

    budget: Size | None = None
    reserved: Size = 0
    accumulates: bool = False
    releases_gradients: bool | None = None
    compiler: Compiler = "eager"
    offload: str | os.PathLike[str] | None = None
    offload_speed: str | None = None
    offload_optimizer: bool = False
    cost: Costs = "analytic"
    verify: bool = False
    planner: str = "best"
    effort: float | None = None
    time_limit: float | None = None
    cache_dir: str | None = None
    strict: bool = False
    timeout: float = 300.0

    @staticmethod
    def parse(options: Mapping[str, Any] | None) -> Options:
        """Reads a dictionary. Every mistake is told here and not while the first step is compiled."""
        given = dict(options or {})
        if given.get("budget") is None and os.environ.get(BUDGET_VARIABLE):
            given = {"reserved": AUTO, **given, "budget": os.environ[BUDGET_VARIABLE]}
        known = [option.name for option in fields(Options)]
        for name in given:
            if name == "mode":
                raise ValueError("the backend remat has no mode; compiler='inductor' is the option that makes steps faster")
            if name not in known:
                raise ValueError(f"unknown option {name} of the backend remat{_meant(name, known)}; the options are {', '.join(known)}")
        parsed = Options(**given)
        parsed._check_choices()
        parsed._check_sizes()
        parsed._check_numbers()
        parsed._check_offload()
        return parsed

    def _check_choices(self) -> None:
        choices = {"compiler": get_args(Compiler), "cost": get_args(Costs), "planner": PLANNERS}
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"the option {name} is {value!r}{_meant(value, allowed)}; it can be {' or '.join(allowed)}")
        for name in ("accumulates", "releases_gradients", "verify", "offload_optimizer"):
            is_open = name == "releases_gradients" and self.releases_gradients is None
            if not is_open and not isinstance(getattr(self, name), bool):
                raise ValueError(f"the option {name} is {getattr(self, name)!r}; it can be True or False")
        if self.verify and self.compiler == "inductor":
            raise ValueError("verify=True needs compiler='eager': what Inductor fuses has no first value to compare with")
        if self.cache_dir is not None and not isinstance(self.cache_dir, (str, os.PathLike)):
            raise ValueError(f"the option cache_dir is {self.cache_dir!r}; it is a path")

    def _check_sizes(self) -> None:
        if isinstance(self.budget, bool) or not isinstance(self.budget, (int, float, str, type(None))):
            raise ValueError(f"the budget is {self.budget!r}; write bytes as a number, '8GiB' or '50%'")
        is_size = isinstance(self.reserved, (int, float, str)) and not isinstance(self.reserved, bool)
        if not is_size or is_percentage(self.reserved):
            raise ValueError(
                f"the reserved memory is {self.reserved!r}; write bytes, '2GiB' or 'auto' (a percentage has no base)"
            )
        for size in (self.budget, self.reserved):
            in_bytes(0 if size is None or size == AUTO else size, 0)

    def _check_numbers(self) -> None:
        for name in ("effort", "time_limit", "timeout"):
            value = getattr(self, name)
            if value is None and name != "timeout":
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or math.isnan(value) or value < 0:
                raise ValueError(f"the option {name} is {value!r}; it is a number that is not negative")

    def _check_offload(self) -> None:
        if self.offload is None:
            for name in ("offload_speed", "offload_optimizer"):
                if getattr(self, name):
                    raise ValueError(f"the option {name} needs offload='host' or offload='/a/folder'")
            return
        if not isinstance(self.offload, (str, os.PathLike)):
            raise ValueError(f"the option offload is {self.offload!r}; it can be 'host' or a folder")
        folder = os.path.expanduser(self.offload)
        if self.offload != HOST and not os.path.isdir(folder):
            what = "is not a folder" if os.path.exists(folder) else "does not exist"
            raise ValueError(f"the option offload is {os.fspath(self.offload)!r}, which {what}; it can be 'host' or a folder that can be written")
        if self.offload != HOST and not os.access(folder, os.W_OK | os.X_OK):
            raise ValueError(f"the option offload is {os.fspath(self.offload)!r}, where nothing can be written; give a folder that can be written")
        if self.offload_speed is not None:
            out_and_in(self.offload_speed)
        if self.compiler == "inductor" or self.releases_gradients:
            other = "compiler='inductor'" if self.compiler == "inductor" else "releases_gradients=True"
            raise ValueError(f"offload does not work together with {other}; leave one of them out")


def _meant(word: object, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(word), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
