"""Values that rest in host memory or in a file: the same bits, the predicted peak, copies beside kernels, and what happens on errors."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
import torchvision
from harness import train_step
from remat.measure import measure_peak, storage_bytes
from remat.offload import places, steps
from remat.offload.space import FileSpace, HostSpace
from remat.offload.store import ThreadStore
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import WithLoss, make

CPU = torch.device("cpu")
SPEED = "2GB/s"
# Plans that move and never recompute, so that everything that does not stay goes through the store.
MOVING = {"planner": "swap", "offload_speed": SPEED, "effort": 0.01}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    places._open.clear()
    yield
    gc.collect()
    assert steps.n_parcels() == 0
    for store in places._open.values():
        assert isinstance(store, ThreadStore)
        _drain(store)
        assert store.space.n_used == 0, "every slot is given back"


def _drain(store: ThreadStore) -> None:
    for channel in store.channels.values():
        channel.start(lambda: None, 0).wait()


def convolutions() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return WithLoss(nn.Sequential(*layers, *pool)), (torch.randn(8, 16, 16, 16), torch.randint(0, 16, (8,)))


def resnet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return WithLoss(torchvision.models.resnet18(num_classes=10)), (torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,)))


def model(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    own = {"convolutions": convolutions, "resnet": resnet}
    return own[name]() if name in own else make(name)


def place_at(kind: str, folder: Path) -> str:
    return "host" if kind == "host" else str(folder)


def offloaded(module: nn.Module, place: str, budget: Any = "70%", **options: Any) -> Any:
    return remat.compile(module, budget=budget, offload=place, **{**MOVING, **options})


def n_copies() -> int:
    return sum(len(store.transfers()) for store in places._open.values())


MODELS = {"mlp": "70%", "convolutions": "70%", "transformer": "70%", "gpt2": "70%", "resnet": "93%"}


@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_bits_are_those_of_eager_and_the_peak_is_the_predicted_one(name: str, kind: str, tmp_path: Path) -> None:
    module, batch = model(name)
    torch.manual_seed(3)
    expected = [train_step(module, module, batch) for _ in range(3)]
    torch._dynamo.reset()
    module, batch = model(name)
    compiled = offloaded(module, place_at(kind, tmp_path), MODELS[name])
    torch.manual_seed(3)
    found = [train_step(compiled, module, batch) for _ in range(3)]
    assert n_copies() > 0
    assert all(a.same_bits(b) for a, b in zip(expected, found, strict=True))
    report = remat.regions()[-1]
    assert report.n_recomputed == 0
    module.zero_grad(set_to_none=True)
    with measure_peak("cpu") as peak:
        compiled(*batch).backward()
    assert peak.bytes == report.predicted_peak <= report.budget < report.keep_all_peak
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mlp", "gpt2", "convolutions"])
def test_keeping_recomputing_and_moving_together(name: str) -> None:
    module, batch = model(name)
    torch.manual_seed(3)
    expected = [train_step(module, module, batch) for _ in range(2)]
    torch._dynamo.reset()
    module, batch = model(name)
    compiled = offloaded(module, "host", "65%", planner="best")
    torch.manual_seed(3)
    found = [train_step(compiled, module, batch) for _ in range(2)]
    assert all(a.same_bits(b) for a, b in zip(expected, found, strict=True))
    report = remat.regions()[-1]
    assert report.n_recomputed + report.n_offloaded > 0
    module.zero_grad(set_to_none=True)
    with measure_peak("cpu") as peak:
        compiled(*batch).backward()
    assert peak.bytes == report.predicted_peak <= report.budget


def test_reports_and_plans_show_what_is_moved() -> None:
    module, batch = make("mlp")
    options = {"budget": "75%", "offload": "host", **MOVING}
    planned = remat.plan(module, batch, **options)
    assert planned.moving.n_out > 0
    assert planned.moving.bytes == sum(moved.bytes * moved.n_copies // 2 for moved in planned.moving.values)
    assert "offloaded" in planned.table()
    assert "host memory" in planned._repr_html_()
    assert planned.moving.values[0].name in planned.explain()
    remat.compile(module, **options)(*batch).backward()
    report = remat.regions()[-1]
    assert (report.n_offloaded, report.offloaded_bytes) == (planned.moving.n_out, planned.moving.bytes)
    assert "offloaded" in dict(report.rows())


def test_what_is_offloaded_is_no_saved_tensor_of_autograd() -> None:
    module, batch = make("mlp")
    remat.compile(module)(*batch)
    everything = remat.regions()[-1].saved_bytes
    compiled = offloaded(module, "host", "75%")
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        loss = compiled(*batch)
    report = remat.regions()[-1]
    own = [t for t in saved if not any(t.data_ptr() == p.data_ptr() for p in (*module.parameters(), *batch)) and t.numel()]
    assert report.saved_bytes < everything
    assert storage_bytes(own) <= report.saved_bytes
    del saved, own
    assert steps.n_parcels() == 1
    del loss
    gc.collect()
    assert steps.n_parcels() == 0, "a forward without backward gives everything back"


def test_a_retained_graph_runs_twice() -> None:
    results = []
    for options in ({}, {"budget": "70%", "offload": "host", **MOVING}):
        module, batch = make("mlp")
        compiled = remat.compile(module, **options)
        torch.manual_seed(3)
        loss = compiled(*batch)
        loss.backward(retain_graph=True)
        loss.backward()
        results.append([p.grad for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("kind", ["host", "file"])
def test_two_forwards_before_two_backwards_and_two_models(kind: str, tmp_path: Path) -> None:
    results = []
    for options in ({}, {"budget": "70%", "offload": place_at(kind, tmp_path), **MOVING}):
        torch._dynamo.reset()
        (first, batch), (second, images) = make("mlp"), convolutions()
        a, b = remat.compile(first, **options), remat.compile(second, **options)
        torch.manual_seed(3)
        losses = [a(*batch), b(*images), a(*batch), b(*images)]
        for index in (2, 1, 3, 0):
            losses[index].backward()
        results.append([p.grad for module in (first, second) for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("milliseconds", [0, 1, 20])
def test_slow_copies_change_nothing(milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(method: Any) -> Any:
        def copy(*arguments: Any) -> None:
            time.sleep(milliseconds / 1e3)
            method(*arguments)

        return copy

    monkeypatch.setattr(HostSpace, "write", slow(HostSpace.write))
    monkeypatch.setattr(HostSpace, "read", slow(HostSpace.read))
    module, batch = make("mlp")
    torch.manual_seed(3)
    expected = train_step(module, module, batch)
    module, batch = make("mlp")
    compiled = offloaded(module, "host")
    torch.manual_seed(3)
    assert train_step(compiled, module, batch).same_bits(expected)
    module.zero_grad(set_to_none=True)
    with measure_peak("cpu") as peak:
        compiled(*batch).backward()
    assert peak.bytes == remat.regions()[-1].predicted_peak


class Kernels(TorchDispatchMode):
    """When each operation of the thread that trains ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[float, float]] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self.ran.append((begin, time.perf_counter()))
        return result


