"""Which trainer is tried in which situation, and the verdict on a run: small real training runs, without and within a budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import remat
from torch import nn
from trainer_hf import huggingface, supervised
from trainer_loops import accelerated, lit, plain
from trainer_models import COMPILED, Outcome, adapter, bert, gpt2, llama, same_bits, tall
from trainer_shards import sharded_accelerate, sharded_huggingface

Runs = dict[tuple[str, str], Callable[[Any], Outcome]]

HF, PEFT, TRL, ACCELERATE, LIGHTNING, PLAIN = "transformers Trainer", "PEFT LoRA", "TRL SFT", "accelerate", "Lightning", "plain loop"
STEPS, EVALUATION, RESUME = "steps", "evaluation", "save and resume"
ACCUMULATION, CHECKPOINTING, BF16, DDP, FSDP2 = "accumulation", "gradient checkpointing", "bf16", "DDP", "FSDP2"
SITUATIONS = (STEPS, ACCUMULATION, EVALUATION, RESUME, CHECKPOINTING, BF16, DDP, FSDP2)
# Arguments of the trainers that are built on that of transformers.
TWICE, CHECKPOINTED, TYPE = {"gradient_accumulation_steps": 2}, {"gradient_checkpointing": True}, {"bf16": True}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1}
IN_TWO = {"ddp_backend": "gloo", **TWICE}

RUNS: Runs = {
    (HF, STEPS): lambda budget: huggingface(gpt2, budget),
    (HF, ACCUMULATION): lambda budget: huggingface(llama, budget, **TWICE),
    (HF, EVALUATION): lambda budget: huggingface(bert, budget, **EVALUATED),
    (HF, RESUME): lambda budget: huggingface(gpt2, budget, resume=True),
    (HF, CHECKPOINTING): lambda budget: huggingface(gpt2, budget, **CHECKPOINTED),
    (HF, BF16): lambda budget: huggingface(llama, budget, **TYPE),
    (PEFT, STEPS): lambda budget: huggingface(adapter, budget),
    (PEFT, ACCUMULATION): lambda budget: huggingface(adapter, budget, **TWICE),
    (PEFT, EVALUATION): lambda budget: huggingface(adapter, budget, **EVALUATED),
    (PEFT, RESUME): lambda budget: huggingface(adapter, budget, resume=True),
    (PEFT, CHECKPOINTING): lambda budget: huggingface(adapter, budget, **CHECKPOINTED),
    (PEFT, BF16): lambda budget: huggingface(adapter, budget, **TYPE),
    (TRL, STEPS): lambda budget: supervised(tall, budget),
    (TRL, ACCUMULATION): lambda budget: supervised(tall, budget, **TWICE),
    (TRL, EVALUATION): lambda budget: supervised(tall, budget, **EVALUATED),
    (TRL, RESUME): lambda budget: supervised(tall, budget, resume=True),
    (TRL, CHECKPOINTING): lambda budget: supervised(tall, budget, **CHECKPOINTED),
    (TRL, BF16): lambda budget: supervised(tall, budget, **TYPE),
    (ACCELERATE, STEPS): lambda budget: accelerated(budget),
    (ACCELERATE, ACCUMULATION): lambda budget: accelerated(budget, accumulation=2),
    (ACCELERATE, EVALUATION): lambda budget: accelerated(budget, evaluate=True),
    (ACCELERATE, RESUME): lambda budget: accelerated(budget, resume=True),
    (ACCELERATE, CHECKPOINTING): lambda budget: accelerated(budget, checkpointing=True),
    (ACCELERATE, BF16): lambda budget: accelerated(budget, mixed_precision="bf16"),
    (LIGHTNING, STEPS): lambda budget: lit(budget),
    (LIGHTNING, ACCUMULATION): lambda budget: lit(budget, accumulate_grad_batches=2),
    (LIGHTNING, EVALUATION): lambda budget: lit(budget, limit_val_batches=1, val_check_interval=1),
    (LIGHTNING, RESUME): lambda budget: lit(budget, resume=True),
    (LIGHTNING, CHECKPOINTING): lambda budget: lit(budget, checkpointing=True),
    (LIGHTNING, BF16): lambda budget: lit(budget, precision="bf16-mixed"),
    (PLAIN, STEPS): lambda budget: plain(budget),
    (PLAIN, ACCUMULATION): lambda budget: plain(budget, accumulation=2),
    (PLAIN, EVALUATION): lambda budget: plain(budget, evaluate=True),
    (PLAIN, RESUME): lambda budget: plain(budget, resume=True),
    (PLAIN, CHECKPOINTING): lambda budget: plain(budget, checkpointing=True),
    (PLAIN, BF16): lambda budget: plain(budget, bf16=True),
}
# In two processes. The plain loop has several buckets, for which Dynamo would cut the model.
RANK_RUNS: Runs = {
    (HF, DDP): lambda budget: huggingface(gpt2, budget, **IN_TWO),
    (PEFT, DDP): lambda budget: huggingface(adapter, budget, **IN_TWO),
    (TRL, DDP): lambda budget: supervised(tall, budget, **IN_TWO),
    (ACCELERATE, DDP): lambda budget: accelerated(budget),
    (LIGHTNING, DDP): lambda budget: lit(budget, strategy="ddp", devices=2),
    (PLAIN, DDP): lambda budget: plain(budget, wrap=lambda m: nn.parallel.DistributedDataParallel(m, bucket_cap_mb=0.02)),
    (HF, FSDP2): sharded_huggingface,
    (ACCELERATE, FSDP2): sharded_accelerate,
}
FRACTION = 0.85
# With gradient checkpointing there is little left in SFTTrainer but the scratch tensor of its loss, which lies outside of the model.
FRACTIONS = {(TRL, CHECKPOINTING): 1.0}


def judge(trainer: str, situation: str) -> str:
    """Trains without and within a budget of a part of the eager peak, and says in a few words how that went."""
    key = trainer, situation
    run = {**RUNS, **RANK_RUNS}[key]
    eager = run(None)
    budget = int(FRACTIONS.get(key, FRACTION) * eager.peak)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            within = run(budget)
        except remat.BudgetTooSmall:
            return "refused"
    if within.peak > budget:
        messages = [str(warning.message) for warning in caught if issubclass(warning.category, remat.BudgetWarning)]
        is_told = any("cut the model" not in message for message in messages)
        return "over, with a warning" if is_told else "OVER IN SILENCE"
    if same_bits(within, eager):
        return "holds"
    return "holds (a)" if same_bits(within, run(COMPILED)) else "OTHER BITS"
