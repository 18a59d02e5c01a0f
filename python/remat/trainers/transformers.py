"""The callback for the Trainer of transformers, and for those of TRL, which are built on it.

trainer = Trainer(..., callbacks=[RematCallback(budget="8GiB")])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ..automatic import inner_optimizer
from ..budget import Size
from ..options import Options
from .run import Run


class RematCallback(TrainerCallback):
    """Trains within `budget`: parameters, gradients, activations, optimizer, accumulation, gradient buckets and batches.

    `options` are those of `remat.compile`. The model is compiled in place when training begins and given back when it ends,
    so checkpoints, `save_pretrained` and `unwrap_model` know nothing of it.
    """

    def __init__(self, budget: Size | None = None, **options: Any) -> None:
        self.options = {"budget": budget, **options}
        Options.parse(self.options)
        self.run: Run | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """The optimizer and the distributed wrapper exist here."""
        steps = args.gradient_accumulation_steps
        options = {"accumulates": steps > 1, **self.options}
        # The trainer fetches all batches of a step at once, and its loader one more.
        self.run = Run(model, [inner_optimizer(optimizer)], n_batches_ahead=steps, **options)
        self.run.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Gives the model back."""
        if self.run is not None:
            self.run.end()
            self.run = None