@pytest.mark.parametrize("kind", ["host", "file"])
def test_copies_run_while_kernels_run(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.GELU())]
    module, batch = WithLoss(nn.Sequential(*layers)), (torch.randn(2048, 256), torch.randint(0, 256, (2048,)))
    compiled = offloaded(module, place_at(kind, tmp_path), "80%")
    # On a busy machine a thread may wait for a processor until the others are done, but not in every step.
    for _ in range(30):
        before = n_copies()
        with Kernels() as kernels:
            compiled(*batch).backward()
        copies = [transfer for store in places._open.values() for transfer in store.transfers()][before:]
        assert sum(copy.end - copy.begin for copy in copies) > 0
        together = [copy for copy in copies for begin, end in kernels.ran if copy.begin < end and begin < copy.end]
        if together:
            break
    assert together, "no copy ran beside a kernel"




@pytest.mark.parametrize("place", ["write", "read"])
def test_an_error_in_a_copy_is_told_and_releases_everything(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, batch = make("mlp")
    compiled = offloaded(module, str(tmp_path))
    torch.manual_seed(3)
    expected = train_step(compiled, module, batch)
    original = getattr(FileSpace, place)
    calls = 0

    def failing(self: FileSpace, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise self._failed("a block is lost", OSError(errno.EIO, os.strerror(errno.EIO)))
        original(self, *arguments)

    monkeypatch.setattr(FileSpace, place, failing)
    module.zero_grad(set_to_none=True)
    with pytest.raises(remat.OffloadError, match="a block is lost .*disk may be failing"):
        compiled(*batch).backward()
    monkeypatch.setattr(FileSpace, place, original)
    gc.collect()
    assert steps.n_parcels() == 0
    torch.manual_seed(3)
    # The model trains again when the disk does.
    assert train_step(compiled, module, batch).same_bits(expected)


def test_an_exception_in_the_middle_of_backward_releases_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    module, batch = make("mlp")
    compiled = offloaded(module, "host")
    torch.manual_seed(3)
    expected = train_step(compiled, module, batch)
    module.zero_grad(set_to_none=True)
    loss = compiled(*batch)

    class Stop(TorchDispatchMode):
        n_left = 12

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Stop.n_left -= 1
            if Stop.n_left == 0:
                raise ZeroDivisionError("in the middle")
            return func(*args, **(kwargs or {}))

    with pytest.raises(ZeroDivisionError), Stop():
        loss.backward()
    del loss
    gc.collect()
    store = next(iter(places._open.values()))
    assert isinstance(store, ThreadStore)
    _drain(store)
    assert store.space.n_used == 0
    assert steps.n_parcels() == 0
    torch.manual_seed(3)
    assert train_step(compiled, module, batch).same_bits(expected)


FULL = """
import resource, sys, torch, remat
sys.path.insert(0, {tests!r})
from zoo import make
module, batch = make("mlp")
compiled = remat.compile(module, budget="70%", offload={folder!r}, offload_speed="1GB/s", planner="swap")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    compiled(*batch).backward()
except remat.OffloadError as error:
    print(error)
"""


def test_a_full_disk_is_told_before_the_first_step(tmp_path: Path) -> None:
    source = FULL.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300)
    assert "could not be reserved (File too large)" in ran.stdout, ran.stderr
    assert "ulimit -f" in ran.stdout
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    source = (
        "import os, signal, torch\nfrom remat.offload.space import FileSpace\n"
        f"space = FileSpace({str(tmp_path)!r}); space.reserve(1 << 20); slot = space.take(1 << 20)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", source], timeout=300).returncode != 0
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_direct_access_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from remat.offload import space

    def refuse(file: int, command: int, argument: int = 0) -> int:
        if argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return os.O_RDWR

    monkeypatch.setattr(space.fcntl, "fcntl", refuse)
    with pytest.warns(remat.BudgetWarning, match="no direct access"):
        store = ThreadStore("buffered", FileSpace(tmp_path))
    tensor = torch.randn(3, 1000)
    stored = store.out(tensor)
    store.settle(stored, tensor)
    assert torch.equal(store.arrived(store.bring(stored)), tensor)


