"""The promises on many models: same bits, budget held, predicted peak measured, a clear error below the floor.

    python bench/torch_sweep.py [--models vgg11,t5] [--groups vision,text,forms] [--out sweep.md]

The models come from python/tests. Each is trained for two steps without a budget and then at the floor, at a quarter, half and
three quarters of the range and at its top, through `remat.compile`, as users go. A line per model tells what was
found; models that the file of `--out` already names are left out, so that a sweep can resume where it stopped. Exit code 1 when
a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "tests"))

from promises import Broken, examine
from zoo import MODELS
from zoo_forms import FORMS
from zoo_text import TEXT
from zoo_vision import VISION

GROUPS: dict[str, dict[str, Any]] = {"tests": MODELS, "vision": VISION, "text": TEXT, "forms": FORMS}
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
HEAD = "| model | operations | floor MiB | keep all MiB | steps at the floor | largest error of the peak | graph breaks | result |"


def line(name: str, effort: float) -> tuple[str, bool]:
    begin = time.perf_counter()
    make = next(group[name] for group in GROUPS.values() if name in group)
    try:
        found = examine(make, FRACTIONS, n_steps=2, effort=effort)
    except Broken as broken:
        return f"| {name} | | | | | | | BROKEN: {broken} |", False
    except Exception as error:  # noqa: BLE001 (the sweep continues, the line tells)
        traceback.print_exc()
        return f"| {name} | | | | | | | {type(error).__name__}: {' '.join(str(error).split())[:200]} |", False
    return (
        f"| {name} | {found.n_ops} | {found.floor / 2**20:.2f} | {found.keep_all / 2**20:.2f}"
        f" | +{100 * found.overhead:.0f} % | {100 * found.peak_error:.2f} % | {found.n_regions - 1}"
        f" | holds ({time.perf_counter() - begin:.0f} s) |"
    ), True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--effort", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model after this time")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = [name for group in arguments.groups.split(",") for name in GROUPS[group]]
    if arguments.models:
        names = arguments.models.split(",")
    lines = arguments.out.read_text().splitlines() if arguments.out and arguments.out.exists() else [HEAD, "|---" * 8 + "|"]
    done = {text.split("|")[1].strip() for text in lines if text.startswith("| ")}
    begin, all_hold = time.perf_counter(), True
    for name in names:
        if name in done or time.perf_counter() - begin > arguments.seconds:
            continue
        text, holds = line(name, arguments.effort)
        all_hold &= holds
        print(text, flush=True)
        lines.append(text)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
