"""One plan for all ranks of a process group, and a joint stop when one of them fails.

Ranks that run different plans would still compute the same numbers, but they would meet at collectives at different
times and hold different memory; and ranks that compile *different graphs* would hang. So before a region is compiled:

1. every rank posts the hash of its graph and its costs;
2. rank 0 waits for all, compares the hashes, takes the highest cost of each operation (the slowest rank sets the pace),
   plans, and posts the plan with its hash;
3. every rank checks the plan against its own problem and confirms; rank 0 gives the word when all did.

All of it goes through the key-value store of the process group and not through collectives: a store can be asked with a
deadline, and a rank that fails can still leave its reason there. A thread per rank shows that it is alive; a rank that was
alive and falls silent is dead, one that is only slow is waited for (`timeout`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .errors import RankFailure

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0
# A rank counts as dead when its thread, which does nothing but beat, was silent for this long.
SILENCE_SECONDS = 6.0
FAILED = "remat/failed"


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
        self.n_ranks = n_ranks
        self.round = itertools.count()
        self.beats: dict[int, tuple[bytes, float]] = {}
        self.stopped = threading.Event()
        threading.Thread(target=self._beat, name="remat-beat", daemon=True).start()

    def agree(
        self, own: dict[str, Any], make: Callable[[list[list[float]]], str], check: Callable[[str], None], timeout: float
    ) -> str:
        """The plan that all ranks use. `make` is called on rank 0 with the costs of all; `check` raises on a bad plan."""
        prefix = f"remat/{next(self.round)}"
        deadline = time.monotonic() + timeout
        try:
            self._post(f"{prefix}/own/{self.rank}", own)
            if self.rank == 0:
                self._post(f"{prefix}/plan", self._lead(prefix, own, make, deadline))
            message = self._wait(f"{prefix}/plan", 0, deadline)
            plan = message["plan"]
            if hashlib.sha256(plan.encode()).hexdigest() != message["hash"]:
                raise RankFailure(f"rank {self.rank} received a damaged plan", rank=self.rank)
            check(plan)
            self._post(f"{prefix}/checked/{self.rank}", {})
            if self.rank == 0:
                for other in range(self.n_ranks):
                    self._wait(f"{prefix}/checked/{other}", other, deadline)
                self._post(f"{prefix}/go", {})
            self._wait(f"{prefix}/go", 0, deadline)
            return plan
        except RankFailure:
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Leaves the reason for the other ranks; the first one stays."""
        reason = json.dumps({"rank": self.rank, "reason": f"{type(error).__name__}: {error}"})
        try:
            self.store.compare_set(FAILED, "", reason)
        except Exception:  # noqa: BLE001
            # The store dies with rank 0; the others notice that by themselves.
            return

    def _lead(
        self, prefix: str, own: dict[str, Any], make: Callable[[list[list[float]]], str], deadline: float
    ) -> dict[str, str]:
        posts = [self._wait(f"{prefix}/own/{rank}", rank, deadline) for rank in range(self.n_ranks)]
        for rank, post in enumerate(posts):
            if post["hash"] != own["hash"] or post["budget"] != own["budget"]:
                what = "another graph" if post["hash"] != own["hash"] else f"another budget ({post['budget']} bytes)"
                error = RankFailure(f"rank {rank} compiles {what} than rank 0; all ranks must run the same model", rank=rank)
                self.fail(error)
                raise error
        plan = make([post["costs"] for post in posts])
        return {"plan": plan, "hash": hashlib.sha256(plan.encode()).hexdigest()}

    def _post(self, key: str, message: dict[str, Any]) -> None:
        self.store.set(key, json.dumps(message))

    def _wait(self, key: str, owner: int, deadline: float) -> dict[str, Any]:
        """The message under a key, or the reason why it will not come."""
        while True:
            try:
                if self.store.check([key]):
                    return json.loads(self.store.get(key))
                if self.store.check([FAILED]):
                    failure = json.loads(self.store.get(FAILED))
                    raise RankFailure(f"rank {failure['rank']} failed: {failure['reason']}", rank=failure["rank"])
            except RankFailure:
                raise
            except Exception as error:
                raise RankFailure(f"the store of the process group is gone, so rank 0 has ended: {error}", rank=0) from error
            self._check_alive(owner)
            if time.monotonic() > deadline:
                raise RankFailure(f"rank {owner} did not arrive in time; see the option timeout", rank=owner)
            time.sleep(POLL_SECONDS)

    def _check_alive(self, rank: int) -> None:
        key, now = f"remat/beat/{rank}", time.monotonic()
        if not self.store.check([key]):
            return
        beat = self.store.get(key)
        last, since = self.beats.get(rank, (b"", now))
        self.beats[rank] = (beat, now if beat != last else since)
        if beat == last and now - since > SILENCE_SECONDS:
            raise RankFailure(f"rank {rank} has ended or does not respond for {SILENCE_SECONDS:.0f} s", rank=rank)

    def _beat(self) -> None:
        """Shows that this process lives, and says on the error stream when another one failed."""
        for count in itertools.count():
            try:
                self.store.set(f"remat/beat/{self.rank}", str(count))
                if self.store.check([FAILED]):
                    failure = json.loads(self.store.get(FAILED))
                    if failure["rank"] != self.rank:
                        print(f"remat: rank {failure['rank']} failed: {failure['reason']}", file=sys.stderr, flush=True)
                    return
            except Exception:  # noqa: BLE001
                # The store is gone with its process; the main thread meets the same end.
                return
            if self.stopped.wait(BEAT_SECONDS):
                return


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
            ranks.fail(error)
        previous(kind, error, trace)

    sys.excepthook = report
