"""What is emitted is checked before it runs: the checks find every fault, and pass what is right."""

from __future__ import annotations

import gc
import operator
import random
import time
from typing import Any

import pytest
import remat
import torch
from mutations import campaign, table
from remat import checks, codegen
from remat.checks import values
from remat.checks.fault import EmittedFault
from subjects import Subject, Written, subjects
from torch import fx, nn


def test_every_seeded_fault_is_found() -> None:
    tallies = campaign(["dropout", "batch_norm", "tied", "releases", "dynamic", "moves"], seed=2, seconds=900, n_rounds=36)
    print(table(tallies))
    missed = [text for tally in tallies.values() for text in tally.missed]
    assert not missed, missed[0]
    never = [name for name, tally in tallies.items() if tally.caught == 0]
    assert not never, f"{never} were never seeded"


def lowest(name: str) -> tuple[Subject, Written]:
    """The plan with the lowest peak."""

    class Zero(random.Random):
        def random(self) -> float:
            return 0.0

        def randrange(self, *_: Any) -> int:
            return 0

    (subject,) = subjects([name])
    return subject, subject.write(Zero())


def test_a_parameter_is_not_read_after_its_gradient_was_given_away() -> None:
    subject, written = lowest("releases")
    region = subject.step.region
    values.check(region, written.forward, written.backward, written.number)
    givers = [node for node in written.backward.nodes if hasattr(node.target, "remat_gives_away")]
    # Behind all hooks, an operation that reads a weight once more.
    weight = next(node for node in written.backward.find_nodes(op="placeholder") if node.name.startswith("primals") and node.users)
    reader = next(user for node in (weight, *weight.users) for user in node.users if user.target is not operator.getitem)
    givers[-1].append(reader)
    with pytest.raises(EmittedFault, match="overwritten|before it is computed"):
        values.check(region, written.forward, written.backward, written.number)


def test_a_fault_names_the_operation_and_what_its_inputs_stand_for() -> None:
    subject, written = lowest("dropout")
    node = next(node for node in written.backward.nodes if node.target is torch.ops.aten.gelu_backward.default)
    node.args = (node.args[1], node.args[0])
    with pytest.raises(remat.RematError, match=r"^bug: gelu_backward\S* \(aten.gelu_backward.default\) on .* \(for .* is no value"):
        values.check(subject.step.region, written.forward, written.backward, written.number)


class Noisy(torch.autograd.Function):
    """Draws random numbers in its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        return dy + torch.rand(dy.shape)


def test_random_numbers_of_backward_are_drawn_in_backward() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(Noisy.apply(self.layer(x)), 0.5).square().mean()

    results = []
    for compile_it in (lambda module: module, lambda module: remat.compile(module, budget="100%")):
        torch.manual_seed(0)
        module, x = Model(), torch.randn(4, 8)
        compiled = compile_it(module)
        torch.manual_seed(3)
        loss = compiled(x)
        between = torch.rand(2)
        loss.backward()
        results.append((loss.detach(), between, module.layer.weight.grad, torch.random.get_rng_state()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@torch.library.custom_op("remat_tests::args", mutates_args=())
def args(x: torch.Tensor) -> torch.Tensor:
    """An operation with the name that generated functions have for their list of inputs."""
    return x.sin()


@torch.library.custom_op("remat_tests::constant_0", mutates_args=())
def constant_0(x: torch.Tensor) -> torch.Tensor:
    """An operation with a name that generated functions have for constants."""
    return x.cos()


def _keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


for custom in (args, constant_0):
    custom.register_fake(torch.empty_like)
    custom.register_autograd(lambda context, dy: dy * context.saved_tensors[0], setup_context=_keep)


def test_operations_may_have_the_names_of_generated_code() -> None:
    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = 0.25 * constant_0(args(layer(x)))
            return x.square().mean()

    results = []
    for budget in (None, "90%"):
        torch.manual_seed(0)
        module, x = Names(), torch.randn(64, 8)
        compiled = remat.compile(module, budget=budget, effort=0.01) if budget else module
        compiled(x).backward()
        results.append([p.grad for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_constant_with_the_name_of_a_tensor_is_found() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.create_node("call_function", torch.ops.aten.mul.Tensor, (x, 0.5), name="y")
    graph.output([y])
    module = fx.GraphModule({}, graph)
    function: Any = codegen.boxed(module)
    constants = {name: value for name, value in function.__globals__.items() if name.startswith("constant")}
    checks.check_source(function.source, constants, module)
    name = next(name for name, value in constants.items() if value == 0.5)
    with pytest.raises(EmittedFault, match="is not what y"):
        checks.check_source(function.source.replace(name, "x"), {**constants, "x": 0.5}, module)


def test_the_checks_take_linear_time() -> None:
    """Ten times the layers take about ten times as long, and not a hundred times."""
    def seconds(n_layers: int) -> float:
        graph = fx.Graph()
        x = graph.placeholder("x")
        for _ in range(n_layers):
            x = graph.call_function(torch.ops.aten.mul.Tensor, (x, 0.5))
        graph.output([x])
        module = fx.GraphModule({}, graph)
        function: Any = codegen.boxed(module)
        begin = time.process_time()
        checks.check_source(function.source, function.__globals__, module)
        return time.process_time() - begin

    # The fastest of three, since other processes may take the processor for a while. Collecting garbage takes as long as the
    # process is old.
    gc.disable()
    try:
        few, many = (min(seconds(n_layers) for _ in range(3)) for n_layers in (400, 4000))
    finally:
        gc.enable()
    assert many < 40 * few
