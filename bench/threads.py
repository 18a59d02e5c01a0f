"""Parallel efficiency of training steps: one thread and several, side by side in one run.

    python3 bench/threads.py [--threads 2] [--rounds 5] [MODEL...]

Each number of threads is a process of its own that keeps its model and runs a step when told to. They take turns, so that both
share whatever else the machine does. A turn is one step that does not count, because a thread that has slept takes a while to have a
core of its own, and then steps for half a second at least. Efficiency is the time with one thread over the time with all, divided by their number; 100 %
would be a step without any serial part on cores that do not slow each other down. The losses must be equal to the last bit.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/pytorch"))

from compare import Engine  # noqa: E402

# Seconds.
TURN = 0.5
# name -> model and options, Adam in f32.
CASES = {
    "mlp": ["mlp", "batch=256"],
    "resnet18": ["resnet18", "batch=8"],
    "resnet50": ["resnet50", "batch=8"],
    "unet": ["unet", "batch=4"],
    "transformer": ["transformer", "batch=8"],
    "bert": ["bert", "batch=8"],
    "gpt": ["gpt", "batch=1", "seq=512"],
}


def start(binary: Path, case: list[str], n_threads: int) -> Engine:
    model, *options = case
    return Engine(f"{model} with {n_threads} threads", [binary, model, "--threads", str(n_threads), *options], {})


def turn(engine: Engine) -> None:
    engine.step(is_timed=False)
    first = len(engine.seconds)
    while sum(engine.seconds[first:]) < TURN:
        engine.step(is_timed=True)


def spread(seconds: list[float]) -> float:
    """Half the distance of the quartiles, as a share of the median."""
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / 2 / statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"some of {', '.join(CASES)}; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in CASES]:
        parser.error(f"no model {', '.join(unknown)}; known are {', '.join(CASES)}")
    if arguments.threads < 2 or arguments.rounds < 2:
        parser.error("at least two threads and two rounds are compared")
    build = ["cargo", "build", "--release", "--quiet", "-p", "remat", "--example", "steps"]
    subprocess.run(build, cwd=ROOT, check=True)
    binary = ROOT / "target/release/examples/steps"
    n = arguments.threads
    print(f"| model | instruction set | 1 thread | spread | {n} threads | spread | efficiency |\n|---|---|---|---|---|---|---|")
    for name in arguments.models or CASES:
        engines = [start(binary, CASES[name], threads) for threads in (1, n)]
        for _ in range(arguments.rounds):
            for engine in engines:
                turn(engine)
        for engine in engines:
            engine.end()
        one, several = engines
        if any(a != b for a, b in zip(one.losses, several.losses)):
            sys.exit(f"{name}: the losses differ: {one.losses} and {several.losses}")
        timed = [engine.seconds for engine in engines]
        medians = [statistics.median(seconds) for seconds in timed]
        times = " | ".join(f"{median:.3f} s | ± {100 * spread(seconds):.0f} %" for median, seconds in zip(medians, timed))
        efficiency = medians[0] / medians[1] / n
        print(f"| {' '.join(CASES[name])} | {one.instruction_set} | {times} | {100 * efficiency:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