@pytest.mark.parametrize("kind", ["host", "file"])
def test_any_layout_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    store = places.store_at(place_at(kind, tmp_path), CPU)
    base = torch.randn(70, 90)
    tensors = [
        base, base.t(), base[3:9, ::2], torch.randn(5, 3, 7, 7).to(memory_format=torch.channels_last), torch.tensor(3.5), torch.empty(0, 4),
        torch.randint(0, 9, (1000,), dtype=torch.int8), torch.randn(3_000_000, dtype=torch.float64), torch.randn(4, 4, dtype=torch.complex64),
        torch.rand(100) > 0.5,
    ]  # fmt: skip
    stored = [store.out(tensor) for tensor in tensors]
    arriving = [store.bring(item) for item in stored]
    for tensor, item, there in zip(tensors, arriving, stored, strict=True):
        back = store.arrived(item)
        assert torch.equal(back, tensor)
        assert back.stride() == tensor.stride()
        assert back.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
        assert back.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() or not tensor.numel()
        store.settle(there, tensor)
        store.discard(there)


def test_a_file_reuses_its_room(tmp_path: Path) -> None:
    space = FileSpace(tmp_path)
    space.reserve(1 << 20)
    length = space.length
    for round_ in range(50):
        slots = [space.take(size) for size in (4096, 100_000, 1, 250_000, 4097)]
        starts = sorted((slot.start, slot.start + slot.size) for slot in slots)
        assert all(a[1] <= b[0] for a, b in zip(starts, starts[1:], strict=False))
        del slots[round_ % 5]
        slots.append(space.take(50_000))
        del slots
    assert space.length == length
    assert space.n_used == 0


def test_speeds_are_measured_once_and_can_be_given() -> None:
    from remat.offload import speed
    from remat.rates import out_and_in

    store = places.store_at("host", CPU)
    (out_latency, out_per_byte), (in_latency, in_per_byte) = speed.measured(store, CPU)
    assert all(seconds > 0 for seconds in (out_latency, out_per_byte, in_latency, in_per_byte))
    n_timed = n_copies()
    assert speed.measured(store, CPU) == ((out_latency, out_per_byte), (in_latency, in_per_byte))
    assert n_copies() == n_timed > 0
    assert out_and_in("1.5GB/s") == (1.5e9, 1.5e9)
    assert out_and_in("1 GiB/s, 2MB/s") == (2.0**30, 2e6)


def test_options_are_checked_at_once(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    file = tmp_path / "file"
    file.touch()
    for wrong, message in (
        ({"offload": str(tmp_path / "nowhere")}, "which does not exist; it can be 'host' or a folder"),
        ({"offload": str(file)}, "which is not a folder"),
        ({"offload": 3}, "it can be 'host' or a folder"),
        ({"offload_optimizer": True}, "needs offload='host'"),
        ({"offload_speed": "1GB/s"}, "needs offload='host'"),
        ({"offload": "host", "offload_speed": "fast"}, "write it as '1.5GB/s'"),
        ({"offload": "host", "offload_optimizer": 1}, "it can be True or False"),
        ({"offload": "host", "compiler": "inductor"}, "does not work together with compiler='inductor'"),
        ({"offload": "host", "releases_gradients": True}, "does not work together with releases_gradients=True"),
    ):
        with pytest.raises(ValueError, match=message):
            remat.compile(module, budget="1GiB", **wrong)


def test_a_folder_that_cannot_be_written_is_told() -> None:
    module, batch = make("mlp")
    with warnings.catch_warnings(), pytest.raises((remat.OffloadError, ValueError), match="folder that can be written"):
        warnings.simplefilter("ignore")
        remat.compile(module, budget="70%", offload="/proc/self", offload_speed=SPEED)(*batch)
