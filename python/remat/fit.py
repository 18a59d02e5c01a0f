"""Will it fit? The memory and the price of a training step on a device that need not be here.

In: a Hugging Face configuration or a function that builds a model, a batch, a length, a device, an optimizer and a type. The model is
built on `meta`, so it takes no memory, and its step is traced once with the kernels of the target; every budget is planned from that
trace. Out: `Answer`: the peak without recomputation, the floor, the price at several budgets, and the largest batch and length.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from . import api, problem
from .budget import format_bytes
from .capture import op_name
from .costs import speeds_of
from .devices import BLOCK, RESERVED, Device
from .errors import RematError
from .optimizer import state_and_temporaries
from .options import Options
from .planner import book_of, find, lowest, proven_floor
from .problem import Step
from .target_kernels import use_kernels_of

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer] | None] = {
    "none": None,
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
    "adafactor": lambda p: torch.optim.Adafactor(p, foreach=False),
}
# Where between the floor and the peak without recomputation the price is asked for.
FRACTIONS = (0.0, 0.25, 0.5, 0.75)
EFFORT = 0.01


@dataclass(frozen=True)
class Question:
    """What is asked."""

    source: str
    batch: int
    seq: int
    device: Device
    optimizer: str = "adamw"
    dtype: str = "bf16"


@dataclass
class Price:
    """What a budget costs; no overhead where it cannot be met."""

    budget: int
    peak: int | None
    overhead: float | None
    label: str


@dataclass
class Answer:
    """What was found. Bytes, and fractions of the time of a step."""

    question: Question
    n_parameters: int
    parameter_bytes: int
    optimizer_bytes: int
    keep_all_peak: int
    floor: int
    proven_floor: int
    seconds: float
    prices: list[Price]
    n_ops: int
    largest: dict[str, int] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One sentence."""
        room = self.question.device.usable
        if not self.question.device.is_gpu:
            return f"a step needs {format_bytes(self.keep_all_peak)}, or {format_bytes(self.floor)} with recomputation"
        if self.keep_all_peak <= room:
            return f"fits without recomputation: {format_bytes(self.keep_all_peak)} of {format_bytes(room)}"
        here = next((price for price in self.prices if price.budget == room), None)
        if here is not None and here.overhead is not None:
            return f"fits with recomputation: {format_bytes(room)} at +{100 * here.overhead:.1f} % of a step"
        return f"does not fit: the floor is {format_bytes(self.floor)}, the device has {format_bytes(room)}"

    def to_json(self) -> str:
        """Everything, with the verdict."""
        return json.dumps({**asdict(self), "verdict": self.verdict}, indent=2)


def answer(question: Question, *, with_largest: bool = False) -> Answer:
    """Traces the step and plans it."""
    model, example = build(question)
    parameters = [p for p in model.parameters() if p.requires_grad]
    make = OPTIMIZERS[question.optimizer]
    state, temporary = (0, 0) if make is None else state_and_temporaries(make(parameters))
    options = Options(effort=EFFORT, reserved=state)
    step = _step(question, model, example, options)
    book = book_of(step, options)
    base = sum(problem.node_costs(step))
    # After backward, when only parameters, gradients and the state are left, the optimizer takes its step.
    updating = problem.fixed_bytes(step) + problem.gradient_bytes(step.region) + temporary
    floor = max(lowest(step, options, book).peak, updating)
    highest = max(step.keep_all_peak, updating)
    found = Answer(
        question=question,
        n_parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.nbytes for p in parameters),
        optimizer_bytes=state + temporary,
        keep_all_peak=highest,
        floor=floor,
        proven_floor=max(int(proven_floor(step)["bytes"]), updating),
        seconds=base,
        prices=[],
        n_ops=len(step.ops) - 1,
        assumptions=assumptions(question, step),
    )
    room = question.device.usable
    budgets = {floor + int(fraction * (highest - floor)): f"{100 * fraction:.0f} %" for fraction in FRACTIONS}
    budgets[floor] = "floor"
    budgets[highest] = "no recomputation"
    if question.device.is_gpu:
        budgets[room] = "the device"
    for budget, label in sorted(budgets.items()):
        if budget < floor:
            found.prices.append(Price(budget, None, None, label))
            continue
        planned = find(step, budget, options, book)
        overhead = max(planned.cost / base - 1.0, 0.0) if base else 0.0
        found.prices.append(Price(budget, max(planned.peak, updating), overhead, label))
    _never_dearer(found.prices)
    if with_largest and question.device.is_gpu:
        found.largest = _largest(question, options, floor)
    return found


def _never_dearer(prices: list[Price]) -> None:
    """A plan for a smaller budget also fits a larger one, so a larger budget costs no more."""
    for smaller, larger in itertools.pairwise(prices):
        if smaller.overhead is not None and (larger.overhead is None or larger.overhead > smaller.overhead):
            larger.peak, larger.overhead = smaller.peak, smaller.overhead


