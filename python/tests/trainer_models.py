"""Models, data and helpers of the trainer tests, and what a training run leaves behind.

Models come from configurations, tokens and pictures from arithmetic: nothing is downloaded. Data are made on the fly, because a
dataset in memory would be measured, too.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, LENGTH, BATCH, WIDTH = 256, 48, 8, 48


@dataclass
class Outcome:
    """What a training run leaves behind."""

    peak: int
    tensors: dict[str, torch.Tensor]


def same_bits(a: Outcome, b: Outcome) -> bool:
    keys = a.tensors.keys()
    return keys == b.tensors.keys() and all(torch.equal(a.tensors[key], b.tensors[key]) for key in keys)


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of all tensors; of sharded ones, what this process has."""
    local = lambda tensor: tensor.to_local() if hasattr(tensor, "to_local") else tensor  # noqa: E731
    return {name: local(tensor).detach().clone() for name, tensor in module.state_dict().items()}


class Tokens(torch.utils.data.Dataset):
    """Sentences by arithmetic."""

    def __init__(self, n: int = 64, with_labels: bool = True) -> None:
        self.n, self.with_labels = n, with_labels

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        tokens = [3 + (index * 7 + place * (1 + index % 5)) % (VOCABULARY - 3) for place in range(LENGTH)]
        return {"input_ids": tokens, **({"labels": tokens} if self.with_labels else {})}


def collate(items: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor([item[key] for item in items]) for key in items[0]}


def language_model(name: str, n_layers: int = 2, width: int = WIDTH) -> nn.Module:
    """GPT-2, Llama or BERT, with two layers unless told otherwise."""
    import transformers as hf

    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if name == "gpt2":
        config = hf.GPT2Config(n_layer=n_layers, n_embd=width, n_head=2, n_positions=LENGTH, **common)
        return hf.GPT2LMHeadModel(config)
    sizes = {
        "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": n_layers, "num_attention_heads": 2,
    }  # fmt: skip
    if name == "llama":
        config = hf.LlamaConfig(max_position_embeddings=LENGTH, num_key_value_heads=1, **sizes, **common)
        return hf.LlamaForCausalLM(config)
    return hf.BertForMaskedLM(hf.BertConfig(max_position_embeddings=LENGTH, **sizes, **common))


def gpt2() -> nn.Module:
    return language_model("gpt2")


def llama() -> nn.Module:
    return language_model("llama")


def bert() -> nn.Module:
    return language_model("bert")


def tall() -> nn.Module:
    """For TRL, whose loss holds 128 KiB for every token whatever the model: the model must be of about that size to matter."""
    return language_model("gpt2", n_layers=3, width=256)


def adapter() -> nn.Module:
    return lora(gpt2())


def lora(model: nn.Module) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"))


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{index}": index for index in range(3, VOCABULARY)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


class Classifier(nn.Module):
    """A module that returns its loss."""

    def __init__(self, checkpointing: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = lambda: nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))  # noqa: E731
        self.layers = nn.ModuleList(layer() for _ in range(3))
        self.head = nn.Linear(64, 10)
        self.checkpointing = checkpointing

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        return nn.functional.cross_entropy(self.head(x), y)


class Pictures(torch.utils.data.Dataset):
    """Made on the fly from the index."""

    def __init__(self, n: int = 1024) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


def loader(batch: int = 256) -> Any:
    return torch.utils.data.DataLoader(Pictures(), batch_size=batch)


def lightning_module(checkpointing: bool = False) -> Any:
    import lightning.pytorch as pl

    class Lit(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Classifier(checkpointing)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(x, y)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self(*batch)

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("loss", self(*batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Lit()


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Stands for the trainer with the callback but without a budget, where torch.compile itself changes bits.
COMPILED = "compiled without a budget"


def options(budget: Any) -> dict[str, Any]:
    return {"budget": None if budget == COMPILED else budget, "effort": 0.01}


def callbacks(budget: Any) -> list[Any]:
    return [] if budget is None else [remat.RematCallback(**options(budget))]
