"""The answer of `fit` as a table for the terminal and as a plot."""

from __future__ import annotations

from .budget import format_bytes
from .fit import Answer


def table(answer: Answer) -> str:
    """The verdict, the figures, the prices and what they assume."""
    question = answer.question
    rows = [
        ("parameters", f"{answer.n_parameters / 1e9:.3g} billion, {format_bytes(answer.parameter_bytes)}"),
        ("optimizer", format_bytes(answer.optimizer_bytes)),
        ("without recomputation", format_bytes(answer.keep_all_peak)),
        ("floor", f"{format_bytes(answer.floor)} (no plan is below {format_bytes(answer.proven_floor)})"),
    ]
    for name, label in (("batch", "largest batch"), ("seq", "longest sequence")):
        if name in answer.largest:
            rows.append((label, f"about {answer.largest[name]}, at the floor"))
    width = max(len(label) for label, _ in rows)
    lines = [f"{question.source}, batch {question.batch}, {question.seq} tokens, {question.device.name}: {answer.verdict}"]
    lines += [f"  {label:<{width}}  {text}" for label, text in rows]
    lines += ["", f"  {'budget':>12}  {'peak':>12}  {'added time':>10}"]
    for price in answer.prices:
        peak = "does not fit" if price.peak is None else format_bytes(price.peak)
        time = "" if price.overhead is None else f"+{100 * price.overhead:.1f} %"
        lines.append(f"  {format_bytes(price.budget):>12}  {peak:>12}  {time:>10}  {price.label}")
    return "\n".join([*lines, "", "assumptions:", *(f"  - {line}" for line in answer.assumptions)])


def plot(answer: Answer, path: str) -> None:
    """Memory against time, with the memory of the device as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points = [(price.peak / 2**30, 100 * price.overhead) for price in answer.prices if price.peak and price.overhead is not None]
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot([x for x, _ in points], [y for _, y in points], marker="o")
    if answer.question.device.is_gpu:
        axes.axvline(answer.question.device.usable / 2**30, linestyle="--", color="gray", label=answer.question.device.name)
        axes.legend()
    axes.set_xlabel("peak, GiB")
    axes.set_ylabel("added time, %")
    axes.set_title(f"{answer.question.source}, batch {answer.question.batch}, {answer.question.seq} tokens")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
