"""Every test starts with nothing compiled. One thread: the operations are small, and waiting threads would only spin.

Before torch is imported, bf16 is tried in a child process: on a processor that announces AMX but does not allow it, the first
such product would end the whole run. What makes torch safe is set for this process and its children.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from remat import processor


def pytest_configure(config: pytest.Config) -> None:
    found = processor.bf16()
    os.environ.update(found.settings or {})


def pytest_sessionstart(session: pytest.Session) -> None:
    # Written here and not as a header of pytest, which `-q` hides.
    session.config.get_terminal_writer().line(f"processor: {processor.bf16()}")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    import torch
    from remat import reports

    torch.set_num_threads(1)
    torch._dynamo.reset()
    # Only the latest are kept, so tests that count them need an empty list.
    reports._reports.clear()
    yield
    torch._dynamo.reset()
