"""One plan for all ranks of a process group, and a joint stop when one of them fails.

Ranks that run different plans would still compute the same numbers, but they would meet at collectives at different
times and hold different memory; and ranks that compile *different graphs* with collectives would hang. So before a region is
compiled, the ranks agree (`agreement`). All of it goes through the key-value store of the process group and not through collectives: a
store can be asked with a deadline, and a rank that fails can still leave its reason there. A thread per rank shows that it is alive; a
rank that was alive and falls silent is dead, one that is only slow is waited for (`timeout`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .agreement import Asking, Member, Pause, Read, Request, Say, Settle, StoreError, Write
from .errors import RankFailure


def is_active() -> bool:
    """Whether there is a group of more than one process."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_rank() -> bool:
    """Whether this process is the one that speaks for all."""
    if not is_active():
        return True
    import torch.distributed as dist

    return dist.get_rank() == 0


def gradient_bucket_bytes() -> int:
    """Bytes of the buckets in which a DistributedDataParallel that is running its forward copies the gradients."""
    from .torch_compat import active_ddp

    ddp = active_ddp()
    return 0 if ddp is None else sum(p.nbytes for p in ddp.module.parameters() if p.requires_grad)


class Ranks:
    """This process as a member of the default group."""

    def __init__(self, store: Any, rank: int, n_ranks: int) -> None:
        self.store = store
        self.rank = rank
        self.member = Member(rank, n_ranks, time.monotonic)
        threading.Thread(target=self._run, args=(self.member.beat(),), name="remat-beat", daemon=True).start()

    def agree(
        self, own: dict[str, Any], make: Callable[[list[list[float]]], str], check: Callable[[str], None], timeout: float
    ) -> str | None:
        """The plan that all ranks use, or `None` where this rank plans for itself; see `Member.agree`."""
        return self._run(self.member.agree(own, make, check, timeout))

    def count_call(self) -> None:
        """Notes that a compiled module is called for training."""
        self.member.n_calls += 1

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks that this one could not compile."""
        self._run(self.member.fail(error))

    def depart(self, error: BaseException) -> None:
        """Tells the other ranks that this one ends."""
        self._run(self.member.depart(error))

    def _run(self, asking: Asking) -> Any:
        """Answers the requests of a member."""
        answer: Any = None
        failure: StoreError | None = None
        while True:
            try:
                request = asking.send(answer) if failure is None else asking.throw(failure)
            except StopIteration as stop:
                return stop.value
            answer, failure = None, None
            try:
                answer = self._answer(request)
            except Exception as error:  # noqa: BLE001
                failure = StoreError(str(error))

    def _answer(self, request: Request) -> str | None:
        if isinstance(request, Read):
            # A key that does not exist would be waited for.
            return self.store.get(request.key).decode() if self.store.check([request.key]) else None
        if isinstance(request, Write):
            self.store.set(request.key, request.text)
        elif isinstance(request, Settle):
            return self.store.compare_set(request.key, "", request.text).decode()
        elif isinstance(request, Pause):
            time.sleep(request.seconds)
        elif isinstance(request, Say):
            print(f"remat: {request.text}", file=sys.stderr, flush=True)
        return None


_members: dict[int, Ranks] = {}


def watch() -> Ranks | None:
    """Joins the watch over all ranks, once per process group; nothing where there is none."""
    if not is_active():
        return None
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    if id(store) not in _members:
        _members[id(store)] = Ranks(store, dist.get_rank(), dist.get_world_size())
        _report_uncaught_errors(_members[id(store)])
    return _members[id(store)]


def _report_uncaught_errors(ranks: Ranks) -> None:
    """An error that ends this process is a reason for the others to stop."""
    previous = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RankFailure):
            ranks.depart(error)
        previous(kind, error, trace)

    sys.excepthook = report
