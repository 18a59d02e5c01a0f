"""The promises on many models: budget held or said, nothing refused that fits in eager mode, the bits of eager training.

    python bench/torch_sweep.py [--models vgg11,t5] [--groups vision,timm] [--seconds 3600] [--out sweep.jsonl]
    python bench/torch_sweep.py --table sweep.jsonl

The models are those of python/tests: some from torchvision, timm and transformers, some of our own. Each runs in a process of
its own, with its loss inside and outside of the compiled module, at three budgets: the peak of eager training, near the floor, and
midway (python/tests/sweep_cells.py). Every cell is a line of the file of `--out`; models that the file already has are left out, so
that a sweep resumes where it stopped. Exit code 1 when a promise was broken, 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "python" / "tests"
sys.path.insert(0, str(TESTS))
TIMEOUT = 1800


def groups() -> dict[str, dict[str, Any]]:
    from zoo import MODELS
    from zoo_forms import FORMS
    from zoo_text import TEXT
    from zoo_timm import TIMM
    from zoo_vision import VISION

    return {"tests": MODELS, "text": TEXT, "vision": VISION, "timm": TIMM, "forms": FORMS}


def examine(name: str) -> None:
    """Runs one model and prints its cells as lines of JSON."""
    import torch
    from sweep_cells import INSIDE, LOSSES, OUTSIDE, cells

    torch.set_num_threads(1)
    makers = {name: make for group in groups().values() for name, make in group.items()}
    make = makers[name]
    # A loss of another kind for every model.
    loss = list(LOSSES)[list(makers).index(name) % len(LOSSES)]
    has_scores = hasattr(make()[0], "scores")
    for place in (INSIDE, OUTSIDE) if has_scores else (INSIDE,):
        for cell in cells(make, place, loss):
            print(json.dumps({"model": name, **asdict(cell), "is_broken": cell.is_broken}), flush=True)


def run(name: str) -> list[dict[str, Any]]:
    """The cells of one model, from a process of its own; a line about the failure where it dies."""
    command = [sys.executable, __file__, "--examine", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        output, failure = done.stdout, "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr[-1500:]}"
    except subprocess.TimeoutExpired as error:
        output, failure = (error.stdout or b"").decode(), f"took more than {TIMEOUT} s"
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if failure:
        found.append({"model": name, "place": "", "share": "", "verdict": "FAILED", "is_broken": True, "messages": [failure]})
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """One row per model, and a summary."""
    rows = ["| model | place of the loss | eager peak MiB | budgets MiB | parts | verdicts | bits |", "|---" * 7 + "|"]
    places = dict.fromkeys((line["model"], line["place"]) for line in lines)
    for model, place in places:
        own = [line for line in lines if (line["model"], line["place"]) == (model, place)]
        mib = lambda key: ", ".join(dict.fromkeys(f"{line.get(key, 0) / 2**20:.2f}" for line in own))  # noqa: E731
        loss = f" ({own[0]['loss']})" if own[0].get("loss") else ""
        verdicts = ", ".join(line["verdict"] for line in own)
        bits = ", ".join(dict.fromkeys(line.get("bits", "") for line in own if line.get("bits")))
        parts = max(line.get("n_parts", 0) for line in own)
        rows.append(f"| {model} | {place}{loss} | {mib('eager_peak')} | {mib('budget')} | {parts} | {verdicts} | {bits} |")
    verdicts = Counter(line["verdict"] for line in lines)
    broken = [line for line in lines if line["is_broken"]]
    summary = f"{len({model for model, _ in places})} models, {len(lines)} cells, {len(broken)} broken: "
    return "\n".join([*rows, "", summary + ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="only these, by name")
    parser.add_argument("--groups", help="only these: tests, text, vision, timm, forms")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model after this time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of an earlier sweep")
    parser.add_argument("--examine", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.examine:
        examine(arguments.examine)
        return 0
    path = arguments.table or arguments.out
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    if not arguments.table:
        wanted = arguments.groups.split(",") if arguments.groups else list(groups())
        names = arguments.models.split(",") if arguments.models else [name for group in wanted for name in groups()[group]]
        begin, done = time.perf_counter(), {line["model"] for line in lines}
        for name in names:
            if name in done or time.perf_counter() - begin > arguments.seconds:
                continue
            found = run(name)
            print(table(found).splitlines()[2], *(f"  {m}" for line in found if line["is_broken"] for m in line["messages"]), sep="\n", flush=True)
            lines += found
            if arguments.out:
                arguments.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(table(lines))
    return 1 if any(line["is_broken"] for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
