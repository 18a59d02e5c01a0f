"""The table of docs/trainers.md: reads it for the tests, and as a program runs everything and writes it anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trainer_cases import RANK_RUNS, RUNS, SITUATIONS, judge

DOCUMENT = Path(__file__).parents[2] / "docs" / "trainers.md"
BEGIN, END = "<!-- table: python/tests/trainers_table.py -->", "<!-- end of the table -->"


def documented() -> dict[tuple[str, str], str]:
    """The cells of the table by trainer and situation."""
    text = DOCUMENT.read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[text.index(BEGIN) : text.index(END)].splitlines()
        if line.startswith("|")
    ]
    header, body = rows[0], rows[2:]
    return {(row[0], situation): cell for row in body for situation, cell in zip(header[1:], row[1:], strict=True)}


def write(verdicts: dict[tuple[str, str], str]) -> None:
    """Replaces the table."""
    trainers = dict.fromkeys(trainer for trainer, _ in verdicts)
    lines = ["| | " + " | ".join(SITUATIONS) + " |", "|---" * (len(SITUATIONS) + 1) + "|"]
    lines += [f"| {t} | " + " | ".join(verdicts.get((t, s), "–") for s in SITUATIONS) + " |" for t in trainers]
    text = DOCUMENT.read_text()
    head, rest = text.split(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}")


def main() -> None:
    import torch
    from test_trainers import rank_verdicts

    torch.set_num_threads(1)
    verdicts = {}
    for key in RUNS:
        torch._dynamo.reset()
        verdicts[key] = judge(*key)
        print(*key, verdicts[key], sep=": ", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        first, second = rank_verdicts(Path(folder))
    for key in RANK_RUNS:
        verdicts[key] = first[key] if first[key] == second[key] else f"rank 0: {first[key]}, rank 1: {second[key]}"
    write(verdicts)


if __name__ == "__main__":
    main()
