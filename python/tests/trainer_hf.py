"""Training runs with the trainers of transformers and TRL, with and without PEFT, each with and without a budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from remat.measure import measure_peak
from torch import nn
from trainer_models import BATCH, Outcome, Tokens, callbacks, collate, scratch, state_of, tokenizer

COMMON = {"per_device_train_batch_size": BATCH, "report_to": [], "use_cpu": True, "disable_tqdm": True}
# SFTConfig switches both on by itself.
TRL_DEFAULTS = {"gradient_checkpointing": False, "bf16": False}


def huggingface(make: Callable[[], nn.Module], budget: Any, *, resume: bool = False, **arguments: Any) -> Outcome:
    """The Trainer of transformers."""
    from transformers import Trainer, TrainingArguments

    def trainer(model: nn.Module, folder: Path, **settings: Any) -> Any:
        return Trainer(
            model, TrainingArguments(str(folder), **COMMON, **settings, **arguments), train_dataset=Tokens(),
            eval_dataset=Tokens(8), data_collator=collate, callbacks=callbacks(budget),
        )  # fmt: skip

    return _train(make, trainer, resume)


def supervised(make: Callable[[], nn.Module], budget: Any, *, resume: bool = False, **arguments: Any) -> Outcome:
    """The SFTTrainer of TRL."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_list([Tokens(64, with_labels=False)[index] for index in range(64)])
    given = {**TRL_DEFAULTS, **arguments}

    def trainer(model: nn.Module, folder: Path, **settings: Any) -> Any:
        return SFTTrainer(
            model, SFTConfig(str(folder), **COMMON, **settings, **given), train_dataset=data, eval_dataset=data.select(range(8)),
            processing_class=tokenizer(), callbacks=callbacks(budget),
        )  # fmt: skip

    return _train(make, trainer, resume)


def _train(make: Callable[[], nn.Module], trainer: Callable[..., Any], resume: bool) -> Outcome:
    """Three steps; with `resume` two, and two more from the checkpoint with everything made anew."""
    from transformers import set_seed

    with scratch() as folder:
        peaks = []
        for stop in (2, 4) if resume else (3,):
            model = make()
            set_seed(0)
            saving = {"save_strategy": "steps", "save_steps": 2} if resume else {"save_strategy": "no"}
            made = trainer(model, folder, max_steps=stop, **saving)
            with measure_peak("cpu") as peak:
                made.train(resume_from_checkpoint=stop == 4)
            peaks.append(peak.bytes)
        if resume:
            check_pretrained(make, folder / "checkpoint-4", model)
    return Outcome(max(peaks), state_of(model))


def check_pretrained(make: Callable[[], nn.Module], folder: Path, model: nn.Module) -> None:
    """A checkpoint holds what people without remat expect."""
    from peft import PeftModel

    if isinstance(model, PeftModel):
        loaded = PeftModel.from_pretrained(make().unload(), folder)
    else:
        loaded, facts = type(model).from_pretrained(folder, output_loading_info=True)
        assert not any(facts[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), facts
    state = model.state_dict()
    assert state.keys() == loaded.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
