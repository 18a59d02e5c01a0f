"""Plans on disk, so that the next process need not plan again.

A file is named by the hash of the graph, the speed of its stores, the budget and the version of the package. Costs are not part of the name: measured
ones differ from run to run, and any valid plan keeps the promises. A plan that is read is checked like a new one; a file
that is broken or does not fit is planned anew and overwritten. Writing replaces the file in one step, so processes can share
a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path

from ._remat import __version__
from .problem import Step


def reprice(plan_text: str, step: Step) -> str:
    """The same steps with the costs of this step; a bound for other costs is no bound."""
    named = {**json.loads(plan_text), "problem": json.loads(step.text)["name"]}
    priced: str = json.loads(step.problem.price(json.dumps(named)))["plan"]
    return priced


class PlanCache:
    """A folder of plans."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).expanduser()

    def path(self, step: Step, budget: int) -> Path:
        """Where the plan for a budget is kept."""
        speeds = "" if step.stores is None else f"-{hashlib.sha256(repr(step.stores.speeds).encode()).hexdigest()[:8]}"
        return self.folder / f"{step.hash[:32]}{speeds}-{budget}-{__version__}.json"

    def read(self, step: Step, budget: int) -> str | None:
        """A valid plan for this step within the budget, if there is one."""
        path = self.path(step, budget)
        try:
            text = reprice(path.read_text(), step)
            faults = step.problem.check(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            faults = [str(error)]
        if faults or json.loads(text)["peak_bytes"] > budget:
            warnings.warn(f"the cached plan {path} is not used: {'; '.join(faults) or 'over the budget'}", stacklevel=2)
            return None
        return text

    def write(self, step: Step, budget: int, plan_text: str) -> None:
        """Stores a plan. A folder that cannot be written costs planning time only, so it is a warning."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".part")
            with os.fdopen(handle, "w") as file:
                file.write(plan_text)
            os.replace(temporary, self.path(step, budget))
        except OSError as error:
            warnings.warn(f"the plan is not cached: {error}", stacklevel=2)
