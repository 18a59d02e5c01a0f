"""Small models, each for one form that a graph can take: effects, randomness, views, unusual types and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Made = tuple[nn.Module, tuple[Any, ...]]
Function = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Chain(nn.Module):
    """Linear layers with a function between them, `forward(x)` is a loss."""

    def __init__(self, between: Function, n_layers: int = 4, width: int = 32, **modules: nn.Module) -> None:
        super().__init__()
        self.between = between
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.between(self, layer(x))
        return x.square().mean()


def _chain(between: Function, **modules: Callable[[], nn.Module]) -> Callable[[], Made]:
    return lambda: (Chain(between, **{name: make() for name, make in modules.items()}), (torch.randn(64, 32),))


class Cube(torch.autograd.Function):
    """A function with a backward of its own that saves its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x / 10

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return dy * 3 * x * x / 10


class Counting(nn.Module):
    """Changes buffers while it computes: a counter, and a moving average that the result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.register_buffer("n_calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n_calls += 1
        for layer in self.layers:
            x = torch.tanh(layer(x) - self.average)
            with torch.no_grad():
                self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x + self.average).square().mean() / self.n_calls


class FrozenNorm(nn.BatchNorm1d):
    """Stays in evaluation mode, as when a backbone is fine-tuned."""

    def train(self, mode: bool = True) -> FrozenNorm:
        return super().train(False)


class Bags(nn.Module):
    """Embedding bags, a gather and a scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 32, mode="mean")
        self.body = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.body(self.bag(ids))
        picked = x.gather(1, ids[:, :8])
        spread = torch.zeros_like(x).scatter_add(1, ids[:, :8] % 32, picked)
        return (x.cumsum(1) + spread).sort(1).values.square().mean()


class Norms(nn.Module):
    """All normalisations and both parametrised forms."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 3, padding=1))
        self.second = nn.utils.parametrizations.spectral_norm(nn.Conv1d(8, 8, 3, padding=1))
        self.norms = nn.ModuleList([nn.InstanceNorm1d(8, affine=True, track_running_stats=True), nn.GroupNorm(2, 8)])
        self.norms.extend([nn.LayerNorm(64), nn.RMSNorm(64), nn.BatchNorm1d(8), nn.LocalResponseNorm(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(F.elu(self.first(x)))
        for norm in self.norms:
            x = F.hardswish(norm(x))
        return x.square().mean()


class Pictures(nn.Module):
    """Operations on images beyond convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.b = nn.ConvTranspose2d(8, 8, 2, stride=2, groups=2)
        self.c = nn.Conv3d(1, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.interpolate(self.b(F.prelu(self.a(x), torch.full((1,), 0.2))), scale_factor=0.5, mode="bilinear")
        theta = torch.eye(2, 3, dtype=x.dtype).expand(x.shape[0], 2, 3) * 0.9
        x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
        x = F.pixel_shuffle(F.pixel_unshuffle(x, 2), 2)
        x = self.c(x.unsqueeze(1)).flatten(1, 2)
        x = F.fold(F.unfold(x, 2, stride=2), x.shape[-2:], 2, stride=2)
        return F.adaptive_max_pool2d(F.avg_pool2d(F.max_pool2d(x, 2), 2), 2).square().mean()


class Spectrum(nn.Module):
    """Complex numbers inside a real model."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.filter = nn.Parameter(torch.randn(17, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.fft.irfft(torch.fft.rfft(layer(x)) * self.filter, n=32).tanh()
        return x.square().mean()


class Losses(nn.Module):
    """Several losses and several outputs of one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Mish(), nn.Linear(64, 32), nn.Softplus())

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = self.body(x)
        parts = F.huber_loss(z, x) + F.binary_cross_entropy_with_logits(z, y) + F.kl_div(F.log_softmax(z, 1), y.softmax(1))
        return parts + F.smooth_l1_loss(z, y) + F.triplet_margin_loss(z, y, x) + F.nll_loss(F.log_softmax(z, 1), y.argmax(1))


