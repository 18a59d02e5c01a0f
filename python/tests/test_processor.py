"""Processors whose bf16 instructions end the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from remat import processor


def test_a_child_that_dies_is_survived_and_a_remedy_is_found() -> None:
    tried = []

    def run(settings: Mapping[str, str]) -> int:
        tried.append(dict(settings))
        is_safe = settings.get("ONEDNN_MAX_CPU_ISA") == "AVX2"
        code = "" if is_safe else f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})"
        return subprocess.run([sys.executable, "-c", code]).returncode

    found = processor.try_bf16(run)
    assert found.settings == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert tried[0] == {}, "nothing is set where nothing must be"
    assert "SIGILL" in str(found) and "ONEDNN_MAX_CPU_ISA=AVX2" in str(found) and "before torch is imported" in str(found)


def test_a_processor_that_nothing_helps_is_told() -> None:
    found = processor.try_bf16(lambda settings: -signal.SIGILL)
    assert found.settings is None
    assert "no setting" in str(found)


def test_a_processor_without_trouble_keeps_its_settings() -> None:
    found = processor.try_bf16(lambda settings: 0)
    assert found.settings == {} and str(found) == "bf16 runs"


def test_a_trial_that_takes_too_long_is_no_verdict() -> None:
    found = processor.try_bf16(lambda settings: None)
    assert found.settings == {}
    assert "could not be tried" in str(found)


def test_this_run_is_safe_and_says_so() -> None:
    found = processor.bf16()
    assert found.settings is not None, str(found)
    assert all(os.environ[name] == value for name, value in found.settings.items())


def test_a_run_on_such_a_processor_survives(tmp_path: Path) -> None:
    """The whole way: a torch that dies in bf16 unless oneDNN is told not to use AMX, and pytest with our conftest."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ: os.kill(os.getpid(), signal.SIGILL)\nraise SystemExit(0)\n"
    )
    conftest = Path(__file__).with_name("conftest.py").read_text().split("@pytest.fixture")[0]
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_one.py").write_text(
        "import os\ndef test_one(): assert os.environ['ONEDNN_MAX_CPU_ISA'] == 'AVX512_CORE_BF16'\n"
    )
    paths = [str(tmp_path), *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("ONEDNN_MAX_CPU_ISA", None)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "processor: bf16 ends the process with SIGILL" in run.stdout
