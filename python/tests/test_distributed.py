"""Several ranks on one machine: one plan, and a joint stop."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _rank(rank: int, n_ranks: int, folder: str, scenario: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", n_ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks, timeout=timedelta(seconds=60))
    result = Path(folder, f"result-{rank}")
    try:
        result.write_text(_train(rank, scenario))
    except BaseException as error:
        result.write_text(f"{type(error).__name__}: {error}")
        raise


def _train(rank: int, scenario: str) -> str:
    import remat
    from torch.nn.parallel import DistributedDataParallel
    from zoo import make

    if scenario == "sharded":
        return _train_sharded(rank)
    module, batch = make("mlp")
    if scenario == "other model" and rank == 1:
        module.model.append(torch.nn.Identity()).append(torch.nn.Tanh())
    if scenario == "skewed":
        time.sleep(1.5 * rank)
    budget: Any = "1kB" if scenario == "impossible" and rank == 1 else "65%"
    compiled = remat.compile(module, budget=budget, effort=0.01)
    if scenario == "dies" and rank == 1:
        time.sleep(1.5)
        os._exit(3)
    # The constructor of DDP communicates, so a dead rank would already stop the others there, with gloo's words.
    model = compiled if scenario == "dies" else DistributedDataParallel(compiled)
    for step in range(2):
        if scenario == "dies later" and rank == 1 and step == 1:
            os._exit(3)
        model(*batch).backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()]).double().sum().item()
    return f"{remat.regions()[-1].plan_hash} {gradient!r}"


class _Block(torch.nn.Module):
    """A class of its own, because torch.compile leaves containers of torch alone where hooks break the graph."""

    def __init__(self, width: int) -> None:
        super().__init__()
        from torch.nn import GELU, Dropout, Linear

        self.layers = torch.nn.Sequential(*(layer for _ in range(4) for layer in (Linear(width, width), GELU(), Dropout(0.2))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def _train_sharded(rank: int) -> str:
    """FSDP2 with each block compiled by itself: what the ranks share must be the plan, what a budget must not change the bits."""
    import remat
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    digests = []
    for options in ({}, {"budget": "85%"}):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(_Block(32), _Block(32), nn.Linear(32, 1))
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in [*model, model]:
            fully_shard(part, mesh=mesh)
        for block in model[:-1]:
            block.compile(backend="remat", options=options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        torch.manual_seed(1 + rank)
        for _ in range(2):
            model(torch.randn(64, 32)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        shards = [parameter.to_local().detach().contiguous().numpy().tobytes() for parameter in model.parameters()]
        digests.append(hashlib.sha256(b"".join(shards)).hexdigest())
    assert digests[0] == digests[1], "the budget changed the bits"
    assert any(region.n_recomputed for region in remat.regions()), "the budget asked for nothing"
    return f"{remat.regions()[-1].plan_hash} sharded"


def _run(n_ranks: int, folder: Path, scenario: str) -> tuple[list[str], float]:
    context = mp.get_context("spawn")
    processes = [context.Process(target=_rank, args=(rank, n_ranks, str(folder), scenario)) for rank in range(n_ranks)]
    for process in processes:
        process.start()
    ends = []
    deadline = time.monotonic() + 180
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
        ends.append(time.monotonic())
    hung = [process for process in processes if process.is_alive()]
    for process in hung:
        process.kill()
    assert not hung, f"{len(hung)} ranks hang"
    files = [folder / f"result-{rank}" for rank in range(n_ranks)]
    return [file.read_text() if file.exists() else "" for file in files], max(ends) - min(ends)


def test_ranks_with_skewed_timings_run_the_same_plan(tmp_path: Path) -> None:
    results, _ = _run(4, tmp_path, "skewed")
    assert len(set(results)) == 1 and " " in results[0], results


def test_another_model_on_one_rank_stops_all(tmp_path: Path) -> None:
    results, apart = _run(2, tmp_path, "other model")
    assert all("RankFailure" in result and "rank 1 compiles another graph" in result for result in results), results
    assert apart < 10


def test_a_rank_that_cannot_plan_stops_all_with_its_reason(tmp_path: Path) -> None:
    results, apart = _run(2, tmp_path, "impossible")
    assert all("rank 1" in result or "too small" in result for result in results), results
    assert apart < 10


def test_a_rank_that_dies_stops_the_others(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "dies")
    assert results[1] == ""
    assert "rank 1 has ended" in results[0], results


def test_a_rank_that_dies_between_steps_stops_the_others(tmp_path: Path) -> None:
    results, apart = _run(2, tmp_path, "dies later")
    assert results[1] == ""
    assert "Error" in results[0], results
    assert apart < 10


def test_sharded_models_run_the_same_plan_with_the_same_bits(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "sharded")
    assert len(set(results)) == 1 and results[0].endswith("sharded"), results
