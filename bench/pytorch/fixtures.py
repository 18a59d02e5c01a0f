"""Writes what PyTorch computes from the generated weights, for the Rust tests to compare with.

    python fixtures.py            writes crates/remat/tests/fixtures/pytorch/*.json
    python fixtures.py --check    computes again and compares with the files; exit 1 when one differs
    python fixtures.py --search   looks for inputs whose ReLUs are all clearly on or off (see INPUTS)

Every number is computed twice, in f32 and in f64 from the same f32 weights: the distance of the two is the noise that
an f32 engine may show. Pairs are written as [f32, f64]. Of each gradient the files hold the L2 norm, the sum, the dot
product with r(name + ".probe") (which no permutation of the elements survives) and eight elements: the four largest
and four picked by ids(name + ".sample"). Dropout is off, batch norm uses batch statistics.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

import models
import weights

FOLDER = Path(__file__).resolve().parents[2] / "crates/remat/tests/fixtures/pytorch"

TOKENS = dict(vocab=1000, seq=16, dim=64, layers=2, heads=4, ff=128, dropout=0.0)
DECODER = dict(vocab=1000, seq=16, dim=64, layers=2, heads=4, dropout=0.0)

# name -> (constructor, its options, options of the data, norms whose running statistics are recorded).
# Both kinds of options together are the options of the Rust model.
MODELS = {
    "mlp": (models.Mlp, dict(features=64, width=48, layers=2, classes=10), dict(batch=4), []),
    "resnet18": (partial(models.resnet, 18), dict(classes=1000), dict(batch=2, image=64), ["bn1", "layer4.1.bn2"]),
    "resnet50": (
        partial(models.resnet, 50),
        dict(classes=1000),
        dict(batch=2, image=40),
        ["bn1", "layer2.0.downsample.1", "layer4.2.bn3"],
    ),
    "unet": (
        models.Unet,
        dict(classes=2, width=8),
        dict(batch=2, image=32),
        ["inc.double_conv.1", "up4.conv.double_conv.4"],
    ),
    "transformer": (models.Transformer, TOKENS, dict(batch=3), []),
    "bert": (models.Bert, TOKENS, dict(batch=3), []),
    "gpt": (models.Gpt, DECODER, dict(batch=3), []),
}


# Names of input tensors. Among a million inputs of ReLUs some lie within rounding of zero; an f32 engine may switch
# such a unit on where f64 has it off, and although the loss hardly moves, the gradient then changes by as much as a
# thousandth. These inputs, found by --search, keep every ReLU further than MARGIN from its kink.
INPUTS = {"resnet18": "input.180", "resnet50": "input.304", "unet": "input.374"}
MARGIN = 4e-6
SEARCHED = 400


def build(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The model with generated weights in training mode, its input and its labels."""
    constructor, options, data, _ = MODELS[name]
    model = constructor(**options).train()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights.parameter(key, tuple(parameter.shape))))
    model, batch = model.to(dtype), data["batch"]
    if "vocab" in options:
        shape, limit = (batch, options["seq"]), options["vocab"]
        x = torch.from_numpy(weights.ids("input", shape, limit))
        return model, x, torch.from_numpy(weights.ids("labels", shape, limit))
    image = [data["image"]] * 2 if "image" in data else []
    shape = (batch, 3, *image) if image else (batch, options["features"])
    x = torch.from_numpy(weights.image(INPUTS.get(name, "input"), shape)).to(dtype)
    labels = (batch, *image) if name == "unet" else (batch,)
    return model, x, torch.from_numpy(weights.ids("labels", labels, options["classes"]))


class Margin:
    """The distance to zero of the nearest input of any ReLU module, over the forward passes since `reset`."""

    def __init__(self, model: torch.nn.Module):
        self.reset()
        for module in model.modules():
            if isinstance(module, torch.nn.ReLU):
                module.inplace = False
                module.register_forward_pre_hook(lambda _, inputs: self.see(inputs[0].detach()))

    def reset(self):
        self.nearest = float("inf")

    def see(self, x: torch.Tensor):
        self.nearest = min(self.nearest, x.abs().min().item())


def search(name: str) -> tuple[float, str]:
    """The largest margin among the candidates, and the name of its input."""
    model, x, _ = build(name, torch.float64)
    margin, found = Margin(model), []
    for k in range(SEARCHED):
        margin.reset()
        with torch.no_grad():
            model(torch.from_numpy(weights.image(f"input.{k}", tuple(x.shape))).double())
        found.append((margin.nearest, f"input.{k}"))
    return max(found)


