"""Two ways into accelerate: a call after `prepare`, or a plugin for the Accelerator.

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
compile_prepared(accelerator, model, optimizer, budget="8GiB")

or `Accelerator(dynamo_plugin=RematPlugin(budget="8GiB"))`.
"""

from __future__ import annotations

from typing import Any

from accelerate.utils import TorchDynamoPlugin

from ..automatic import inner_optimizer
from ..budget import Size
from ..options import AUTO, Options
from .run import Run


def compile_prepared(
    accelerator: Any, model: Any, *optimizers: Any, budget: Size | None = None, **options: Any
) -> Run:
    """Compiles a prepared model in place. `end()` of what is returned gives the model back and logs a line."""
    given = {"accumulates": accelerator.gradient_accumulation_steps > 1, "budget": budget, **options}
    # The loader of accelerate fetches one batch ahead.
    run = Run(accelerator.unwrap_model(model), map(inner_optimizer, optimizers), n_batches_ahead=1, **given)
    run.begin()
    return run


class RematPlugin(TorchDynamoPlugin):
    """Has the Accelerator compile its models with remat. Optimizers of the process are found and reserved."""

    def __init__(self, budget: Size | None = None, *, dynamic: bool | None = None, **options: Any) -> None:
        self.remat_options = {"budget": budget, "reserved": AUTO, **options}
        Options.parse(self.remat_options)
        # The class accepts only names that it knows; this one stands for a backend like ours.
        super().__init__(backend="aot_eager", dynamic=dynamic)

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments of torch.compile."""
        from ..backend import backend

        kwargs: dict[str, Any] = {"backend": backend, "options": self.remat_options}
        return kwargs if self.dynamic is None else {**kwargs, "dynamic": self.dynamic}
