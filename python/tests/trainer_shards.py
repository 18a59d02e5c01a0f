"""Training runs with FSDP2 through trainers, in two processes on the CPU.

accelerate shards models on accelerators only: on the CPU it takes the settings of FSDP, says nothing and uses DDP. What it does
with FSDP2 knows nothing of devices, though, so `fsdp_on_cpu` has it go that way here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from remat.measure import measure_peak
from trainer_hf import huggingface
from trainer_models import Outcome, Tokens, collate, llama, options, state_of

BLOCK = "LlamaDecoderLayer"


@contextmanager
def fsdp_on_cpu() -> Iterator[None]:
    """Has accelerate take FSDP where it is asked for, as with accelerators."""
    from accelerate.state import AcceleratorState, DistributedType, GradientState

    for kept in (AcceleratorState, GradientState):
        kept._reset_state()
    begin = AcceleratorState.__init__

    def state(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        begin(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        # It is made anew, without arguments, wherever accelerate looks at it.
        self.fsdp_plugin = fsdp_plugin or self.__dict__.get("fsdp_plugin")
        if self.fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP

    with mock.patch.object(AcceleratorState, "__init__", state), mock.patch.dict("os.environ"):
        yield
    for kept in (AcceleratorState, GradientState):
        kept._reset_state()


def sharded_huggingface(budget: Any) -> Outcome:
    """The Trainer of transformers with `fsdp=True`."""
    with fsdp_on_cpu():
        return huggingface(llama, budget, fsdp=True, fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": [BLOCK]})


def sharded_accelerate(budget: Any) -> Outcome:
    """A loop with accelerate and its plugin for FSDP2."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from remat.trainers.accelerate import compile_prepared

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=[BLOCK],
        cpu_ram_efficient_loading=False,
    )  # fmt: skip
    with fsdp_on_cpu():
        accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
        module = llama()
        model, optimizer = accelerator.prepare(module, torch.optim.AdamW(module.parameters(), lr=1e-3))
        assert accelerator.is_fsdp2 and type(model).__name__.startswith("FSDP")
        batches = [collate([Tokens()[8 * n + index] for index in range(8)]) for n in range(3)]
        with measure_peak("cpu") as peak:
            run = None if budget is None else compile_prepared(accelerator, model, optimizer, **options(budget))
            for batch in batches:
                loss = model(**batch).loss
                accelerator.backward(loss)
                del loss
                optimizer.step()
                optimizer.zero_grad()
            if run is not None:
                run.end()
    return Outcome(peak.bytes, state_of(model))
