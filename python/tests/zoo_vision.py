"""More vision models, for the sweep over everything (bench/torch_sweep.py) and, in part, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from zoo import N_CLASSES, Scores, WithLoss

Made = tuple[nn.Module, tuple[Any, ...]]


class FirstOutput(nn.Module):
    """A classifier whose result in training has an auxiliary part: both enter the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        result = self.model(x)
        parts = [part for part in result if part is not None]
        return sum((F.cross_entropy(part, target) for part in parts), torch.zeros(()))

    def scores(self, x: torch.Tensor, target: torch.Tensor) -> Scores:
        result = self.model(x)
        return torch.stack([part for part in result if part is not None]).sum(0), target


class PixelLoss(nn.Module):
    """A segmentation model and its loss per pixel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(*self.scores(x, target))

    def scores(self, x: torch.Tensor, target: torch.Tensor) -> Scores:
        return self.model(x)["out"], target


def _images(n: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 3, size, size), torch.randint(0, N_CLASSES, (n,))


def _classifier(name: str, size: int = 64, n: int = 2, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        from torchvision import models

        return WithLoss(getattr(models, name)(num_classes=N_CLASSES, **options)), _images(n, size)

    return make


def _with_auxiliary(name: str, size: int) -> Callable[[], Made]:
    def make() -> Made:
        from torchvision import models

        model = getattr(models, name)(num_classes=N_CLASSES, init_weights=False, aux_logits=True)
        return FirstOutput(model), _images(2, size)

    return make


def _segmentation(name: str) -> Callable[[], Made]:
    def make() -> Made:
        from torchvision.models import segmentation

        model = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=N_CLASSES)
        return PixelLoss(model), (torch.randn(2, 3, 48, 48), torch.randint(0, N_CLASSES, (2, 48, 48)))

    return make


def _swin() -> Made:
    from torchvision.models import SwinTransformer

    model = SwinTransformer(
        [4, 4], 24, [2, 2], [2, 4], window_size=[4, 4], num_classes=N_CLASSES, dropout=0.1, stochastic_depth_prob=0.1
    )
    return WithLoss(model), _images(2, 64)


def _maxvit() -> Made:
    from torchvision.models import MaxVit

    model = MaxVit((64, 64), 16, 2, [16, 32], [1, 1], 8, 0.2, num_classes=N_CLASSES)
    return WithLoss(model), _images(2, 64)


def _video() -> Made:
    from torchvision.models.video import r3d_18

    return WithLoss(r3d_18(num_classes=N_CLASSES)), (torch.randn(2, 3, 4, 32, 32), torch.randint(0, N_CLASSES, (2,)))


class UNet(nn.Module):
    """Three levels down and up again, with skip connections by concatenation."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in reversed(sizes[:-1]))
        self.join = nn.ModuleList(_double(2 * a, a) for a in reversed(sizes[:-1]))
        self.head = nn.Conv2d(width, N_CLASSES, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        skips = []
        for index, block in enumerate(self.down):
            x = block(x if index == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return {"out": self.head(x)}


def _double(n_in: int, n_out: int) -> nn.Sequential:
    layers = [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(n_out, n_out, 3, padding=1), nn.GroupNorm(2, n_out), nn.SiLU(inplace=True))


def _unet() -> Made:
    return PixelLoss(UNet()), (torch.randn(2, 3, 32, 32), torch.randint(0, N_CLASSES, (2, 32, 32)))


def _channels_last() -> Made:
    from torchvision.models import resnet18

    model = resnet18(num_classes=N_CLASSES).to(memory_format=torch.channels_last)
    x, target = _images(4, 32)
    return WithLoss(model), (x.to(memory_format=torch.channels_last), target)


def _in_bfloat16() -> Made:
    from torchvision.models import resnet18

    x, target = _images(4, 32)
    return WithLoss(resnet18(num_classes=N_CLASSES).to(torch.bfloat16)), (x.to(torch.bfloat16), target)


VISION: dict[str, Callable[[], Made]] = {
    "alexnet": _classifier("alexnet", 64),
    "vgg11": _classifier("vgg11", 32),
    "vgg16_bn": _classifier("vgg16_bn", 32),
    "squeezenet1_1": _classifier("squeezenet1_1", 64),
    "shufflenet_v2_x0_5": _classifier("shufflenet_v2_x0_5"),
    "mobilenet_v2": _classifier("mobilenet_v2"),
    "mnasnet0_5": _classifier("mnasnet0_5"),
    "efficientnet_b0": _classifier("efficientnet_b0"),
    "efficientnet_v2_s": _classifier("efficientnet_v2_s"),
    "convnext_tiny": _classifier("convnext_tiny"),
    "regnet_y_400mf": _classifier("regnet_y_400mf"),
    "resnext50": _classifier("resnext50_32x4d", 32),
    "wide_resnet50_2": _classifier("wide_resnet50_2", 32),
    "googlenet": _with_auxiliary("googlenet", 64),
    "inception_v3": _classifier("inception_v3", 96, init_weights=False, aux_logits=False),
    "swin": _swin,
    "maxvit": _maxvit,
    "fcn_resnet50": _segmentation("fcn_resnet50"),
    "deeplabv3_mobilenet": _segmentation("deeplabv3_mobilenet_v3_large"),
    "lraspp": _segmentation("lraspp_mobilenet_v3_large"),
    "video_r3d_18": _video,
    "unet": _unet,
    "resnet18_channels_last": _channels_last,
    "resnet18_bfloat16": _in_bfloat16,
}
