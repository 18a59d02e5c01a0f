"""How the ranks of a group settle on one plan: the protocol alone, without a store, a clock or torch.

A member asks for what it needs (`Read`, `Write`, `Settle`, `Pause`) and is answered by whoever runs it: `distributed` with the store of
the process group, the tests with a store and a clock that they make up.

Ranks agree in rounds, each with keys of its own:

1. every rank posts the hash of its graph and its costs;
2. rank 0 waits for all, compares the hashes, takes the highest cost of each operation (the slowest rank sets the pace),
   plans, and posts the plan with its hash;
3. every rank checks the plan against its own problem and confirms;
4. one key ends the round. The first write to it counts, and everybody obeys it: rank 0 writes `go` when all have confirmed, a rank that
   fails, waits too long or sees another one die writes the reason. So all ranks use the plan, or all stop.

The next plan is agreed on in the next round, after a failure, too. Each rank takes part in all rounds in turn, so that the n-th
attempt of one rank meets the n-th of the others.

A rank may compile *alone*, because its batch has another shape. The others will never come to such a round, and they show it: ranks
count the calls of their compiled modules, and one that has begun a later call has passed this one without compiling. Then
everybody in the round plans for itself. Ranks with different plans compute the same numbers; only graphs with collectives must not differ, so
there the group stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from .errors import RankFailure

# Between two looks at the store; each pause is longer than the one before.
FIRST_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.5
BEAT_SECONDS = 1.0
# A rank counts as dead when its beat, which nothing else delays, was seen to stand still for this long.
SILENCE_SECONDS = 6.0
# How long a store that does not answer is asked again.
STORE_SECONDS = 3.0


@dataclass(frozen=True)
class Read:
    """Asks for the text under a key, or `None`."""

    key: str


@dataclass(frozen=True)
class Write:
    """Writes a text under a key."""

    key: str
    text: str


@dataclass(frozen=True)
class Settle:
    """Writes a text under a key that holds nothing yet, and asks for what the key holds then."""

    key: str
    text: str


@dataclass(frozen=True)
class Pause:
    """Waits."""

    seconds: float


@dataclass(frozen=True)
class Say:
    """Tells people something."""

    text: str


class StoreError(Exception):
    """The answer to a request that could not be carried out, as far as one knows."""


Request = Read | Write | Settle | Pause | Say
Asking = Generator[Request, Any, Any]
Message = dict[str, Any]


class _Ended(Exception):
    """A round is over."""

    def __init__(self, end: Message) -> None:
        super().__init__(end)
        self.end = end


class Member:
    """One rank of a group."""

    def __init__(self, rank: int, n_ranks: int, now: Callable[[], float]) -> None:
        self.rank = rank
        self.n_ranks = n_ranks
        self.now = now
        self.round = 0
        # Calls of compiled modules that have begun or failed.
        self.n_calls = 0
        self.n_agreed = 0
        self.is_planning = False
        self.has_store = True
        self.beats: dict[int, _Beat] = {}

    def agree(
        self, own: Message, make: Callable[[list[list[float]]], str], check: Callable[[str], None], timeout: float
    ) -> Generator[Request, Any, str | None]:
        """The plan that all ranks use, or `None` where this rank compiles alone and plans for itself.

        `own` has the `hash` and the `budget` of what is compiled, its `costs`, and whether all ranks must run the same plan
        (`is_shared`). `make` is called on rank 0 with the costs of all; `check` raises on a bad plan.
        """
        self.is_planning = True
        try:
            end = yield from self._enter()
            if end is None:
                end = yield from self._take_part(own, make, check, self.now() + timeout)
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from self._leave(error)
            raise
        finally:
            self.is_planning = False
        self.round += 1
        if end["kind"] == "failed":
            self.n_calls += 1
            raise RankFailure(end["reason"], rank=end["rank"])
        self.n_agreed += end["kind"] == "go"
        return end.get("plan")

    def fail(self, error: BaseException) -> Asking:
        """Ends the round that this rank would take part in next, with the reason."""
        with contextlib.suppress(RankFailure):
            yield from self._enter()
        yield from self._leave(error)

    def depart(self, error: BaseException) -> Asking:
        """Leaves the reason why this rank ends, for those who would wait for it."""
        with contextlib.suppress(RankFailure):
            yield from self._ask(Write(f"remat/ended/{self.rank}", f"{type(error).__name__}: {error}"))

    def beat(self) -> Asking:
        """Shows that this rank is alive and how far it is, and says when another one has failed, for ever."""
        said = -1
        for count in itertools.count():
            try:
                yield Write(f"remat/beat/{self.rank}", f"{count} {self.n_calls}")
                place = self.round
                end = yield Read(f"remat/{place}/end")
                if end is not None and said < place and not self.is_planning:
                    said = place
                    message = json.loads(end)
                    if message["kind"] == "failed" and message["from"] != self.rank:
                        yield Say(message["reason"])
            except StoreError:
                # The main thread meets the same store and says so.
                pass
            yield Pause(BEAT_SECONDS)

    def _enter(self) -> Generator[Request, Any, Message | None]:
        """Goes to the next round, and returns how it ended where it has: those of earlier calls were not meant for this rank."""
        while True:
            end = yield from self._end()
            if end is None or end["calls"] >= self.n_calls:
                return end
            self.round += 1

    def _leave(self, error: BaseException) -> Asking:
        """Ends the round because of an error of this rank."""
        blamed = error.rank if isinstance(error, RankFailure) else self.rank
        reason = str(error) if isinstance(error, RankFailure) else f"rank {self.rank} failed: {type(error).__name__}: {error}"
        if self.has_store:
            # Where the store is gone, the others notice that by themselves.
            with contextlib.suppress(RankFailure):
                yield from self._settle("failed", rank=blamed, reason=reason)
        self.round += 1
        self.n_calls += 1

    def _take_part(
        self, own: Message, make: Callable[[list[list[float]]], str], check: Callable[[str], None], deadline: float
    ) -> Generator[Request, Any, Message]:
        """Goes through a round and returns how it ended."""
        plan: str | None = None
        try:
            yield from self._post(f"own/{self.rank}", own)
            if self.rank == 0:
                yield from self._lead(own, make, deadline)
            message = yield from self._wait("plan", 0, own, deadline)
            plan = message["plan"]
            if _hash(plan) != message["hash"]:
                raise RankFailure(f"rank {self.rank} received a damaged plan", rank=self.rank)
            check(plan)
            yield from self._post(f"checked/{self.rank}", {})
            if self.rank == 0:
                for other in range(self.n_ranks):
                    yield from self._wait(f"checked/{other}", other, own, deadline)
                yield from self._settle("go")
            yield from self._wait("end", 0, own, deadline)
            raise AssertionError("the end of a round ends the wait for it")
        except _Ended as ended:
            end = ended.end
        except RankFailure as failure:
            if not self.has_store:
                raise
            # Perhaps the others have ended the round by now, and then that counts.
            end = yield from self._settle("failed", rank=failure.rank, reason=str(failure))
        return {**end, "plan": plan} if end["kind"] == "go" else end

    def _lead(self, own: Message, make: Callable[[list[list[float]]], str], deadline: float) -> Asking:
        posts: list[Message] = []
        for rank in range(self.n_ranks):
            posts.append((yield from self._wait(f"own/{rank}", rank, own, deadline)))
        for rank, post in enumerate(posts):
            if post["hash"] != own["hash"] or post["budget"] != own["budget"]:
                if self.n_agreed and not any(post["is_shared"] for post in posts):
                    raise _Ended((yield from self._settle("alone")))
                what = "another graph" if post["hash"] != own["hash"] else f"another budget ({post['budget']} bytes)"
                raise RankFailure(f"rank {rank} compiles {what} than rank 0; all ranks must run the same model", rank=rank)
        plan = make([post["costs"] for post in posts])
        yield from self._post("plan", {"plan": plan, "hash": _hash(plan)})

    def _wait(self, name: str, owner: int, own: Message, deadline: float) -> Generator[Request, Any, Message]:
        """The message under a key of the round; the end of the round ends the wait, too."""
        pause = FIRST_POLL_SECONDS
        while True:
            text = yield from self._ask(Read(f"remat/{self.round}/{name}"))
            end = yield from self._end()
            if end is not None:
                raise _Ended(end)
            if text is not None:
                return json.loads(text)
            yield from self._check_alive(owner, own)
            if self.now() > deadline:
                raise RankFailure(f"rank {owner} did not arrive in time; see the option timeout", rank=owner)
            yield Pause(pause)
            pause = min(1.2 * pause, LONGEST_POLL_SECONDS)

    def _check_alive(self, rank: int, own: Message) -> Asking:
        """Raises where a rank will not come: it has ended, is silent, or has passed this call without compiling."""
        reason = yield from self._ask(Read(f"remat/ended/{rank}"))
        if reason is not None:
            raise RankFailure(f"rank {rank} failed: {reason}", rank=rank)
        text = yield from self._ask(Read(f"remat/beat/{rank}"))
        if text is None:
            return
        if self.beats.setdefault(rank, _Beat(text, self.now())).is_silent(text, self.now()):
            raise RankFailure(f"rank {rank} has ended or does not respond for {SILENCE_SECONDS:.0f} s", rank=rank)
        if int(text.split()[1]) <= self.n_calls:
            return
        # It posts what it compiles before it counts the call, so this read is no older than the beat.
        if (yield from self._ask(Read(f"remat/{self.round}/own/{rank}"))) is not None:
            return
        if own["is_shared"]:
            raise RankFailure(
                f"rank {self.rank} compiles again, and rank {rank} does not: it runs call {self.n_calls + 1} of its compiled modules with"
                " what it has. The graph has collectives, so all ranks must get the same shapes",
                rank=self.rank,
            )
        raise _Ended((yield from self._settle("alone")))

    def _end(self) -> Generator[Request, Any, Message | None]:
        text = yield from self._ask(Read(f"remat/{self.round}/end"))
        return None if text is None else json.loads(text)

    def _settle(self, kind: str, **details: Any) -> Generator[Request, Any, Message]:
        """Ends the round, unless somebody else has: returns how it ended."""
        message = {"kind": kind, "from": self.rank, "calls": self.n_calls, **details}
        return json.loads((yield from self._ask(Settle(f"remat/{self.round}/end", json.dumps(message)))))

    def _post(self, name: str, message: Message) -> Asking:
        yield from self._ask(Write(f"remat/{self.round}/{name}", json.dumps(message)))

    def _ask(self, request: Request) -> Asking:
        """The answer to a request, which is made again for a while where the store does not answer."""
        looked, waited = self.now(), 0.0
        while True:
            try:
                answer = yield request
            except StoreError as error:
                # A time in which this rank was suspended is no sign of a store that is gone.
                waited += min(self.now() - looked, LONGEST_POLL_SECONDS)
                looked = self.now()
                self.has_store = waited <= STORE_SECONDS
                if not self.has_store:
                    text = f"the store of the process group is gone, so rank 0 has ended: {error}"
                    raise RankFailure(text, rank=0) from error
                yield Pause(FIRST_POLL_SECONDS)
            else:
                self.has_store = True
                return answer


class _Beat:
    """What was last seen of the beat of a rank."""

    def __init__(self, text: str, now: float) -> None:
        self.text = text
        self.looked = now
        self.silence = 0.0

    def is_silent(self, text: str, now: float) -> bool:
        """Whether a beat stands still for too long. A time in which nobody looked, as while all were suspended, does not count."""
        self.silence = 0.0 if text != self.text else self.silence + min(now - self.looked, BEAT_SECONDS)
        self.text, self.looked = text, now
        return self.silence > SILENCE_SECONDS


def _hash(plan: str) -> str:
    return hashlib.sha256(plan.encode()).hexdigest()
