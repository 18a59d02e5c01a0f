"""The promises on many models: budget held or said, nothing refused that fits in eager mode, the bits of eager training.

    python bench/torch_sweep.py [--models vgg11,t5] [--groups vision,timm] [--seconds 3600] [--out sweep.jsonl]
    python bench/torch_sweep.py --table sweep.jsonl

The models are those of python/tests: some from torchvision, timm and transformers, some of our own. Each runs in a process of
its own, with its loss inside and outside of the compiled module, at three budgets: the peak of eager training, near the floor, and
midway (python/tests/sweep_cells.py). Every cell is a line of the file of `--out`; models that the file already has are left out, so
that a sweep resumes where it stopped. Exit code 1 when a promise was broken, 2 for bad input, 0 otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import sys
import time
import traceback
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


def in_turns(lists: list[list[str]]) -> list[str]:
    """One name of each list after another, so that a sweep that is stopped early has seen models of every group."""
    return [name for row in itertools.zip_longest(*lists) for name in row if name is not None]


def examine(name: str, answer: Any) -> None:
    """Runs one model and sends its cells."""
    import torch
    from sweep_cells import INSIDE, LOSSES, OUTSIDE, cells

    torch.set_num_threads(1)
    try:
        makers = {name: make for group in groups().values() for name, make in group.items()}
        make = makers[name]
        # A loss of another kind for every model.
        loss = list(LOSSES)[list(makers).index(name) % len(LOSSES)]
        for place in (INSIDE, OUTSIDE) if hasattr(make()[0], "scores") else (INSIDE,):
            for cell in cells(make, place, loss):
                answer.send({"model": name, **asdict(cell), "is_broken": cell.is_broken})
    except Exception:  # noqa: BLE001 (the sweep continues, the line tells)
        answer.send(_failure(name, traceback.format_exc()[-1500:]))


def _failure(name: str, text: str) -> dict[str, Any]:
    return {"model": name, "place": "", "share": "", "verdict": "FAILED", "is_broken": True, "messages": [text]}


def run(name: str) -> list[dict[str, Any]]:
    """The cells of one model, from a process of its own; a line about the failure where it dies."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=examine, args=(name, sender))
    process.start()
    sender.close()
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + TIMEOUT
    try:
        while receiver.poll(max(deadline - time.monotonic(), 0)):
            found.append(receiver.recv())
        process.kill()
        found.append(_failure(name, f"took more than {TIMEOUT} s"))
    except EOFError:
        # The process has ended.
        process.join()
        if process.exitcode:
            found.append(_failure(name, f"ended with exit code {process.exitcode}"))
    return found


def preload() -> None:
    """Imports once what every process needs. Nothing is run, because autograd does not survive a fork."""
    for module in ("torch._dynamo", "torch._functorch.aot_autograd", "torchvision", "timm", "transformers", "remat.api"):
        importlib.import_module(module)


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
    arguments = parser.parse_args()
    path = arguments.table or arguments.out
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    if not arguments.table:
        wanted = arguments.groups.split(",") if arguments.groups else list(groups())
        if unknown := [group for group in wanted if group not in groups()]:
            parser.error(f"no group {', '.join(unknown)}; known are {', '.join(groups())}")
        names = arguments.models.split(",") if arguments.models else in_turns([list(groups()[group]) for group in wanted])
        known = {name for group in groups().values() for name in group}
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no model {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        preload()
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
