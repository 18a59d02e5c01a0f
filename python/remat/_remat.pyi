"""The planner, written in Rust: crates/remat-py."""

from typing import final

__version__: str
PLANNERS: list[str]

@final
class Problem:
    def __new__(cls, text: str) -> Problem: ...
    def solve(
        self,
        budget: int,
        *,
        planner: str = "best",
        time_limit: float | None = None,
        effort: float | None = None,
        seed: int = 0,
    ) -> tuple[str, str | None]: ...
    def check(self, plan_text: str) -> list[str]: ...
    def price(self, plan_text: str) -> str: ...
    def floor(self) -> str: ...
    def frontier(
        self,
        n_points: int,
        *,
        planner: str = "best",
        time_limit: float | None = None,
        effort: float | None = None,
        seed: int = 0,
    ) -> str: ...
    def explain(self, plan_text: str) -> str: ...

def budget_bytes(text: str, keep_all_peak: int) -> int: ...
def format_bytes(bytes: int) -> str: ...
