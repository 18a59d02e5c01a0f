"""The experiments: memory saved against time paid, on real training steps.

    python3 bench/results.py run                    every experiment, one case after the other; hours
    python3 bench/results.py run resnet152 --size 4 one case of one experiment
    python3 bench/results.py table                  writes the tables of what is there into bench/RESULTS.md

An experiment is a `remat sweep` into its own folder under docs/results/, so what was interrupted resumes where it
stopped. All programs of a case take turns on the same weights; the sweep itself checks that losses and parameters
are equal to the bit. The machine must do nothing else meanwhile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/results"
RESULTS = ROOT / "bench/RESULTS.md"
BEGIN, END = "<!-- begin: memory against time -->", "<!-- end: memory against time -->"
PLANNERS = "per-block,mu-two,best"


@dataclass(frozen=True)
class Experiment:
    """A model, the option that grows from case to case, and the programs of each case."""

    name: str
    model: str
    option: str
    sizes: tuple[int, ...]
    budgets: str
    planners: str = PLANNERS
    fixed: tuple[str, ...] = ()
    rounds: int = 2
    # What the documents that asked for this system report for the same model: size -> (memory, time) in percent.
    seeds: tuple[tuple[int, str], ...] = ()

    def command(self, sizes: list[int]) -> list[str]:
        grown = ",".join(map(str, sizes))
        return [
            "sweep", self.model, f"--{self.option}", grown, *self.fixed, "--planner", self.planners,
            "--budget", self.budgets, "--rounds", str(self.rounds), "--steps", "1", "--warm-up", "0",
        ]


# A scratch file on the disk of this checkout.
STORE = ("--store", "target")

RESNET_SEEDS = (
    (8, "−28 % at +17 %"),
    (16, "−38.2 % at +5.0 % (best other)"),
    (32, "−28…−35 % at +17…+1 %"),
    (64, "−35 % at +1 %; −49.9 % at +13.0 % (best other)"),
)
TRANSFORMER_SEEDS = ((64, "−10…−35 %, time not given"),)
DECODER_SEEDS = (
    (2048, "−16.7 % at +28 %"),
    (4096, "−40.8 % at +38 %"),
    (8192, "−62.2 % at +19 %"),
    (16384, "−73.5 % at +22 %"),
)

EXPERIMENTS = [
    Experiment("resnet152-targets", "resnet152", "batch", (32,), "50%,35%,25%", "best", rounds=3, seeds=RESNET_SEEDS),
    Experiment(
        "transformer-targets", "transformer", "batch", (64,), "60%,50%", "best", rounds=3, seeds=TRANSFORMER_SEEDS
    ),
    Experiment("resnet152-store", "resnet152", "batch", (32,), "50%,25%,15%", "best", fixed=STORE, rounds=3),
    Experiment("transformer-store", "transformer", "batch", (64,), "50%,25%", "best", fixed=STORE, rounds=3),
    Experiment("gpt-store", "gpt", "seq", (8192,), "25%", "best", fixed=("--batch", "1", *STORE), rounds=2),
    Experiment("resnet152", "resnet152", "batch", (4, 8, 16, 32, 64), "50%,30%", seeds=RESNET_SEEDS),
    Experiment(
        "transformer", "transformer", "batch", (2, 4, 8, 16, 32, 64), "50%,30%", seeds=TRANSFORMER_SEEDS
    ),
    Experiment("transformer-large", "transformer", "batch", (128, 256), "50%,30%", rounds=1),
    Experiment(
        "gpt", "gpt", "seq", (2048, 4096), "70%,50%", fixed=("--batch", "1"), rounds=1, seeds=DECODER_SEEDS
    ),
    Experiment(
        "gpt-long", "gpt", "seq", (8192, 16384), "40%", fixed=("--batch", "1"), rounds=1, seeds=DECODER_SEEDS
    ),
]


def run(experiment: Experiment, size: int | None) -> None:
    """Measures the cases up to `size` that are not in the folder yet; all without it."""
    wanted = [s for s in experiment.sizes if size is None or s <= size]
    command = [*binary(), *experiment.command(wanted), "--resume", "--out", str((FOLDER / experiment.name).relative_to(ROOT))]
    print("$ " + " ".join(command), flush=True)
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(code)


def binary() -> list[str]:
    """The program to measure: the one named by REMAT, or a release build."""
    if path := os.environ.get("REMAT"):
        return [path]
    return ["cargo", "run", "--release", "--quiet", "--"]


def table(experiment: Experiment) -> str:
    """The rows of an experiment as Markdown, with the seeds' ratios beside ours."""
    folder = FOLDER / experiment.name
    sweep = json.loads((folder / "sweep.json").read_text())
    environment = json.loads((folder / "environment.json").read_text())

    def size_of(row: dict) -> int:
        return int(re.search(rf"{experiment.option} (\d+)", row["case"])[1])

    sizes = list(dict.fromkeys(map(size_of, sweep["rows"])))
    command = " ".join(["remat", *experiment.command(sizes)])
    seeds = dict(experiment.seeds)
    lines = [
        f"### {experiment.name}",
        "",
        f"{environment['date'][:10]}; `{command}`; {sweep['n_rounds']} timed steps of each program, {sweep['optimizer']}, "
        f"{sweep['threads']} threads, {environment['processor']} ({environment.get('instruction_set', 'avx2')}). Files and plots: [docs/results/{experiment.name}](../docs/results/"
        f"{experiment.name}).",
        "",
        f"| {experiment.option} | program | peak | memory | step | time | planned | gap | seeds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        rows = [row for row in sweep["rows"] if size_of(row) == size]
        if different := [row["program"] for row in rows if row["bits_equal"] is False]:
            sys.exit(f"{experiment.name}, {size}, {different}: the bits differ")
        lines += [line(size, row, seeds.get(size, "")) for row in rows if not row["note"]]
        refused: dict[str, list[str]] = {}
        for row in rows:
            if row["note"]:
                refused.setdefault(reason(row["note"]), []).append(row["program"])
        lines += [f"| {size} | {', '.join(names)} | – | | {why} | | | | |" for why, names in refused.items()]
    return "\n".join(lines)


def line(size: int, row: dict, seed: str) -> str:
    """A program that ran."""
    step, is_planned = row["step_seconds"], row["budget_bytes"] is not None
    cells = [
        str(size),
        row["program"],
        f"{row['measured_peak_bytes'] / 2**20:,.0f} MiB",
        percent(row["peak_change_percent"]) if is_planned else "",
        f"{step['median']:.2f} s ± {step['spread']:.2f}",
        percent(row["overhead_percent"]) if is_planned else "",
        percent(row["planned_overhead_percent"]) if is_planned else "",
        f"{row['gap_percent']:.2f} %" if row["gap_percent"] is not None else "",
        "" if is_planned else seed,
    ]
    return "| " + " | ".join(cells) + " |"


def reason(note: str) -> str:
    """Why there is no plan, without the figures that differ from budget to budget."""
    if found := re.search(r"below (the floor of [^,]+),", note):
        return f"below {found[1]}"
    return "not reached by this planner" if "never got below" in note else note.splitlines()[0]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %".replace("-", "−")


def write_tables() -> None:
    done = [e for e in EXPERIMENTS if (FOLDER / e.name / "sweep.json").exists()]
    text = RESULTS.read_text()
    if BEGIN not in text:
        text += f"\n{BEGIN}\n{END}\n"
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    intro = (
        "## Memory against time\n\nWhole training steps (forward, backward, optimizer) with everything kept and within a "
        "budget, alternating; losses and parameters\nare equal to the bit in every row. *memory* and *time* are against keeping "
        "everything in the same run, *planned* is the\noverhead that the planner predicted, *gap* how far the plan can be "
        "from the cheapest one, *seeds* what the documents that\nasked for this system report for that size. Times of single runs differ by up to ten percent on this "
        "shared machine:\na large spread marks a row to distrust, and an overhead far from the planned one is mostly noise."
    )
    RESULTS.write_text(head + BEGIN + "\n" + "\n\n".join([intro, *map(table, done)]) + "\n" + END + tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("experiment", nargs="?", choices=[e.name for e in EXPERIMENTS])
    parser.add_argument("--size", type=int, help="the largest size to measure")
    flags = parser.parse_args()
    if flags.what == "table":
        write_tables()
        return
    for experiment in EXPERIMENTS:
        if flags.experiment in (None, experiment.name):
            run(experiment, flags.size)


if __name__ == "__main__":
    main()
