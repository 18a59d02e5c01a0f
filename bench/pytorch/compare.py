"""Training steps of our engine and of PyTorch, side by side in one run.

    python3 bench/pytorch/compare.py                     all cases, then writes bench/RESULTS.md
    python3 bench/pytorch/compare.py resnet152-8         one case; writes nothing
    python3 bench/pytorch/compare.py --quick             a small model, to see that everything works; writes nothing
    python3 bench/pytorch/compare.py --avx2              all engines held to AVX2

Each engine is a process of its own that keeps its model and runs a step when told to; steps are triggered alternately, so
that all engines are warm and share whatever else the machine does. All start from the same weights and see the same batches, a
new one in every step: our engine runs first and writes them for the others. The losses must agree, or the comparison stops; where
a model has dropout, whose masks differ, two steps without it are compared first. PyTorch runs eagerly, in both memory layouts where
images are involved, and compiled with Inductor. Compared are whole steps (forward, loss, backward, Adam) after a warm-up: median, spread (half the distance
of the quartiles), and the ratio to the best of PyTorch's engines. Memory: our arena against PyTorch's live storages, and the
highest resident size of both processes. `REMAT_TORCH_PYTHON` names a Python that has PyTorch, torchvision and safetensors. Where keeping everything needs more than the limits that we set ourselves, our
engine runs a second time within a budget that meets them. The virtual environment under target/ is made when it is missing.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "target/venv-torch"
RESULTS = ROOT / "bench/RESULTS.md"
BEGIN, END = "<!-- begin: steps against PyTorch -->", "<!-- end: steps against PyTorch -->"

# name -> (model, options, whether it has images). All with Adam in f32.
CASES = {
    "resnet50-8": ("resnet50", ["batch=8"], True),
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

    def __init__(self, name: str, command: list[str], environment: dict[str, str]):
        self.name = name
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ | environment)
        about = self.read()
        self.version, self.instruction_set = about["version"], about["instruction_set"]
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, word: str) -> dict:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()

    def step(self, is_timed: bool) -> None:
        answer = self.ask("step")
        self.losses.append(answer["loss"])
        if is_timed:
            self.seconds.append(answer["seconds"])

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def finish(self) -> dict:
        """The measurements, with the memory that only the end of the run knows."""
        resident = self.ask("resident")["bytes"]
        live = self.ask("live")["bytes"]
        self.end()
        quartiles = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return {
            "name": self.name,
            "median": statistics.median(self.seconds),
            "spread": (quartiles[2] - quartiles[0]) / 2,
            "live": live,
            "resident": resident,
            "first": self.losses[0],
            "last": self.losses[-1],
            "instruction_set": self.instruction_set,
        }


def prepare() -> None:
    """The virtual environment and the release build of our engine."""
    python = VENV / "bin/python"
    if "REMAT_TORCH_PYTHON" not in os.environ and not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        requirements = ROOT / "bench/pytorch/requirements.txt"
        subprocess.run([VENV / "bin/pip", "install", "-r", requirements], check=True)
    build = ["cargo", "build", "--release", "-p", "remat", "--example", "steps"]
    subprocess.run(build, cwd=ROOT, check=True)


# What holds PyTorch and oneDNN to AVX2, and our engine.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "REMAT_ISA": "avx2"}
# Relative distance of the losses of two engines, for the first step, the second and later ones. An update of Adam turns the
# rounding of gradients near zero into whole steps, so later losses drift apart in any two programs.
TOLERANCE = [1e-4, 3e-2, 0.2]
# The same where masks of dropout differ.
WITH_DROPOUT = [5e-2, 0.1, 0.3]
# Models whose defaults have dropout.
DROPOUT = {"transformer"}


def engines(name: str, case: tuple[str, list[str], bool], args, folder: str, only_check: bool) -> list[Engine]:
    """Our engine first: it writes what the others read."""
    model, options, has_images = case
    if only_check:
        options = [*options, "dropout=0"]
    environment = AVX2 if args.avx2 else {}
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    # Inductor takes code from its cache that was made for the other width of vectors: it ends with a signal or gives wrong losses.
    environment = environment | {"TORCHINDUCTOR_CACHE_DIR": str(target / ("inductor-avx2" if args.avx2 else "inductor"))}
    ours = [str(target / "release/examples/steps"), model, "--threads", str(args.threads), *options]
    python = os.environ.get("REMAT_TORCH_PYTHON", str(VENV / "bin/python"))
    torch = [python, str(ROOT / "bench/pytorch/steps.py"), model, f"--threads={args.threads}", "--shared", folder, *options]
    commands = [("remat", [*ours, "--share", folder])]
    if only_check:
        commands.append(("PyTorch", torch))
        return [Engine(*command, environment) for command in commands]
    if name in BUDGETS and args.budgets:
        budget = BUDGETS[name]
        commands.append((f"remat within {budget:,} MiB", [*ours, "--budget", str(budget << 20)]))
    if args.unfused:
        commands.append(("remat, not fused", [*ours, "--no-fusion"]))
    layouts = [("NCHW", []), ("channels-last", ["--channels-last"])] if has_images else [("eager", [])]
    commands += [(f"PyTorch, {layout}", [*torch, *flags]) for layout, flags in layouts]
    if args.inductor:
        commands.append(("PyTorch, Inductor", [*torch, *layouts[-1][1], "--inductor"]))
    return [Engine(*command, environment) for command in commands]


def agree(name: str, running: list[Engine], tolerances: list[float]) -> None:
    """Stops if the last losses of the engines are not the same but for rounding."""
    ours = running[0].losses[-1]
    tolerance = tolerances[min(len(running[0].losses), len(tolerances)) - 1]
    for engine in running[1:]:
        loss = engine.losses[-1]
        if not abs(loss - ours) <= tolerance * abs(ours):
            sys.exit(
                f"{name}: in step {len(engine.losses)} the loss of {engine.name} is {loss}, that of remat {ours}: "
                "they do not train the same model"
            )


def run(name: str, case, args) -> tuple[str, list[dict]]:
    has_dropout = case[0] in DROPOUT
    if has_dropout:
        with tempfile.TemporaryDirectory() as folder:
            checked = engines(name, case, args, folder, only_check=True)
            for _ in range(2):
                for engine in checked:
                    engine.step(is_timed=False)
                agree(name, checked, TOLERANCE)
            for engine in checked:
                engine.end()
            losses = ", ".join(f"{loss:.6f}" for engine in checked for loss in engine.losses)
            print(f"{name}: losses of two steps without dropout agree: {losses}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        running = engines(name, case, args, folder, only_check=False)
        about = (f"{engine.name} {engine.version} ({engine.instruction_set})" for engine in running)
        print(f"{name}: " + ", ".join(about), flush=True)
        for number in range(args.warm_up + args.steps):
            for engine in running:
                engine.step(is_timed=number >= args.warm_up)
            agree(name, running, WITH_DROPOUT if has_dropout else TOLERANCE)
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
        "| engine | instruction set | step | spread | ratio | arena or live storages | ratio | resident peak | ratio | first loss | last loss |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['name']} | {row['instruction_set']} | {row['median']:.3f} s | ± {row['spread']:.3f} | {row['median'] / best:.2f} "
            f"| {mebibytes(row['live'])} | {row['live'] / live:.2f} "
            f"| {mebibytes(row['resident'])} | {row['resident'] / resident:.2f} "
            f"| {row['first']:.6f} | {row['last']:.6f} |"
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
    parser.add_argument("--avx2", action="store_true", help="hold all engines to AVX2")
    parser.add_argument("--no-inductor", dest="inductor", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-budgets", dest="budgets", action="store_false", help="leave our runs within a budget out")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave bench/RESULTS.md as it is, also after all cases")
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
    # Some cases would replace the table of all of them.
    if args.quick or not args.write or args.cases:
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
