"""Real trainers within a budget: each cell of the table in docs/trainers.md is a run here."""

from __future__ import annotations

import copy
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from remat.in_place import CompiledCall
from torch import nn
from trainer_cases import RANK_RUNS, RUNS, SITUATIONS, judge
from trainer_hf import check_pretrained, huggingface
from trainer_loops import accelerated, plain
from trainer_models import Classifier, gpt2, loader, same_bits, scratch
from trainers_table import documented

HOLDS = ("holds", "holds (a)")
AGAIN = "write the table of docs/trainers.md anew with python/tests/trainers_table.py"


@pytest.mark.parametrize(("trainer", "situation"), RUNS, ids=lambda name: name.replace(" ", "-"))
def test_training_within_a_budget_goes_as_documented(trainer: str, situation: str) -> None:
    verdict = judge(trainer, situation)
    assert verdict in (*HOLDS, "refused", "over, with a warning"), f"a promise is broken: {verdict}"
    assert verdict == documented()[trainer, situation], AGAIN


def test_the_table_has_a_cell_for_every_run() -> None:
    cells = {key for key, text in documented().items() if text != "–"}
    assert cells == set(RUNS) | set(RANK_RUNS), AGAIN
    assert {situation for _, situation in documented()} == set(SITUATIONS)


def _rank(rank: int, folder: str) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2", GROUP_RANK="0", TORCHELASTIC_RUN_ID="tests",
    )  # fmt: skip
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    verdicts = {"/".join(key): judge(*key) for key in RANK_RUNS}
    Path(folder, f"verdicts-{rank}").write_text(json.dumps(verdicts))


def rank_verdicts(folder: Path) -> list[dict[tuple[str, str], str]]:
    """All runs with two processes, one after the other in the same two."""
    context = mp.get_context("spawn")
    processes = [context.Process(target=_rank, args=(rank, str(folder))) for rank in range(2)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 400
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
    for process in processes:
        if process.is_alive():
            process.kill()
    texts = [Path(folder, f"verdicts-{rank}").read_text() for rank in range(2)]
    return [{tuple(key.split("/")): verdict for key, verdict in json.loads(text).items()} for text in texts]


def test_training_with_two_processes_goes_as_documented(tmp_path: Path) -> None:
    first, second = rank_verdicts(tmp_path)
    assert first == second
    assert first == {key: documented()[key] for key in RANK_RUNS}, AGAIN


def test_a_trainer_that_takes_a_name_takes_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch_compile_backend="remat"`, with the budget from the environment: the optimizer is reserved without being told."""
    eager = huggingface(gpt2, None)
    budget = int(0.9 * eager.peak)
    monkeypatch.setenv("REMAT_BUDGET", f"{budget}B")
    before = len(remat.regions())
    within = huggingface(gpt2, None, torch_compile=True, torch_compile_backend="remat")
    assert len(remat.regions()) > before and remat.regions()[-1].budget == budget
    assert within.peak <= budget
    assert same_bits(within, eager)


def test_a_model_that_was_compiled_before_trains_and_loads_as_if_it_were_not() -> None:
    """`remat.compile(model)` and then a trainer: the signature that it looks at and the keys of its checkpoints are the model's."""
    eager = huggingface(gpt2, None)

    def compiled() -> nn.Module:
        return remat.compile(gpt2(), budget=int(0.9 * eager.peak), reserved="auto", effort=0.01)

    before = len(remat.regions())
    within = huggingface(compiled, None)
    assert len(remat.regions()) > before and within.peak <= 0.9 * eager.peak
    assert same_bits(within, eager)
    with scratch() as folder:
        model = compiled()
        model.save_pretrained(folder)
        check_pretrained(gpt2, folder, model)


@pytest.mark.parametrize("way", ["name", "plugin"])
def test_accelerate_takes_the_name_and_the_plugin(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = accelerated(None)
    budget = int(0.9 * eager.peak)
    if way == "name":
        monkeypatch.setenv("REMAT_BUDGET", str(budget) + "B")
    within = accelerated(budget, way=way)
    assert within.peak <= budget
    assert same_bits(within, eager)
    assert remat.regions()[-1].budget == budget


def test_the_order_of_imports_does_not_matter() -> None:
    code = "from accelerate.utils import TorchDynamoPlugin\nimport remat\nprint(TorchDynamoPlugin(backend='remat').to_kwargs())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "'backend': 'remat'" in run.stdout, run.stdout + run.stderr
    from accelerate.utils import DynamoBackend, TorchDynamoPlugin

    plugin = TorchDynamoPlugin(backend="remat")
    assert copy.deepcopy(plugin).to_kwargs() == {"backend": "remat"}
    with pytest.raises(ValueError, match="is not a valid DynamoBackend"):
        DynamoBackend("REMATT")


def test_a_run_says_what_it_plans_and_when_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="remat"):
        accelerated("90%")
    lines = [record.getMessage() for record in caplog.records if record.name == "remat"]
    assert len(lines) == 2
    assert "predicted peak" in lines[0] and "budget" in lines[0] and "%" in lines[0]
    assert lines[1].startswith("done; budget")


def test_budgets_from_the_environment_hold_for_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_BUDGET", "60%")
    module = Classifier()
    optimizer = torch.optim.AdamW(module.parameters())
    remat.compile(module, effort=0.01)
    for x, y in loader():
        module(x, y).backward()
        optimizer.step()
        break
    report = remat.regions()[-1]
    assert report.budget is not None and report.n_recomputed > 0
    monkeypatch.setenv("REMAT_BUDGET", "much")
    with pytest.raises(ValueError, match="much"):
        remat.compile(Classifier())
    monkeypatch.delenv("REMAT_BUDGET")
    assert plain(None).tensors.keys() == module.state_dict().keys()


def _lightning(subject: Any, **options: Any) -> None:
    import lightning.pytorch as pl

    callback = remat.LightningCallback(budget="90%", effort=0.01, **options)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback],
    )  # fmt: skip
    trainer.fit(subject, loader())


def test_lightning_modules_of_every_form() -> None:
    import lightning.pytorch as pl

    class Base(pl.LightningModule):
        def __init__(self, n_parts: int = 1) -> None:
            super().__init__()
            self.net = Classifier()
            if n_parts > 1:
                self.other = nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.net(*batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class WithForward(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x, torch.zeros(len(x), dtype=torch.int64))

    def n_compiled(subject: Any, **options: Any) -> int:
        before = len(remat.regions())
        _lightning(subject, **options)
        assert not any(isinstance(m._compiled_call_impl, CompiledCall) for m in subject.modules()), "not given back"
        return len(remat.regions()) - before

    assert n_compiled(Base()) == 1
    assert n_compiled(Base(2), module="net") == 1
    assert n_compiled(WithForward(), module="net") == 1
    with pytest.raises(remat.RematError, match="name the one that training_step calls"):
        _lightning(Base(2))
    with pytest.warns(remat.BudgetWarning, match="did not call the module"):
        assert n_compiled(WithForward()) == 0
