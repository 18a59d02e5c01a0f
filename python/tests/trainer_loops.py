"""Training runs with accelerate, with Lightning, and by hand, each with and without a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import remat
import torch
from remat.measure import measure_peak
from trainer_models import Classifier, Outcome, lightning_module, loader, options, scratch, state_of


def accelerated(
    budget: Any,
    *,
    accumulation: int = 1,
    way: str = "helper",
    evaluate: bool = False,
    resume: bool = False,
    checkpointing: bool = False,
    **arguments: Any,
) -> Outcome:
    """A loop with accelerate, by one of its ways: the helper, the plugin, or the name of the backend."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from remat.trainers.accelerate import RematPlugin, compile_prepared

    with scratch() as folder:
        peaks = []
        for part in range(2 if resume else 1):
            for state in (AcceleratorState, GradientState):
                state._reset_state()
            given = dict(arguments)
            if budget is not None and way == "plugin":
                given["dynamo_plugin"] = RematPlugin(**options(budget), accumulates=accumulation > 1)
            if budget is not None and way == "name":
                given["dynamo_backend"] = "remat"
            accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, **given)
            module = Classifier(checkpointing)
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
            torch.manual_seed(0)
            with measure_peak("cpu") as peak:
                model, optimizer, batches = accelerator.prepare(module, optimizer, loader())
                if part:
                    accelerator.load_state(str(folder))
                run = None
                if budget is not None and way == "helper":
                    run = compile_prepared(accelerator, model, optimizer, **options(budget))
                for x, y in batches:
                    with accelerator.accumulate(model):
                        loss = model(x, y)
                        accelerator.backward(loss)
                        del loss
                        optimizer.step()
                        optimizer.zero_grad()
                    if evaluate:
                        model.eval()
                        with torch.no_grad():
                            model(x, y)
                        model.train()
                del x, y
                if resume and not part:
                    accelerator.save_state(str(folder))
                if run is not None:
                    run.end()
            peaks.append(peak.bytes)
        if resume:
            accelerator.save_model(model, str(folder / "weights"))
            from safetensors.torch import load_file

            Classifier().load_state_dict(load_file(folder / "weights" / "model.safetensors"))
    return Outcome(max(peaks), state_of(module))


def lit(budget: Any, *, resume: bool = False, checkpointing: bool = False, **arguments: Any) -> Outcome:
    """Lightning's Trainer."""
    import lightning.pytorch as pl

    with scratch() as folder:
        peaks = []
        for stop in (2, 4) if resume else (4,):
            torch.manual_seed(0)
            module = lightning_module(checkpointing)
            given = [] if budget is None else [remat.LightningCallback(**options(budget))]
            settings = {"enable_checkpointing": False, "limit_val_batches": 0, "devices": 1, **arguments}
            trainer = pl.Trainer(
                accelerator="cpu", logger=False, callbacks=given, enable_progress_bar=False, enable_model_summary=False,
                use_distributed_sampler=False, max_steps=stop, **settings,
            )  # fmt: skip
            with measure_peak("cpu") as peak:
                trainer.fit(module, loader(), loader(), ckpt_path=str(folder / "2.ckpt") if resume and stop == 4 else None)
            peaks.append(peak.bytes)
            if resume:
                trainer.save_checkpoint(folder / f"{stop}.ckpt")
        if resume:
            loaded = type(module).load_from_checkpoint(folder / "4.ckpt", weights_only=False)
            assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), module.parameters(), strict=True))
    return Outcome(max(peaks), state_of(module))


def plain(
    budget: Any,
    *,
    accumulation: int = 1,
    evaluate: bool = False,
    resume: bool = False,
    checkpointing: bool = False,
    wrap: Callable[..., Any] | None = None,
    bf16: bool = False,
) -> Outcome:
    """A loop by hand."""
    with scratch() as folder:
        peaks = []
        for part in range(2 if resume else 1):
            module = Classifier(checkpointing=checkpointing)
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
            if part:
                state = torch.load(folder / "state.pt")
                module.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
            if budget is not None:
                remat.compile(module, **options(budget), reserved="auto", accumulates=accumulation > 1)
            model = module if wrap is None else wrap(module)
            torch.manual_seed(0)
            with measure_peak("cpu") as peak:
                for index, (x, y) in enumerate(loader()):
                    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                        loss = model(x, y)
                    loss.backward()
                    del loss
                    if (index + 1) % accumulation == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                    if evaluate:
                        model.eval()
                        with torch.no_grad():
                            model(x, y)
                        model.train()
            peaks.append(peak.bytes)
            if budget is not None:
                assert len(module._compiled_call_impl.session.runners) == 1, "the model was cut into the buckets of DDP"
            torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
    return Outcome(max(peaks), state_of(module))
