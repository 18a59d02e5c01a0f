"""Training steps of our engine and of PyTorch, side by side in one run.

    python3 bench/pytorch/compare.py                     all cases, then writes bench/RESULTS.md
    python3 bench/pytorch/compare.py resnet152-8         one case
    python3 bench/pytorch/compare.py --quick             a small model, to see that everything works; writes nothing

Each engine is a process of its own that keeps its model and runs a step when told to; steps are triggered alternately, so
that all engines are warm and share whatever else the machine does. PyTorch runs in both memory layouts where images are
involved. Compared are whole steps (forward, loss, backward, Adam) after a warm-up: median, spread (half the distance
of the quartiles), and the ratio to PyTorch's better layout. Memory: our arena against PyTorch's live storages, and the
highest resident size of both processes. Where keeping everything needs more than the limits that we set ourselves, our
engine runs a second time within a budget that meets them. The virtual environment under target/ is made when it is missing.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "target/venv-torch"
RESULTS = ROOT / "bench/RESULTS.md"
BEGIN, END = "<!-- begin: steps against PyTorch -->", "<!-- end: steps against PyTorch -->"

# name -> (model, options, whether it has images). All with Adam in f32.
CASES = {
    "resnet152-8": ("resnet152", ["batch=8"], True),
    "resnet152-16": ("resnet152", ["batch=16"], True),
    "transformer-16": ("transformer", ["batch=16"], False),
    "transformer-64": ("transformer", ["batch=64"], False),
    "gpt-1024": ("gpt", ["batch=1", "seq=1024"], False),
}
QUICK = {"resnet18-2": ("resnet18", ["batch=2", "image=64"], True)}
# MiB that leave the resident size of ResNet-152 at 0.7 of PyTorch's, and the live bytes of GPT at 0.7 of them.
BUDGETS = {"resnet152-16": 3_180, "gpt-1024": 2_790, "resnet18-2": 144}


class Engine:
    """A process that runs steps on demand."""

    def __init__(self, name: str, command: list[str]):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.read()["version"]
        self.seconds: list[float] = []

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, word: str) -> dict:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()

    def finish(self) -> dict:
        """The measurements, with the memory that only the end of the run knows."""
        resident = self.ask("resident")["bytes"]
        live = self.ask("live")["bytes"]
        self.process.stdin.close()
        self.process.wait()
        quartiles = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return {
            "name": self.name,
            "median": statistics.median(self.seconds),
            "spread": (quartiles[2] - quartiles[0]) / 2,
            "live": live,
            "resident": resident,
        }


def prepare() -> None:
    """The virtual environment and the release build of our engine."""
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        requirements = ROOT / "bench/pytorch/requirements.txt"
        subprocess.run([VENV / "bin/pip", "install", "-r", requirements], check=True)
    build = ["cargo", "build", "--release", "-p", "remat", "--example", "steps"]
    subprocess.run(build, cwd=ROOT, check=True)


def engines(name: str, case: tuple[str, list[str], bool], threads: int, with_unfused: bool) -> list[Engine]:
    model, options, has_images = case
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    ours = [str(target / "release/examples/steps"), model, "--threads", str(threads), *options]
    torch = [str(VENV / "bin/python"), str(ROOT / "bench/pytorch/steps.py"), model, f"--threads={threads}", *options]
    started = [Engine("remat", ours)]
    if name in BUDGETS:
        budget = BUDGETS[name]
        started.append(Engine(f"remat within {budget:,} MiB", [*ours, "--budget", str(budget << 20)]))
    if with_unfused:
        started.append(Engine("remat, not fused", [*ours, "--no-fusion"]))
    if has_images:
        started.append(Engine("PyTorch, NCHW", torch))
        started.append(Engine("PyTorch, channels-last", [*torch, "--channels-last"]))
    else:
        started.append(Engine("PyTorch", torch))
    return started


def run(name: str, case, args) -> tuple[str, list[dict]]:
    running = engines(name, case, args.threads, args.unfused)
    print(f"{name}: " + ", ".join(f"{engine.name} {engine.version}" for engine in running), flush=True)
    for number in range(args.warm_up + args.steps):
        for engine in running:
            seconds = engine.ask("step")["seconds"]
            if number >= args.warm_up:
                engine.seconds.append(seconds)
    return running[-1].version, [engine.finish() for engine in running]


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def table(name: str, case, rows: list[dict]) -> str:
    model, options, _ = case
    theirs = [row for row in rows if row["name"].startswith("PyTorch")]
    best = min(row["median"] for row in theirs)
    live, resident = (min(row[key] for row in theirs) for key in ("live", "resident"))
    lines = [
        f"### {model}, {', '.join(options)}",
        "",
        "| engine | step | spread | ratio | arena or live storages | ratio | resident peak | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['name']} | {row['median']:.3f} s | ± {row['spread']:.3f} | {row['median'] / best:.2f} "
            f"| {mebibytes(row['live'])} | {row['live'] / live:.2f} "
            f"| {mebibytes(row['resident'])} | {row['resident'] / resident:.2f} |"
        )
    return "\n".join(lines) + "\n"


def processor() -> str:
    """Name, widest vectors and cores: a ratio means little without them."""
    found = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in found.items()}
    flags = fields.get("flags", "").split()
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{fields.get('model name', platform.processor())}, {vectors}, {os.cpu_count()} cores"


def write_results(text: str) -> None:
    """Replaces our section of the results and leaves the others alone."""
    old = RESULTS.read_text() if RESULTS.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in old:
        old += f"\n{BEGIN}\n{END}\n"
    before, rest = old.split(BEGIN)
    RESULTS.write_text(f"{before}{BEGIN}\n{text}{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=9, help="steps that are timed")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--unfused", action="store_true", help="also run our engine without fusion")
    parser.add_argument("--quick", action="store_true", help="a small model; writes nothing")
    args = parser.parse_args()
    known = QUICK if args.quick else CASES
    unknown = set(args.cases) - set(known)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if args.steps < 2:
        parser.error("a spread needs at least two steps")
    prepare()
    sections = []
    for name in args.cases or known:
        version, rows = run(name, known[name], args)
        sections.append(table(name, known[name], rows))
        print(sections[-1], flush=True)
    if args.quick:
        return
    command = " ".join(["python3 bench/pytorch/compare.py", *sys.argv[1:]])
    heading = (
        f"## Training steps against PyTorch\n\n{date.today()}, {processor()}, {args.threads} threads, "
        f"PyTorch {version}, f32, Adam, {args.steps} steps after {args.warm_up}; `{command}`\n\n"
        "Ratios are to PyTorch's best in the same run; below 1 is less time or less memory.\n\n"
    )
    write_results(heading + "\n".join(sections))


if __name__ == "__main__":
    main()
