"""The command line of the package: `python -m remat fit` and `python -m remat doctor`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence

from .errors import RematError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the answer is no, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m remat", description="Training inside a memory budget")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="check the installation")
    fit = commands.add_parser("fit", help="will a training step fit on a device, and at what price?")
    fit.add_argument("source", help="config.json of Hugging Face, or package.module:function that returns a module and its arguments")
    fit.add_argument("--batch", type=_positive, default=1)
    fit.add_argument("--seq", type=_positive, default=1024, help="tokens of a sequence")
    fit.add_argument("--gpu", default="H100-80GB", help="a name, cpu, or numbers: 48GB,864GB/s,362TFLOPS")
    fit.add_argument("--optimizer", default="adamw")
    fit.add_argument("--dtype", default="bf16", help="fp32, bf16 or fp16")
    fit.add_argument("--largest", action="store_true", help="also look for the largest batch and length (four more traces)")
    fit.add_argument("--json", action="store_true")
    fit.add_argument("--plot", metavar="FILE", help="write memory against time as an image (needs matplotlib)")
    given = parser.parse_args(arguments)
    if given.command == "doctor":
        from .diagnosis import doctor

        text = doctor()
        print(text)
        return 0 if text.endswith("\nready") else 1
    return _fit(given)


def _fit(given: argparse.Namespace) -> int:
    from .devices import device
    from .fit import DTYPES, OPTIMIZERS, Question, answer
    from .fit_report import plot, table

    try:
        for name, known in (("dtype", DTYPES), ("optimizer", OPTIMIZERS)):
            if getattr(given, name) not in known:
                raise ValueError(f"--{name} {getattr(given, name)}: known are {', '.join(known)}")
        question = Question(given.source, given.batch, given.seq, device(given.gpu), given.optimizer, given.dtype)
        found = answer(question, with_largest=given.largest)
    except (ValueError, RematError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(found.to_json() if given.json else table(found))
    if given.plot:
        plot(found, given.plot)
    return 0 if found.floor <= question.device.usable else 1


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than zero")
    return number


if __name__ == "__main__":
    # A trace makes millions of objects that live until it ends; the garbage collector would spend a tenth of the time on them.
    gc.set_threshold(1_000_000)
    sys.exit(main())
