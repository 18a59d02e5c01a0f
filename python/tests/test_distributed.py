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
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks, timeout=timedelta(seconds=120))
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
    if scenario == "tries again":
        return _try_again(rank)
    if scenario == "other shape":
        return _train_with_another_shape(rank)
    if scenario == "other shape with collectives":
        return _train_with_collectives(rank)
    if scenario == "tight and dynamic":
        return _train_tightly()
    if scenario == "buckets":
        return _train_in_buckets()
    if scenario == "offload":
        return _train_offloaded(rank)
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
    return f"{remat.regions()[-1].plan_hash} {_digest(module)}"


def _digest(module: torch.nn.Module) -> str:
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()]).double().sum().item()
    return repr(gradient)


def _try_again(rank: int) -> str:
    """A round that fails for all, and one that succeeds."""
    import remat
    from zoo import make

    module, batch = make("mlp")
    budget = "1kB" if rank == 1 else "65%"
    try:
        remat.compile(module, budget=budget, effort=0.01)(*batch)
        return "no failure"
    except remat.RankFailure as error:
        assert "rank 1 compiles another budget" in str(error), error
    torch._dynamo.reset()
    module, batch = make("mlp")
    remat.compile(module, budget="65%", effort=0.01)(*batch).backward()
    return f"{remat.regions()[-1].plan_hash} {_digest(module)}"


def _train_with_another_shape(rank: int) -> str:
    """In its second step rank 1 gets fewer examples than rank 0, and compiles again."""
    import remat
    from torch.nn.parallel import DistributedDataParallel
    from zoo import make

    module, (x, target) = make("mlp")
    model = DistributedDataParallel(remat.compile(module, budget=900_000, effort=0.01))
    for n_examples in (256, 128 if rank == 1 else 256, 256):
        module.zero_grad(set_to_none=True)
        model(x[:n_examples], target[:n_examples]).backward()
    return f"same {_digest(module)}"


class _Scaled(torch.nn.Module):
    """A model whose ranks meet inside of the graph."""

    def __init__(self) -> None:
        super().__init__()
        from torch.nn import GELU, Linear

        self.layers = torch.nn.Sequential(*(layer for _ in range(3) for layer in (Linear(32, 32), GELU())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed import _functional_collectives as collectives

        scale = collectives.all_reduce(x.detach().square().mean(), "sum", dist.group.WORLD)
        return self.layers(x / scale.sqrt()).square().mean()


def _train_with_collectives(rank: int) -> str:
    import remat

    torch.manual_seed(0)
    module = _Scaled()
    compiled = remat.compile(module, budget="90%", effort=0.01)
    compiled(torch.randn(64, 32)).backward()
    begin = time.monotonic()
    try:
        compiled(torch.randn(48 if rank == 1 else 64, 32)).backward()
    except remat.RankFailure as error:
        raise RuntimeError(f"after {'less' if time.monotonic() - begin < 60 else 'more'} than a minute: {error}") from error
    return "no failure"


def _train_tightly() -> str:
    """A budget that suffices for the shape, but not for the top of its bucket: all ranks plan twice."""
    import remat
    from zoo import make

    module, (x, target) = make("mlp")
    x, target = x[:200], target[:200]
    floor = remat.plan(module, (x, target), effort=0.01).floor
    remat.compile(module, budget=int(1.02 * floor), dynamic=True, effort=0.01)(x, target).backward()
    return f"{remat.regions()[-1].plan_hash} {_digest(module)}"


def _train_in_buckets() -> str:
    """Several buckets, and Dynamo's default, which cuts at them: one part where the model was compiled before, an error otherwise."""
    import remat
    from torch.nn.parallel import DistributedDataParallel
    from zoo import make

    assert torch._dynamo.config.optimize_ddp
    module, batch = make("mlp")
    model = DistributedDataParallel(remat.compile(module, budget="80%", effort=0.01), bucket_cap_mb=0.02)
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        model(*batch).backward()
    assert len(module._compiled_call_impl.session.runners) == 1, "the model was cut"
    # The first bucket is of 1 MiB, and Dynamo wants the others to be no smaller.
    wrapped = DistributedDataParallel(_Block(512), bucket_cap_mb=1)
    try:
        torch.compile(wrapped, backend="remat", options={"budget": "80%", "effort": 0.01})(torch.randn(4, 512))
    except remat.RematError as error:
        assert "compile the model before wrapping it" in str(error), error
        return f"told {_digest(module)}"
    return "cut in silence"


def _train_offloaded(rank: int) -> str:
    """DDP whose ranks move values to host memory, each with its own examples: the bits of eager training, within the budget."""
    import remat
    from remat.measure import measure_peak
    from remat.offload import places
    from torch.nn.parallel import DistributedDataParallel
    from zoo import make

    digests = []
    for is_offloaded in (False, True):
        torch.manual_seed(0)
        module, (x, target) = make("mlp")
        # Other examples and dropout masks on every rank.
        torch.manual_seed(1 + rank)
        x = torch.randn_like(x)
        if is_offloaded:
            budget = int(0.8 * remat.plan(module, (x, target), effort=0.01).keep_all_peak)
            remat.compile(module, budget=budget, offload="host", offload_speed="2GB/s", planner="swap", effort=0.01, strict=True)
        model = DistributedDataParallel(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            with measure_peak("cpu") as peak:
                model(x, target).backward()
            assert not is_offloaded or peak.bytes <= budget, (peak.bytes, budget)
            optimizer.step()
        digests.append(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest())
    assert digests[0] == digests[1], "moving changed the bits"
    report = remat.regions()[-1]
    assert report.n_offloaded and sum(len(store.transfers()) for store in places._open.values()), "nothing was moved"
    return f"{report.plan_hash} {digests[1]}"


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
    deadline = time.monotonic() + 300
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


def test_after_a_failure_the_ranks_plan_again(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "tries again")
    assert len(set(results)) == 1 and " " in results[0] and "Error" not in results[0], results


def test_a_rank_with_another_shape_compiles_alone(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "other shape")
    assert len(set(results)) == 1 and results[0].startswith("same"), results


def test_a_rank_with_another_shape_and_collectives_stops_all(tmp_path: Path) -> None:
    results, apart = _run(2, tmp_path, "other shape with collectives")
    assert "after less than a minute: rank 1 compiles again, and rank 0 does not" in results[1], results
    assert "Error" in results[0], results
    # The collective in which rank 0 waits ends with the process of rank 1.
    assert apart < 20


def test_a_budget_too_small_for_a_bucket_is_refused_for_all_and_the_shape_is_planned(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "tight and dynamic")
    assert len(set(results)) == 1 and " " in results[0] and "Error" not in results[0], results


def test_ranks_that_move_values_to_host_memory_keep_bits_and_budget(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "offload")
    assert len(set(results)) == 1 and " " in results[0] and "Error" not in results[0], results


def test_buckets_do_not_cut_a_model_and_one_that_is_cut_is_told(tmp_path: Path) -> None:
    results, _ = _run(2, tmp_path, "buckets")
    assert len(set(results)) == 1 and results[0].startswith("told "), results