class Branches(nn.Module):
    """Inputs that need gradients, a layer that gets none, a parameter that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(32, 32)
        self.unused = nn.Linear(32, 32)
        self.frozen = nn.Linear(32, 32).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.frozen(x).sigmoid()
        a, b = (self.used(self.frozen(x)) * scale).chunk(2, 1)
        return (a.detach() * b).square().mean() + x.mean()


def _checkpointed(model: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda h: F.dropout(F.gelu(h), 0.2), x, use_reentrant=False)


def _in_place(model: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.mul_(0.5).clamp_(max=4.0)
    x[:, :4] += 1.0
    x[:, 4:8].mul_(2.0)
    return x


def _random(model: Any, x: torch.Tensor) -> torch.Tensor:
    noise = torch.randn_like(x) * torch.rand(x.shape[0], 1) + torch.bernoulli(torch.full_like(x, 0.5))
    return F.rrelu(x + 0.1 * noise, training=True) + F.gumbel_softmax(x, dim=1)


def _dropouts(model: Any, x: torch.Tensor) -> torch.Tensor:
    x = F.alpha_dropout(F.dropout(x, 0.1, training=True), 0.1, training=True)
    x = F.dropout2d(x.view(-1, 4, 4, 2), 0.2, training=True).view(-1, 32)
    return F.feature_alpha_dropout(F.dropout1d(x.view(-1, 4, 8), 0.2, training=True), 0.1, training=True).view(-1, 32)


def _views(model: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.view(8, 8, 32).transpose(0, 1).reshape(64, 32)
    a, b = y.t().contiguous().t().split(16, 1)
    return torch.cat([b.flip(1), torch.einsum("ni,mi->nm", a, b)[:, :16].expand(64, 16)], 1).roll(3, 0) / 4


def _selects(model: Any, x: torch.Tensor) -> torch.Tensor:
    top = x.topk(8, dim=1)
    masked = torch.where(x > x.median(dim=1, keepdim=True).values, x, x.new_zeros(()))
    return masked.index_add(1, torch.arange(8), top.values).masked_fill(x.isnan(), 0.0).tril().logcumsumexp(1).tanh()


def _sparse() -> Made:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32, sparse=True)
            self.head = nn.Linear(32, 32)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(ids)).square().mean()

    return Sparse(), (torch.randint(0, 50, (8, 8)),)


def _gradient_of_input() -> Made:
    return Branches(), (torch.randn(64, 32, requires_grad=True),)


def _in_double() -> Made:
    return Chain(lambda _, x: F.gelu(x)).double(), (torch.randn(64, 32, dtype=torch.float64),)


def _multihead() -> Made:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.encoder(x, mask=mask, is_causal=True).square().mean()

    return Encoder(), (torch.randn(4, 12, 32),)


def _autocast(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.gelu(x @ model.layers[0].weight).float()


def _softmax_of_large(model: Any, x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t()).softmax(1) @ x


FORMS: dict[str, Callable[[], Made]] = {
    "autograd_function": _chain(lambda _, x: Cube.apply(x)),
    "buffers_changed": lambda: (Counting(), (torch.randn(64, 32),)),
    "bags": lambda: (Bags(), (torch.randint(0, 32, (16, 12)),)),
    "norms": lambda: (Norms(), (torch.randn(4, 4, 64),)),
    "pictures": lambda: (Pictures(), (torch.randn(2, 3, 16, 16),)),
    "complex": lambda: (Spectrum(), (torch.randn(16, 32),)),
    "losses": lambda: (Losses(), (torch.randn(16, 32), torch.rand(16, 32))),
    "branches": _gradient_of_input,
    "double": _in_double,
    "sparse_gradient": _sparse,
    "multihead": _multihead,
    "checkpoint_inside": _chain(_checkpointed),
    "in_place": _chain(_in_place),
    "random": _chain(_random),
    "dropouts": _chain(_dropouts),
    "views": _chain(_views),
    "selects": _chain(_selects),
    "autocast_inside": _chain(_autocast),
    "large_products": _chain(_softmax_of_large),
    "batch_norm_twice": _chain(lambda model, x: model.norm(x).relu(), norm=lambda: nn.BatchNorm1d(32)),
    "batch_norm_frozen": _chain(lambda model, x: model.norm(x).relu(), norm=lambda: FrozenNorm(32).train()),
    "sync_free_norm": _chain(lambda model, x: model.norm(x), norm=lambda: nn.BatchNorm1d(32, track_running_stats=False)),
}
