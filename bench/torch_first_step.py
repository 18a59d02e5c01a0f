"""The first step: what planning and capture add to a step of plain torch.compile, for GPT-2 with twelve layers.

    python bench/torch_first_step.py [--rounds 7] [--budget 97%] [--width 768] [--threads 1]

Every measurement is a fresh process: the model is built, and then the time runs from the call that compiles it to the end of the first
backward. The ways take turns, and which comes first changes from round to round. Printed are medians, the ratio to
`torch.compile(backend="aot_eager")` as the median of the ratios of each round, and how remat's own seconds are distributed. With one thread the ratio is
also that of processor time, from which other programs take less. Exit code 1 when the ratio is above 1.25.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT = 1.25
WAYS = ("aot_eager", "remat")
# The functions of remat that do its part of the work, and what that is.
PARTS = {"pipeline.read": "capture and costs", "planner.find": "plan", "schedule.build": "schedule", "codegen.boxed": "functions"}


def measure(way: str, budget: str, width: int, n_threads: int) -> dict[str, Any]:
    """Seconds of the first two steps, in this process."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=8192, n_positions=64, n_embd=width, n_layer=12, n_head=12, use_cache=False)
    model = GPT2LMHeadModel(config).train()
    # Without a name of its loss it logs a line, at which plain torch.compile would cut the model.
    model.loss_type = "ForCausalLM"
    ids = torch.randint(0, 8192, (4, 64))
    own: dict[str, float] = {}
    begin, processor = time.perf_counter(), time.process_time()
    if way == "remat":
        import remat

        _time_parts(own)
        compiled: Any = remat.compile(model, budget=budget)
    else:
        compiled = torch.compile(model, backend=way)
    seconds = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        compiled(input_ids=ids, labels=ids).loss.backward()
        seconds += [time.perf_counter() - begin, time.process_time() - processor]
        begin, processor = time.perf_counter(), time.process_time()
    return dict(zip(("first", "first_processor", "second", "second_processor"), seconds, strict=True)) | {"own": own}


def _time_parts(own: dict[str, float]) -> None:
    """Has the functions of `PARTS` add up their time, each without what the others of them take inside of it."""
    import importlib

    running: list[list[float]] = []

    def timed(function: Callable[..., Any], label: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            inner = [0.0]
            running.append(inner)
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - begin
                running.pop()
                own[label] = own.get(label, 0.0) + taken - inner[0]
                if running:
                    running[-1][0] += taken

        return run

    loaded = {name: importlib.import_module(f"remat.{name}") for name in ("backend", "sharing", "pipeline", "planner", "schedule", "codegen")}
    for path, label in PARTS.items():
        module, name = path.split(".")
        function = getattr(loaded[module], name)
        wrapped = timed(function, label)
        # Also where it was imported by name.
        for other in loaded.values():
            if getattr(other, name, None) is function:
                setattr(other, name, wrapped)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", default="97%")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    settings = ["--budget", arguments.budget, "--width", str(arguments.width), "--threads", str(arguments.threads)]
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.budget, arguments.width, arguments.threads)))
        return 0
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for round_ in range(arguments.rounds):
        for way in WAYS if round_ % 2 == 0 else reversed(WAYS):
            run = subprocess.run([sys.executable, __file__, "--measure", way, *settings], capture_output=True, text=True)
            if run.returncode:
                print(run.stderr, file=sys.stderr)
                return 2
            found[way].append(json.loads(run.stdout.splitlines()[-1]))
        print(f"round {round_ + 1}: " + ", ".join(f"{way} {found[way][-1]['first']:.2f} s" for way in WAYS), flush=True)
    for way in WAYS:
        first, second = (statistics.median(run[key] for run in found[way]) for key in ("first", "second"))
        print(f"{way:<10} first step {first:.2f} s, second step {second:.3f} s")
    pairs = list(zip(found["remat"], found["aot_eager"], strict=True))
    # With several threads processor time is no measure of what is waited for.
    for key in ("first", "first_processor") if arguments.threads == 1 else ("first",):
        ratios = sorted(ours[key] / theirs[key] for ours, theirs in pairs)
        ratio = statistics.median(ratios)
        name = "processor time" if key == "first_processor" else "time"
        print(f"{name}: ratio {ratio:.3f} (from {ratios[0]:.3f} to {ratios[-1]:.3f}), limit {LIMIT}")
    own = {label: statistics.median(run["own"].get(label, 0.0) for run in found["remat"]) for label in PARTS.values()}
    print("remat's own: " + ", ".join(f"{label} {seconds:.2f} s" for label, seconds in own.items()))
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
