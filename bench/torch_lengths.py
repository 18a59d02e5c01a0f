"""Batches of ten lengths in a loop: whether all that fits is run, and what planning for them takes of the steps.

    python bench/torch_lengths.py [--steps 200] [--share 0.9] [--threads 1]

A GPT-2 with six layers is trained on batches whose lengths change from step to step, compiled once with dynamic shapes. The budget is
the given share of the peak that the longest batch has without recomputation. Printed are the highest peak, the plans that were made, and the
processor time that was spent on choosing and making plans as a share of all steps, without the first compilation, which torch needs as
well. Exit code 1 when a step was above the budget or planning took more than 5 %, 2 for bad input.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import remat
import torch
from remat import sharing
from remat.measure import measure_peak

LENGTHS = (200, 16, 90, 128, 40, 150, 24, 64, 256, 110)
BATCH, VOCABULARY, LIMIT = 8, 2048, 0.05


class Loss(torch.nn.Module):
    """The loss of a language model."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=VOCABULARY, n_positions=max(LENGTHS), n_embd=192, n_layer=6, n_head=6, use_cache=False)
        self.model = GPT2LMHeadModel(config)
        self.model.loss_type = "ForCausalLM"

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, labels=ids).loss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    module = Loss().train()
    batches = {n: torch.randint(0, VOCABULARY, (BATCH, n)) for n in LENGTHS}
    longest = remat.plan(module, batches[max(LENGTHS)])
    budget = int(arguments.share * longest.keep_all_peak)
    if budget < longest.floor:
        parser.error(f"the budget is {budget} bytes, and the floor of the longest batch {longest.floor}; raise --share")
    planning = [0.0]
    choose = sharing.Session._choice

    def timed(*args: Any) -> Any:
        begin = time.process_time()
        try:
            return choose(*args)
        finally:
            planning[0] += time.process_time() - begin

    sharing.Session._choice = timed  # type: ignore[method-assign]
    remat.compile(module, budget=budget, dynamic=True)
    module(batches[max(LENGTHS)]).backward()
    n_plans, planning[0], highest, total = len(remat.regions()), 0.0, 0, 0.0
    order = random.Random(0)
    for index in range(arguments.steps):
        batch = batches[order.choice(LENGTHS)]
        module.zero_grad(set_to_none=True)
        begin = time.process_time()
        module(batch).backward()
        total += time.process_time() - begin
        if index >= arguments.steps - len(LENGTHS):
            # Measuring is slow, so the last steps are repeated for it.
            module.zero_grad(set_to_none=True)
            with measure_peak("cpu") as peak:
                module(batch).backward()
            highest = max(highest, peak.bytes)
    share = planning[0] / total
    print(f"budget {budget}, keep-all peak of the longest batch {longest.keep_all_peak}, floor {longest.floor}")
    print(f"{arguments.steps} steps, highest peak of the last lengths {highest}, {len(remat.regions()) - n_plans} plans after the first")
    print(f"planning {planning[0]:.2f} s of {total:.2f} s of processor time: {100 * share:.1f} % (limit {100 * LIMIT:.0f} %)")
    return 0 if share <= LIMIT and highest <= budget else 1


if __name__ == "__main__":
    sys.exit(main())
