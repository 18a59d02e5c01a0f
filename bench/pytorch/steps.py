"""Runs training steps of one model in PyTorch on demand: one of the engines that `compare.py` drives.

    python steps.py resnet152 batch=8 --threads 2 --shared FOLDER [--channels-last] [--inductor]

Reads one word per line from standard input and answers each with one line of JSON:

    step      one training step with the next batch: {"seconds": ..., "loss": ...}
    resident  the highest resident size of this process so far: {"bytes": ...}
    live      one more step, slower, in which all live storages are counted: {"bytes": ...}

The step is PyTorch in f32 with Adam, eager or compiled with Inductor: forward, loss, backward, update; gradients are dropped after
each step. The update is the fused one, which is PyTorch's fastest on a CPU. The folder has the weights to start from and a batch for
every step, written by our engine (`crates/remat/examples/steps.rs --share`), which runs a step first.
"""

import argparse
import json
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import models

# name -> constructor, its options with the defaults of the Rust twin. `batch`, `image` and `seq` describe the data.
TRANSFORMER = dict(vocab=30_000, seq=128, dim=512, layers=6, heads=8, ff=2048, dropout=0.1)
GPT = dict(vocab=50_257, seq=2048, dim=1024, layers=12, heads=8, dropout=0.0)
MODELS = {
    "transformer": (models.Transformer, TRANSFORMER),
    "gpt": (models.Gpt, GPT),
    **{f"resnet{depth}": (partial(models.resnet, depth), dict(classes=1000)) for depth in (18, 34, 50, 101, 152)},
}


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, each once, and remembers the most there ever were."""

    def __init__(self, tensors: list[torch.Tensor]):
        super().__init__()
        self.known: set[int] = set()
        self.now = self.peak = 0
        self.add(tensors)

    def add(self, values) -> None:
        for tensor in tree_leaves(values):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self.known:
                self.known.add(key)
                self.now += size
                weakref.finalize(storage, self.remove, key, size)
        self.peak = max(self.peak, self.now)

    def remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.add((args, kwargs, result))
        return result


class Engine:
    """A model and its optimizer, with the weights and batches of a folder."""

    def __init__(self, name: str, options: dict[str, float], folder: Path, channels_last: bool, inductor: bool):
        build, defaults = MODELS[name]
        unknown = set(options) - set(defaults) - {"batch", "image"}
        if unknown:
            sys.exit(f"{name} has no option {', '.join(sorted(unknown))}")
        sizes = defaults | {key: value for key, value in options.items() if key in defaults}
        batch = options.get("batch", 8)
        torch.manual_seed(1)
        self.folder, self.done, self.channels_last = folder, 0, channels_last
        self.model = build(**sizes).train()
        weights = load_file(folder / "weights.safetensors")
        missing, unknown = self.model.load_state_dict(weights, strict=False)
        if unknown or any(not name.endswith("num_batches_tracked") for name in missing):
            sys.exit(f"other weights than those of our engine: missing {missing}, unknown {unknown}")
        if "vocab" in sizes:
            self.shapes = {"input": (np.int32, (batch, sizes["seq"])), "labels": (np.int32, (batch, sizes["seq"]))}
        else:
            image = options.get("image", 224)
            self.shapes = {"input": (np.float32, (batch, image, image, 3)), "labels": (np.int32, (batch,))}
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.run = torch.compile(self.model) if inductor else self.model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.inputs = self.labels = None

    def next_batch(self) -> None:
        """Reads the batch of the next step, as our engine has written it."""
        self.done += 1
        loaded = {}
        for name, (dtype, shape) in self.shapes.items():
            file = self.folder / f"{self.done}-{name}.bin"
            loaded[name] = torch.from_numpy(np.fromfile(file, dtype=dtype).reshape(shape))
        self.inputs, self.labels = loaded["input"], loaded["labels"].long()
        if self.inputs.dtype == torch.float32:
            format = torch.channels_last if self.channels_last else torch.contiguous_format
            self.inputs = self.inputs.permute(0, 3, 1, 2).contiguous(memory_format=format)
        else:
            self.inputs = self.inputs.long()

    def step(self) -> float:
        loss = models.loss(self.run(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed_step(self) -> dict[str, float]:
        self.next_batch()
        begin = time.perf_counter()
        loss = self.step()
        return {"seconds": time.perf_counter() - begin, "loss": loss}

    def live(self) -> dict[str, int]:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        resting = [*self.model.parameters(), *self.model.buffers(), self.inputs, self.labels, *state]
        with LiveStorages(resting) as storages:
            self.step()
        return {"bytes": storages.peak}


def resident_peak() -> dict[str, int]:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return {"bytes": int(line.split()[1]) * 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--shared", type=Path, required=True, help="folder of weights and batches")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--inductor", action="store_true", help="compile the model")
    parser.add_argument("options", nargs="*", metavar="NAME=N", help="sizes, such as batch=8")
    args = parser.parse_intermixed_args()
    torch.set_num_threads(args.threads)
    pairs = (option.split("=") for option in args.options)
    options = {name: float(value) if name == "dropout" else int(value) for name, value in pairs}
    engine = Engine(args.model, options, args.shared, args.channels_last, args.inductor)
    answers = {"step": engine.timed_step, "resident": resident_peak, "live": engine.live}
    capability = torch.backends.cpu.get_cpu_capability()
    print(json.dumps({"version": torch.__version__, "instruction_set": capability}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answers[line.strip()]()), flush=True)


if __name__ == "__main__":
    main()
