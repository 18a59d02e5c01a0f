"""What works here: versions, the backend's registration, devices, and a tiny step within a budget."""

from __future__ import annotations

from importlib.metadata import entry_points


def doctor() -> str:
    """Checks the installation and returns the findings as text; the last line is the verdict."""
    from ._remat import PLANNERS, __version__

    lines = [f"remat {__version__}, planners: {', '.join(PLANNERS)}"]
    try:
        import torch
    except ImportError as error:
        return "\n".join([*lines, f"torch cannot be imported: {error}", "not ready: install torch"])
    from . import processor, torch_compat

    supported = "supported" if torch_compat.is_supported() else "not tested, 2.13 to 2.15 are"
    lines.append(f"torch {torch.__version__} ({supported})")
    lines.append(f"devices: cpu{', cuda' if torch.cuda.is_available() else ''}; threads: {torch.get_num_threads()}")
    names = [entry.name for entry in entry_points(group="torch_dynamo_backends")]
    registered = "yes" if "remat" in names else "no: install the package; remat.compile works without"
    lines.append(f'backend="remat" is registered: {registered}')
    lines.append(f"processor: {processor.bf16()}")
    lines.append(f"distributed: {'yes' if torch.distributed.is_available() else 'no'}")
    try:
        lines.append(_tiny_step())
    except Exception as error:  # noqa: BLE001 (a doctor reports, whatever it is)
        return "\n".join([*lines, f"a tiny step failed: {type(error).__name__}: {error}", "not ready"])
    return "\n".join([*lines, "ready"])


def _tiny_step() -> str:
    import torch
    from torch import nn

    from .api import compile, plan
    from .budget import format_bytes
    from .measure import measure_peak

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).square().mean()

    torch.manual_seed(0)
    model, x = Tiny(), torch.randn(64, 64)
    floor = plan(model, x).floor
    step = compile(model, budget=floor)
    with measure_peak("cpu") as peak:
        step(x).backward()
    if peak.bytes > floor:
        raise AssertionError(f"the budget of {floor} bytes does not hold: {peak.bytes}")
    return f"a tiny step: budget {format_bytes(floor)}, measured {format_bytes(peak.bytes)}: holds"
