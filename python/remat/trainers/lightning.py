"""The callback for Lightning's Trainer.

trainer = Trainer(..., callbacks=[RematCallback(budget="8GiB")])
"""

from __future__ import annotations

import warnings
from typing import Any

from lightning.pytorch import Callback, LightningModule
from torch import nn

from ..automatic import inner_optimizer
from ..errors import BudgetWarning, RematError
from ..budget import Size
from ..options import Options
from .run import Run


class RematCallback(Callback):
    """Trains within `budget`: parameters, gradients, activations, optimizers, accumulation, gradient buckets and batches.

    What is compiled is a module that `training_step` calls: `module="backbone"` names it; otherwise it is the LightningModule
    itself, where it has a `forward`, or else its only part with parameters. What `training_step` computes outside of that module
    is not planned. `options` are those of `remat.compile`.
    """

    def __init__(self, budget: Size | None = None, *, module: str | None = None, **options: Any) -> None:
        self.options = {"budget": budget, **options}
        Options.parse(self.options)
        self.name = module
        self.run: Run | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The optimizers exist here, with the state of a checkpoint."""
        module = _module_of(pl_module, self.name)
        options = {"accumulates": trainer.accumulate_grad_batches > 1, **self.options}
        optimizers = [inner_optimizer(optimizer) for optimizer in trainer.optimizers]
        # The loop fetches one batch ahead, to know which one is the last.
        self.run = Run(module, optimizers, n_batches_ahead=1, bypass=_is_redirected, **options)
        self.run.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After the first batch it is known whether the module was called at all."""
        if self.run is not None and not self.run.has_begun and batch_idx == 0:
            warnings.warn(
                "training_step did not call the module that was to be compiled, so no budget holds; call self(...) in it, or"
                " name the module that it calls: RematCallback(..., module='name')",
                BudgetWarning,
                stacklevel=2,
            )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Gives the module back."""
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Gives the module back after an error, too."""
        self._stop()

    def _stop(self) -> None:
        if self.run is not None:
            self.run.end()
            self.run = None


def _module_of(pl_module: Any, name: str | None) -> nn.Module:
    """The module to compile."""
    if name is not None:
        return pl_module.get_submodule(name)
    if type(pl_module).forward is not LightningModule.forward:
        return pl_module
    parts = [part for part in pl_module.children() if any(p.requires_grad for p in part.parameters())]
    if len(parts) != 1:
        raise RematError(
            f"{type(pl_module).__name__} has no forward and {len(parts)} parts with parameters; name the one that training_step"
            " calls: RematCallback(..., module='name')"
        )
    return parts[0]


def _is_redirected(module: nn.Module) -> bool:
    """Whether a strategy such as DDP has put `training_step` in the place of `forward` for this call."""
    return getattr(module.__dict__.get("forward"), "__name__", "") == "wrapped_forward"
