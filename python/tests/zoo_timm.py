"""Vision models of timm, small ones or shortened, for the sweep over everything (bench/torch_sweep.py) and, in part, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from zoo import N_CLASSES, WithLoss

Made = tuple[nn.Module, tuple[Any, ...]]


def _model(name: str, size: int = 64, n: int = 2, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=N_CLASSES, **options)
        return WithLoss(model), (torch.randn(n, 3, size, size), torch.randint(0, N_CLASSES, (n,)))

    return make


def _mixer(block: str, mlp: str = "Mlp", **options: Any) -> Callable[[], Made]:
    """Perceptrons over patches and channels, with one of timm's blocks."""

    def make() -> Made:
        from timm.models import mlp_mixer

        model = mlp_mixer.MlpMixer(
            N_CLASSES, img_size=64, patch_size=16, num_blocks=3, embed_dim=64, block_layer=getattr(mlp_mixer, block),
            mlp_layer=getattr(mlp_mixer, mlp), **options,
        )  # fmt: skip
        return WithLoss(model), (torch.randn(4, 3, 64, 64), torch.randint(0, N_CLASSES, (4,)))

    return make


def _convmixer() -> Made:
    from timm.models.convmixer import ConvMixer

    model = ConvMixer(dim=48, depth=3, kernel_size=5, patch_size=4, num_classes=N_CLASSES)
    return WithLoss(model), (torch.randn(2, 3, 32, 32), torch.randint(0, N_CLASSES, (2,)))


def _sequencer() -> Made:
    """LSTMs over rows and columns of the picture."""
    from timm.models.sequencer import Sequencer2d

    model = Sequencer2d(
        num_classes=N_CLASSES, img_size=16, layers=(1,), patch_sizes=(4,), embed_dims=(24,), hidden_sizes=(8,), mlp_ratios=(2.0,)
    )
    return WithLoss(model), (torch.randn(8, 3, 16, 16), torch.randint(0, N_CLASSES, (8,)))


TIMM: dict[str, Callable[[], Made]] = {
    "timm_resnet": _model("test_resnet"),
    "timm_vit": _model("test_vit", img_size=64),
    "timm_vit_registers": _model("test_vit2", img_size=64),
    "timm_vit_rope": _model("test_vit4", img_size=64),
    "timm_convnext": _model("test_convnext"),
    "timm_efficientnet": _model("test_efficientnet"),
    "timm_efficientnet_evonorm": _model("test_efficientnet_evos"),
    "timm_byobnet": _model("test_byobnet"),
    "timm_nfnet": _model("test_nfnet"),
    "timm_mambaout": _model("test_mambaout"),
    "timm_sequencer2d": _sequencer,
    "timm_mixer": _mixer("MixerBlock"),
    "timm_gmlp": _mixer("SpatialGatingBlock", "GatedMlp", mlp_ratio=4),
    "timm_resmlp": _mixer("ResBlock", mlp_ratio=4),
    "timm_convmixer": _convmixer,
    "timm_tiny_vit": _model("tiny_vit_5m_224", depths=[1, 1, 2, 1], embed_dims=[16, 32, 64, 64], num_heads=[1, 2, 4, 4]),
    "timm_levit": _model("levit_128s", size=224),
    "timm_pit": _model("pit_ti_224", size=224, n=1, depth=[1, 1, 1]),
    "timm_cait": _model("cait_xxs24_224", img_size=64, depth=3),
    "timm_xcit": _model("xcit_nano_12_p16_224", depth=3),
    "timm_poolformer": _model("poolformer_s12"),
    "timm_pvt_v2": _model("pvt_v2_b0", depths=(1, 1, 1, 1)),
    "timm_mobilevit": _model("mobilevit_xxs"),
    "timm_edgenext": _model("edgenext_xx_small", depths=(1, 1, 2, 1)),
    "timm_ghostnet": _model("ghostnet_050"),
    "timm_repvit": _model("repvit_m0_9"),
    "timm_starnet": _model("starnet_s1", depths=(1, 1, 2, 1)),
    "timm_swin_v2": _model("swinv2_tiny_window8_256", img_size=64, depths=(1, 1, 1, 1), embed_dim=24, window_size=2),
    "timm_eva02": _model("eva02_tiny_patch14_224", size=56, img_size=56, depth=3),
    "timm_res2net": _model("res2net50_26w_4s", layers=[1, 1, 1, 1]),
    "timm_skresnet": _model("skresnet18", layers=[1, 1, 1, 1]),
    "timm_resnest": _model("resnest14d", layers=[1, 1, 1, 1]),
    "timm_visformer": _model("visformer_tiny", img_size=64, depth=(2, 1, 1)),
    "timm_fastvit": _model("fastvit_t8"),
    "timm_hrnet": _model("hrnet_w18_small"),
}
