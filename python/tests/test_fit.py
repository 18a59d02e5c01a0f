"""`python -m remat fit`: the estimate against a measured step, devices, and bad input."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from remat import fit
from remat.__main__ import main
from remat.devices import DEVICES, device
from remat.measure import measure_peak
from torch import nn

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2, **SIZES}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.0, **SIZES}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}
MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_hidden_layers": 1,
}  # fmt: skip


def write(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize("config", [LLAMA, BERT, GPT2, MIXTRAL], ids=lambda config: config["model_type"])
def test_the_estimate_for_a_cpu_is_within_one_percent_of_a_measured_step(config: dict[str, Any], tmp_path: Path) -> None:
    import transformers

    path = write(tmp_path, {**config, "resid_pdrop": 0.0, "attn_pdrop": 0.0})
    question = fit.Question(path, 4, 64, device("cpu"), "adamw", "fp32")
    found = fit.answer(question)
    settings = transformers.AutoConfig.from_pretrained(path)
    settings.use_cache = False
    model = getattr(transformers, config["architectures"][0])(settings).train()
    assert fit.use_capturable_experts(model, "fp32") == ("num_local_experts" in config)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 256, (4, 64))
    measured = []
    for _ in range(2):
        with measure_peak("cpu") as peak:
            outputs = remat.compile(model)(input_ids=tokens, labels=tokens.clone())
            outputs.loss.backward()
            del outputs
            optimizer.step()
            optimizer.zero_grad()
        measured.append(peak.bytes)
    assert found.keep_all_peak == pytest.approx(max(measured), rel=0.01)
    assert found.n_parameters == sum(p.numel() for p in model.parameters())


def test_a_gpu_gets_its_kernels_and_its_blocks(tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA)
    gpu = fit.answer(fit.Question(path, 2, 128, device("A100-40GB"), "adamw", "bf16"))
    model, example = fit.build(gpu.question)
    assert all(p.device.type == "meta" and p.dtype is torch.bfloat16 for p in model.parameters())
    step = fit._step(gpu.question, model, example, fit.Options(effort=fit.EFFORT))
    names = {str(op.node.target) for op in step.ops if op is not None}
    # transformers builds a mask while it is compiled, which the flash kernel does not take.
    assert {"aten._scaled_dot_product_efficient_attention.default", "aten.nll_loss_backward.default"} <= names
    assert "aten._softmax.default" not in names, "attention was not fused"
    assert all(value["bytes"] % 512 == 0 for value in json.loads(step.text)["values"])
    assert gpu.floor <= gpu.keep_all_peak < gpu.question.device.usable
    overheads = [price.overhead for price in gpu.prices]
    assert overheads == sorted(overheads, reverse=True) and overheads[0] > 0 == overheads[-1]
    assert any("512" in line for line in gpu.assumptions) and any("not measured on a GPU" in line for line in gpu.assumptions)


def test_the_largest_batch_and_length_are_about_the_largest() -> None:
    tight = device("1.2GB,100GB/s,10TFLOPS")
    assert tight.usable == 1_200_000_000 - 2**30
    question = fit.Question(f"{__name__}:attention", 2, 64, tight, "adamw", "bf16")
    found = fit.answer(question, with_largest=True)
    for name in ("batch", "seq"):
        at = fit.answer(dataclasses.replace(question, **{name: found.largest[name]}))
        assert at.floor == pytest.approx(tight.usable, rel=0.02)


class Attention(nn.Module):
    """No mask, so that a GPU takes the flash kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean()


def attention(batch: int, seq: int) -> tuple[nn.Module, Any]:
    return Attention(), (torch.zeros(batch, seq, 64, dtype=torch.bfloat16),)


def test_attention_without_a_mask_is_the_flash_kernel() -> None:
    question = fit.Question(f"{__name__}:attention", 2, 128, device("H100-80GB"))
    step = fit._step(question, *fit.build(question), fit.Options(effort=fit.EFFORT))
    names = {str(op.node.target) for op in step.ops if op is not None}
    assert "aten._scaled_dot_product_flash_attention.default" in names
    assert "aten._scaled_dot_product_flash_attention_backward.default" in names
    assert any("flash kernel 1 times" in line for line in fit.assumptions(question, step))


def test_an_operation_without_a_gradient_on_meta_is_not_left_out_in_silence() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch._C._nn.nll_loss(self.body(x).log_softmax(-1), y, None, 1, -100) + self.body(x).sum()

    with torch.device("meta"):
        model, example = Bare(), (torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(Exception, match="autograd kernel was not registered"):
        remat.plan(model, example)


def tiny_model(batch: int) -> tuple[nn.Module, Any]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x.to(self.body[0].weight.dtype)).square().mean()

    return Net(), (torch.randn(batch, 64),)


def no_model(batch: int) -> int:
    return batch


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curve.png"
    source = f"{__name__}:tiny_model"
    assert main(["fit", source, "--batch", "64", "--gpu", "T4-16GB", "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "fits without recomputation" in text and "assumptions:" in text
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert main(["fit", source, "--batch", "64", "--gpu", "1073.842MB,300GB/s,100TFLOPS", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"].startswith("does not fit") and answer["prices"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["missing.json"], "does not exist"),
        (["nowhere.at_all:build"], "cannot be imported"),
        ([f"{__name__}:no_model"], "must return a module"),
        ([f"{__name__}:tiny_model", "--gpu", "H1000"], "H100-80GB"),
        ([f"{__name__}:tiny_model", "--gpu", "8GB,fast,1TFLOPS"], "write numbers"),
        ([f"{__name__}:tiny_model", "--dtype", "int4"], "known are fp32, bf16, fp16"),
        ([f"{__name__}:tiny_model", "--optimizer", "lion9"], "known are none, sgd"),
    ],
)
def test_bad_input_is_a_message_and_exit_code_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_a_configuration_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "no-such-model"}')
    assert main(["fit", str(path)]) == 2
    path.write_text(json.dumps({**GPT2, "n_positions": 32}))
    assert main(["fit", str(path), "--seq", "64"]) == 2
    assert "32 positions" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["fit", str(path), "--batch", "0"])
    assert stopped.value.code == 2


def test_devices_have_plausible_figures() -> None:
    for known in DEVICES.values():
        assert known.usable < known.memory and known.half > known.single > known.bandwidth and known.source
    assert device("h100-80gb") is DEVICES["H100-80GB"]
    given = device("48GB,0.864TB/s,362TFLOPS")
    assert (given.memory, given.bandwidth, given.half) == (48 * 10**9, 864e9, 362e12)
