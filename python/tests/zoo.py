"""The models of the tests, each with a batch, as a module that returns its loss.

Topologies are the real ones; widths and inputs are small, because what is tested is exact at any size and the deep ones run
more than thirty steps each.

The wrappers have the model as `model`, and `scores`, which gives what a loss outside of the model would take: scores in their
second dimension, and classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

N_CLASSES = 10
Scores = tuple[torch.Tensor, torch.Tensor]


class WithLoss(nn.Module):
    """A classifier and its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(*self.scores(x, target))

    def scores(self, x: torch.Tensor, target: torch.Tensor) -> Scores:
        return self.model(x), target


class LossOnly(nn.Module):
    """A model of the transformers library that computes its own loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, labels=labels, use_cache=False).loss

    def scores(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Scores:
        return self.model(input_ids=input_ids, use_cache=False).logits.flatten(0, 1), labels.flatten()


class MaskedLoss(nn.Module):
    """BERT, which has no key-value cache to switch off."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, labels=labels).loss

    def scores(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Scores:
        return self.model(input_ids=input_ids).logits.flatten(0, 1), labels.flatten()


class TokenLoss(nn.Module):
    """A model that gives scores for every token, and its loss; the last argument has the tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(*self.scores(*batch))

    def scores(self, *batch: torch.Tensor) -> Scores:
        return self.model(*batch[:-1]).flatten(0, 1), batch[-1].flatten()


def _vision(name: str, size: int = 64, **options: Any) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        from torchvision import models

        model = getattr(models, name)(num_classes=N_CLASSES, **options)
        return WithLoss(model), (torch.randn(4, 3, size, size), torch.randint(0, N_CLASSES, (4,)))

    return make


def _densenet() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.models import DenseNet

    model = DenseNet(growth_rate=8, block_config=(6, 12, 24, 16), num_init_features=16, num_classes=N_CLASSES)
    return WithLoss(model), (torch.randn(2, 3, 32, 32), torch.randint(0, N_CLASSES, (2,)))


def _vit() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(32, 8, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128, dropout=0.1, num_classes=N_CLASSES)
    return WithLoss(model), (torch.randn(8, 3, 32, 32), torch.randint(0, N_CLASSES, (8,)))


class _Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(64, 4, 2, 2, 128, dropout=0.1, batch_first=True)
        self.head = nn.Linear(64, N_CLASSES)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.head(self.transformer(source, target))


def _transformer() -> tuple[nn.Module, tuple[Any, ...]]:
    return TokenLoss(_Translator()), (torch.randn(8, 24, 64), torch.randn(8, 20, 64), torch.randint(0, N_CLASSES, (8, 20)))


def _tokens(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, vocabulary, (4, 32))
    return ids, ids


def _gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=211, n_positions=64, n_embd=64, n_layer=3, n_head=4)
    return LossOnly(GPT2LMHeadModel(config)), _tokens(211)


def _bert() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=211, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64,
    )  # fmt: skip
    return MaskedLoss(BertForMaskedLM(config)), _tokens(211)


def _llama() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=211, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=64,
    )  # fmt: skip
    return LossOnly(LlamaForCausalLM(config)), _tokens(211)


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    """A small network with dropout, for tests of everything but models."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.3))]
    return WithLoss(nn.Sequential(*layers, nn.Linear(64, N_CLASSES))), (
        torch.randn(256, 64),
        torch.randint(0, N_CLASSES, (256,)),
    )


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "resnet18": _vision("resnet18", 32),
    "resnet50": _vision("resnet50", 32, width_per_group=16),
    "resnet152": _vision("resnet152", 32, width_per_group=8),
    "mobilenet_v3_small": _vision("mobilenet_v3_small", 32),
    "densenet121": _densenet,
    "vit": _vit,
    "transformer": _transformer,
    "gpt2": _gpt2,
    "bert": _bert,
    "llama": _llama,
}


def make(name: str, seed: int = 0) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model in training mode and its batch, from a seed."""
    torch.manual_seed(seed)
    model, batch = mlp() if name == "mlp" else MODELS[name]()
    return model.train(), batch