def _largest(question: Question, options: Options, floor: int) -> dict[str, int]:
    """The largest batch and length whose floor fits.

    Floors grow about linearly, so a trace of twice the size tells roughly where, and one of the size found there tells better.
    """
    sizes: dict[str, int] = {}
    for name in ("batch", "seq"):
        size = getattr(question, name)
        guess = 2 * size
        try:
            for _ in range(2):
                slope = (_floor(dataclasses.replace(question, **{name: guess}), options) - floor) / (guess - size)
                if slope <= 0 or (room := question.device.usable - floor) < 0:
                    break
                found = int(size + room / slope)
                if found == size:
                    sizes[name] = size
                    break
                sizes[name] = guess = found
        except RematError:
            # A model with a fixed length: what was found so far is beyond it.
            sizes.pop(name, None)
    return sizes


def _floor(question: Question, options: Options) -> int:
    step = _step(question, *build(question), options)
    return lowest(step, options, book_of(step, options)).peak


def _step(question: Question, model: Any, example: Any, options: Options) -> Step:
    device = question.device
    step = api.trace(model, example, options, rewrite=lambda graph: use_kernels_of(device.is_gpu, graph))
    half = DTYPES[question.dtype] is not torch.float32
    speeds = (device.half if half else device.single, device.bandwidth)
    return problem.adjusted(step, speeds_of(step, speeds), BLOCK if device.is_gpu else 1)


def assumptions(question: Question, step: Step) -> list[str]:
    """What the figures rest on."""
    lines = [
        f"parameters, gradients and activations in {question.dtype}, optimizer {question.optimizer} one parameter at a time",
        "outputs of the model are held until backward ends; the batch is counted once",
        "times are a roofline of the stated peak speeds: shares of a step, not seconds",
    ]
    device = question.device
    if device.is_gpu:
        lines += [
            f"{device.name}: {format_bytes(device.memory)}, of which {format_bytes(RESERVED)} for driver and libraries;"
            f" {device.bandwidth / 1e9:.0f} GB/s, {device.half / 1e12:.0f} TFLOP/s ({device.source})",
            f"every block is rounded up to {BLOCK} bytes, as torch's allocator does; workspaces of kernels and fragmentation are not counted",
            f"attention: {_attention(step)}; the largest sizes are interpolated",
            "not measured on a GPU",
        ]
    return lines


def _attention(step: Step) -> str:
    """The kernels that were taken for attention."""
    names = [op_name(op.node) for op in step.ops if op is not None and not op.is_backward]
    n_flash = sum("_flash_attention" in name for name in names)
    n_efficient = sum("_efficient_attention" in name for name in names)
    if not n_flash and not n_efficient:
        return "no call of scaled_dot_product_attention"
    masked = " (transformers builds a mask while it is compiled, which flash attention does not take)" if n_efficient else ""
    return f"flash kernel {n_flash} times, memory-efficient kernel {n_efficient} times{masked}"


# ---- what is built


def build(question: Question) -> tuple[torch.nn.Module, Any]:
    """The model and an example, on `meta`."""
    dtype = DTYPES[question.dtype]
    with torch.device("meta"):
        if ":" in question.source:
            model, example = _from_function(question)
        else:
            model, example = _from_configuration(question)
    use_capturable_experts(model, question.dtype)
    return model.to(dtype).train(), example


def use_capturable_experts(model: Any, dtype: str) -> bool:
    """Has the experts of a model of transformers computed by a batched product in fp32; says whether it has some.

    By default they are computed by a grouped one, which in fp32 falls back to products whose sizes depend on the data. The batched
    one gathers the weights of the experts for every token, so it needs more memory.
    """
    has_experts = getattr(getattr(model, "config", None), "num_local_experts", None) is not None
    if dtype != "fp32" or not has_experts or not hasattr(model, "set_experts_implementation"):
        return False
    model.set_experts_implementation("batched_mm")
    return True


def _from_function(question: Question) -> tuple[Any, Any]:
    module, _, name = question.source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{question.source} cannot be imported: {error}") from error
    wanted = inspect.signature(function).parameters
    sizes = {key: value for key, value in (("batch", question.batch), ("seq", question.seq)) if key in wanted}
    built = function(**sizes)
    if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], torch.nn.Module)):
        raise ValueError(f"{question.source} returned {type(built).__name__}; it must return a module and its example arguments")
    return built


def _from_configuration(question: Question) -> tuple[Any, Any]:
    path = Path(question.source)
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a configuration of Hugging Face, or a function as package.module:name")
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a configuration of Hugging Face: {str(error).splitlines()[0]}") from error
    config.use_cache = False
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and question.seq > limit and getattr(config, "rope_theta", None) is None and "gpt2" in config.model_type:
        raise RematError(f"the model has {limit} positions, which is less than {question.seq}")
    name = (config.architectures or ["AutoModelForCausalLM"])[0]
    if name.endswith("Model"):
        name = "AutoModelForCausalLM"
    kind = getattr(transformers, name, None)
    if kind is None or not name.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel")):
        raise ValueError(f"{name} is not a language model; give a function as package.module:name that returns it with an example")
    model = kind.from_config(config) if name.startswith("Auto") else kind(config)
    tokens = torch.zeros(question.batch, question.seq, dtype=torch.int64)
    return model, {"input_ids": tokens, "labels": torch.zeros_like(tokens)}