def pair(f32, f64) -> list[float]:
    """[f32, f64] with as many digits as each kind of number carries."""
    return [float(f"{float(f32):.9g}"), float(f"{float(f64):.13g}")]


def gradient_facts(name: str, f32: torch.Tensor, f64: torch.Tensor) -> dict:
    """Norm, sum, probe and eight elements of one parameter's gradient."""
    shape = list(f64.shape)
    flat = [g.detach().numpy().astype(np.float64).ravel() for g in (f32, f64)]
    count = flat[1].size
    largest = np.argsort(-np.abs(flat[1]), kind="stable")[:4]
    picked = weights.ids(name + ".sample", (4,), count)
    indices = sorted({int(i) for i in [*largest, *picked]})
    probe = weights.centred(name + ".probe", (count,))
    return {
        "name": name,
        "shape": shape,
        "norm": pair(*(np.linalg.norm(g) for g in flat)),
        "sum": pair(*(g.sum() for g in flat)),
        "probe": pair(*(g @ probe for g in flat)),
        "indices": indices,
        "values": [pair(flat[0][i], flat[1][i]) for i in indices],
    }


def model_fixture(name: str) -> dict:
    """Loss, gradients and running statistics of one step."""
    _, options, data, recorded = MODELS[name]
    runs = []
    for dtype in (torch.float32, torch.float64):
        model, x, labels = build(name, dtype)
        margin = Margin(model)
        loss = models.loss(model(x), labels)
        loss.backward()
        runs.append((model, loss.item()))
    if margin.nearest < MARGIN:
        raise SystemExit(f"{name}: an input of a ReLU is only {margin.nearest:.1e} from zero; run --search")
    (single, loss32), (double, loss64) = runs
    grads = [p.grad for p in double.parameters()]
    fixture = {"model": name, "torch": torch.__version__.split("+")[0], "options": data | options}
    fixture["input"] = INPUTS.get(name, "input")
    fixture["loss"] = pair(loss32, loss64)
    fixture["gradient_norm"] = float(f"{float(torch.stack([g.norm() for g in grads]).norm()):.9g}")
    fixture["parameters"] = [
        gradient_facts(key, p.grad, q.grad)
        for (key, p), (_, q) in zip(single.named_parameters(), double.named_parameters())
    ]
    fixture["buffers"] = [
        {"name": key, "values": [pair(a, b) for a, b in zip(single.get_buffer(key)[:8], double.get_buffer(key)[:8])]}
        for layer in recorded
        for key in (f"{layer}.running_mean", f"{layer}.running_var")
    ]
    return fixture


def training_fixture() -> dict:
    """Four losses on one batch: before any update and after each of three."""
    recipes = {
        "transformer": (torch.optim.Adam, dict(lr=1e-3)),
        "resnet18": (torch.optim.SGD, dict(lr=0.001, momentum=0.9)),
        "gpt": (torch.optim.AdamW, dict(lr=3e-4, weight_decay=0.1)),
    }
    runs = []
    for name, (kind, options) in recipes.items():
        losses = []
        for dtype in (torch.float32, torch.float64):
            model, x, labels = build(name, dtype)
            optimizer = kind(model.parameters(), **options)
            series = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = models.loss(model(x), labels)
                series.append(loss.item())
                loss.backward()
                optimizer.step()
            losses.append(series)
        pairs = [pair(a, b) for a, b in zip(*losses)]
        runs.append({"model": name, "optimizer": kind.__name__.lower(), "options": options, "losses": pairs})
    return {"torch": torch.__version__.split("+")[0], "runs": runs}


