"""The scripts of docs/trainers.md run as they stand, within their budgets."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest
import remat

PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text()
# The title of the section and the script in it.
SCRIPTS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
# Dynamo cuts the model at the loss of this trainer, and the page says so.
CUT = "TRL"


def test_every_trainer_has_a_script() -> None:
    assert len(SCRIPTS) == PAGE.count("```python") == 7


@pytest.mark.parametrize("title", SCRIPTS)
def test_a_script_runs_within_its_budget(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMAT_BUDGET", "80%")
    script = tmp_path / "train.py"
    script.write_text(SCRIPTS[title])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runpy.run_path(str(script), run_name="__main__")
    messages = [str(w.message) for w in caught if issubclass(w.category, remat.BudgetWarning)]
    assert [message for message in messages if not (title == CUT and "cut the model" in message)] == []
    reports = remat.regions()
    assert reports and any(report.n_recomputed for report in reports)
    assert all(report.budget is not None and report.predicted_peak <= report.budget for report in reports)