def optimizer_fixture() -> dict:
    """Five updates of a ten-element parameter; gradients are sqrt(12) * r("gradient.<step>")."""
    recipes = [
        ("sgd", torch.optim.SGD, dict(lr=0.1)),
        ("sgd", torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
        ("sgd", torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
        ("sgd", torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
        ("adam", torch.optim.Adam, dict(lr=1e-3)),
        ("adam", torch.optim.Adam, dict(lr=1e-2, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.01)),
        ("adamw", torch.optim.AdamW, dict(lr=1e-3, weight_decay=0.01)),
        ("adamw", torch.optim.AdamW, dict(lr=1e-2, betas=[0.9, 0.95], weight_decay=0.1)),
    ]
    start = weights.image("parameter", (10,))
    gradients = [weights.image(f"gradient.{step}", (10,)) for step in range(5)]
    runs = []
    for name, kind, options in recipes:
        after = []
        for dtype in (torch.float32, torch.float64):
            parameter = torch.nn.Parameter(torch.from_numpy(start).to(dtype, copy=True))
            optimizer = kind([parameter], foreach=False, **options)
            series = []
            for gradient in gradients:
                parameter.grad = torch.from_numpy(gradient).to(dtype)
                optimizer.step()
                series.append(parameter.detach().clone())
            after.append(series)
        steps = [[pair(a, b) for a, b in zip(s32, s64)] for s32, s64 in zip(*after)]
        runs.append({"optimizer": name, "options": options, "steps": steps})
    return {
        "torch": torch.__version__.split("+")[0],
        "start": [float(f"{x:.9g}") for x in start],
        "gradients": [[float(f"{x:.9g}") for x in g] for g in gradients],
        "runs": runs,
    }


def generator_fixture() -> dict:
    """A few generated tensors, so that a fault of the generator is not taken for one of the engine."""
    shapes = {"layer1.0.conv1.weight": (4, 3, 2, 2), "bn1.weight": (6,), "bn1.bias": (6,), "layer1.0.bn3.weight": (6,)}
    return {
        "parameters": [
            {"name": k, "shape": list(s), "values": [float(f"{x:.9g}") for x in weights.parameter(k, s).ravel()]}
            for k, s in shapes.items()
        ],
        "input": [float(f"{x:.9g}") for x in weights.image("input", (12,))],
        "labels": [int(i) for i in weights.ids("labels", (12,), 1000)],
    }


def differences(path: str, committed, computed, scale: float = 1.0) -> list[str]:
    """Every place where two fixtures differ by more than rounding; a list [f32, f64] is compared as a pair."""
    if isinstance(committed, dict) and isinstance(computed, dict):
        if committed.keys() != computed.keys():
            return [f"{path}: keys {sorted(committed)} against {sorted(computed)}"]
        scale = computed.get("norm", [0, scale])[1] or scale
        # The version is a note for the reader: other versions must give the same numbers.
        keys = [k for k in committed if k != "torch"]
        return [d for k in keys for d in differences(f"{path}.{k}", committed[k], computed[k], scale)]
    if isinstance(committed, list) and isinstance(computed, list):
        if len(committed) != len(computed):
            return [f"{path}: {len(committed)} entries against {len(computed)}"]
        entries = enumerate(zip(committed, computed))
        return [d for i, (a, b) in entries for d in differences(f"{path}[{i}]", a, b, scale)]
    if isinstance(committed, float) and isinstance(computed, float):
        # The f32 half of a pair depends on the machine's vector width.
        tolerance = 1e-3 if path.endswith("[0]") else 1e-8
        if abs(committed - computed) <= tolerance * max(scale, abs(computed)) + 1e-9:
            return []
    elif committed == computed:
        return []
    return [f"{path}: {committed} against {computed}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing them")
    parser.add_argument("--search", action="store_true", help="look for better inputs and print their names")
    parser.add_argument("names", nargs="*", help="fixtures to handle; all when none is given")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)

    if arguments.search:
        for name in arguments.names or INPUTS:
            margin, best = search(name)
            print(f"{name}: {best} keeps every ReLU {margin:.1e} from its kink")
        return 0

    makers = {name: lambda name=name: model_fixture(name) for name in MODELS}
    makers |= {"training": training_fixture, "optimizers": optimizer_fixture, "generator": generator_fixture}
    faults = []
    for name in arguments.names or makers:
        fixture, file = makers[name](), FOLDER / f"{name}.json"
        if arguments.check:
            found = differences(name, json.loads(file.read_text()), json.loads(json.dumps(fixture)))
            print(f"{name}: {'equal' if not found else f'{len(found)} differences'}")
            faults += found
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            # One list entry of the two top levels per line keeps differences readable.
            body = json.dumps(fixture)
            for key in ("parameters", "runs", "buffers"):
                body = body.replace(f'"{key}": [', f'\n"{key}": [\n')
            body = body.replace("}, {", "},\n{")
            file.write_text(body + "\n")
            print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB")
    for fault in faults[:50]:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
