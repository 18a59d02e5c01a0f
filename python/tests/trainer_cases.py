"""Small real training runs, with every trainer, each with and without a budget.

A run returns the measured peak of the whole training, every trained tensor at its end, and what it logged. Models come from
configurations, tokens from arithmetic: nothing is downloaded. Data are made on the fly, because a dataset in memory would be
measured, too.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat
import torch
from remat.measure import measure_peak
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
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


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


def language_model(name: str) -> nn.Module:
    """GPT-2, Llama or BERT with two layers."""
    import transformers as hf

    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if name == "gpt2":
        config = hf.GPT2Config(n_layer=2, n_embd=WIDTH, n_head=2, n_positions=LENGTH, **common)
        return hf.GPT2LMHeadModel(config)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    if name == "llama":
        config = hf.LlamaConfig(max_position_embeddings=LENGTH, num_key_value_heads=1, **sizes, **common)
        return hf.LlamaForCausalLM(config)
    return hf.BertForMaskedLM(hf.BertConfig(max_position_embeddings=LENGTH, **sizes, **common))


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- transformers, PEFT, TRL


def huggingface(make: Callable[[], nn.Module], budget: Any, *, resume: bool = False, **arguments: Any) -> Outcome:
    """The Trainer of transformers. With `resume` it stops after two steps and resumes from its checkpoint."""
    from transformers import Trainer, TrainingArguments, set_seed

    with scratch() as folder:
        peaks = []
        for stop in (2, 4) if resume else (3,):
            model = make()
            set_seed(0)
            saving = {"save_strategy": "steps", "save_steps": 2} if resume else {"save_strategy": "no"}
            settings = TrainingArguments(
                str(folder), per_device_train_batch_size=BATCH, report_to=[], use_cpu=True, disable_tqdm=True, max_steps=stop,
                **saving, **arguments,
            )  # fmt: skip
            trainer = Trainer(
                model, settings, train_dataset=Tokens(), eval_dataset=Tokens(8), data_collator=collate,
                callbacks=callbacks(budget),
            )  # fmt: skip
            with measure_peak("cpu") as peak:
                trainer.train(resume_from_checkpoint=stop == 4)
            peaks.append(peak.bytes)
        if resume:
            check_pretrained(type(model), folder / "checkpoint-4", model)
    return Outcome(max(peaks), state_of(model))


def check_pretrained(kind: Any, folder: Path, model: nn.Module) -> None:
    """A checkpoint holds what people without remat expect."""
    loaded, facts = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(facts[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), facts
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())


# Stands for the trainer with the callback but without a budget, where torch.compile itself changes bits.
COMPILED = "compiled without a budget"


def options(budget: Any) -> dict[str, Any]:
    return {"budget": None if budget == COMPILED else budget, "effort": 0.01}


def callbacks(budget: Any) -> list[Any]:
    return [] if budget is None else [remat.RematCallback(**options(budget))]


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


def supervised(make: Callable[[], nn.Module], budget: Any, **arguments: Any) -> Outcome:
    """The SFTTrainer of TRL."""
    from datasets import Dataset
    from transformers import set_seed
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_list([Tokens(64, with_labels=False)[index] for index in range(64)])
    with scratch() as folder:
        model = make()
        set_seed(0)
        settings = SFTConfig(
            str(folder), per_device_train_batch_size=BATCH, report_to=[], use_cpu=True, disable_tqdm=True, max_steps=3,
            save_strategy="no", **{"gradient_checkpointing": False, "bf16": False, **arguments},
        )  # fmt: skip
        trainer = SFTTrainer(model, settings, train_dataset=data, processing_class=tokenizer(), callbacks=callbacks(budget))
        with measure_peak("cpu") as peak:
            trainer.train()
    return Outcome(peak.bytes, state_of(model))


# ---- accelerate, Lightning, plain loops


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


def accelerated(
    budget: Any, *, accumulation: int = 1, way: str = "helper", evaluate: bool = False, resume: bool = False, **arguments: Any
) -> Outcome:
    """A loop with accelerate, by one of its ways: the helper, the plugin, or the name of the backend."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from remat.trainers.accelerate import RematPlugin, compile_prepared

    with scratch() as folder:
        peaks = []
        for part in range(2 if resume else 1):
            for state in (AcceleratorState, GradientState):
                state._reset_state()
            given = dict(arguments)
            if budget is not None and way == "plugin":
                given["dynamo_plugin"] = RematPlugin(**options(budget), accumulates=accumulation > 1)
            if budget is not None and way == "name":
                given["dynamo_backend"] = "remat"
            accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, **given)
            module = Classifier()
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
            torch.manual_seed(0)
            with measure_peak("cpu") as peak:
                model, optimizer, batches = accelerator.prepare(module, optimizer, loader())
                if part:
                    accelerator.load_state(str(folder))
                run = None
                if budget is not None and way == "helper":
                    run = compile_prepared(accelerator, model, optimizer, **options(budget))
                for x, y in batches:
                    with accelerator.accumulate(model):
                        loss = model(x, y)
                        accelerator.backward(loss)
                        del loss
                        optimizer.step()
                        optimizer.zero_grad()
                    if evaluate:
                        model.eval()
                        with torch.no_grad():
                            model(x, y)
                        model.train()
                del x, y
                if resume and not part:
                    accelerator.save_state(str(folder))
                if run is not None:
                    run.end()
            peaks.append(peak.bytes)
        if resume:
            accelerator.save_model(model, str(folder / "weights"))
            from safetensors.torch import load_file

            Classifier().load_state_dict(load_file(folder / "weights" / "model.safetensors"))
    return Outcome(max(peaks), state_of(module))


def lightning_module() -> Any:
    import lightning.pytorch as pl

    class Lit(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Classifier()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(x, y)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self(*batch)

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("loss", self(*batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Lit()


def lit(budget: Any, *, resume: bool = False, **arguments: Any) -> Outcome:
    """Lightning's Trainer."""
    import lightning.pytorch as pl

    with scratch() as folder:
        peaks = []
        for stop in (2, 4) if resume else (4,):
            torch.manual_seed(0)
            module = lightning_module()
            given = [] if budget is None else [remat.LightningCallback(**options(budget))]
            settings = {"enable_checkpointing": False, "limit_val_batches": 0, "devices": 1, **arguments}
            trainer = pl.Trainer(
                accelerator="cpu", logger=False, callbacks=given, enable_progress_bar=False, enable_model_summary=False,
                use_distributed_sampler=False, max_steps=stop, **settings,
            )  # fmt: skip
            with measure_peak("cpu") as peak:
                trainer.fit(module, loader(), loader(), ckpt_path=str(folder / "2.ckpt") if resume and stop == 4 else None)
            peaks.append(peak.bytes)
            if resume:
                trainer.save_checkpoint(folder / f"{stop}.ckpt")
        if resume:
            loaded = type(module).load_from_checkpoint(folder / "4.ckpt", weights_only=False)
            assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), module.parameters(), strict=True))
    return Outcome(max(peaks), state_of(module))


def plain(
    budget: Any,
    *,
    accumulation: int = 1,
    evaluate: bool = False,
    resume: bool = False,
    checkpointing: bool = False,
    wrap: Callable[..., Any] | None = None,
    bf16: bool = False,
) -> Outcome:
    """A loop by hand."""
    with scratch() as folder:
        peaks = []
        for part in range(2 if resume else 1):
            module = Classifier(checkpointing=checkpointing)
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
            if part:
                state = torch.load(folder / "state.pt")
                module.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
            if budget is not None:
                remat.compile(module, **options(budget), reserved="auto", accumulates=accumulation > 1)
            model = module if wrap is None else wrap(module)
            torch.manual_seed(0)
            with measure_peak("cpu") as peak:
                for index, (x, y) in enumerate(loader()):
                    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                        loss = model(x, y)
                    loss.backward()
                    del loss
                    if (index + 1) % accumulation == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                    if evaluate:
                        model.eval()
                        with torch.no_grad():
                            model(x, y)
                        model.train()
            peaks.append(peak.bytes)
            torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
    return Outcome(max(peaks), state_of(module))


# ---- which trainer in which situation

Runs = dict[tuple[str, str], Callable[[Any], Outcome]]


def gpt2() -> nn.Module:
    return language_model("gpt2")


def llama() -> nn.Module:
    return language_model("llama")


def bert() -> nn.Module:
    return language_model("bert")


def adapter() -> nn.Module:
    return lora(gpt2())


HF, PEFT, TRL, ACCELERATE, LIGHTNING, PLAIN = "transformers Trainer", "PEFT LoRA", "TRL SFT", "accelerate", "Lightning", "plain loop"
STEPS, EVALUATION, RESUME = "steps", "evaluation", "save and resume"
ACCUMULATION, CHECKPOINTING, BF16, DDP = "accumulation", "gradient checkpointing", "bf16", "DDP"
SITUATIONS = (STEPS, ACCUMULATION, EVALUATION, RESUME, CHECKPOINTING, BF16, DDP)

RUNS: Runs = {
    (HF, STEPS): lambda budget: huggingface(gpt2, budget),
    (HF, ACCUMULATION): lambda budget: huggingface(llama, budget, gradient_accumulation_steps=2),
    (HF, EVALUATION): lambda budget: huggingface(bert, budget, eval_strategy="steps", eval_steps=1),
    (HF, RESUME): lambda budget: huggingface(gpt2, budget, resume=True),
    (HF, CHECKPOINTING): lambda budget: huggingface(gpt2, budget, gradient_checkpointing=True),
    (HF, BF16): lambda budget: huggingface(llama, budget, bf16=True),
    (PEFT, STEPS): lambda budget: huggingface(adapter, budget),
    (PEFT, ACCUMULATION): lambda budget: huggingface(adapter, budget, gradient_accumulation_steps=2),
    (PEFT, CHECKPOINTING): lambda budget: huggingface(adapter, budget, gradient_checkpointing=True),
    (PEFT, BF16): lambda budget: huggingface(adapter, budget, bf16=True),
    (TRL, STEPS): lambda budget: supervised(gpt2, budget),
    (TRL, ACCUMULATION): lambda budget: supervised(gpt2, budget, gradient_accumulation_steps=2),
    (ACCELERATE, STEPS): lambda budget: accelerated(budget),
    (ACCELERATE, ACCUMULATION): lambda budget: accelerated(budget, accumulation=2),
    (ACCELERATE, EVALUATION): lambda budget: accelerated(budget, evaluate=True),
    (ACCELERATE, RESUME): lambda budget: accelerated(budget, resume=True),
    (ACCELERATE, BF16): lambda budget: accelerated(budget, mixed_precision="bf16"),
    (LIGHTNING, STEPS): lambda budget: lit(budget),
    (LIGHTNING, ACCUMULATION): lambda budget: lit(budget, accumulate_grad_batches=2),
    (LIGHTNING, EVALUATION): lambda budget: lit(budget, limit_val_batches=1, val_check_interval=1),
    (LIGHTNING, RESUME): lambda budget: lit(budget, resume=True),
    (LIGHTNING, BF16): lambda budget: lit(budget, precision="bf16-mixed"),
    (PLAIN, STEPS): lambda budget: plain(budget),
    (PLAIN, ACCUMULATION): lambda budget: plain(budget, accumulation=2),
    (PLAIN, EVALUATION): lambda budget: plain(budget, evaluate=True),
    (PLAIN, RESUME): lambda budget: plain(budget, resume=True),
    (PLAIN, CHECKPOINTING): lambda budget: plain(budget, checkpointing=True),
    (PLAIN, BF16): lambda budget: plain(budget, bf16=True),
}
# In two processes.
DDP_RUNS: Runs = {
    (HF, DDP): lambda budget: huggingface(gpt2, budget, ddp_backend="gloo", gradient_accumulation_steps=2),
    (ACCELERATE, DDP): lambda budget: accelerated(budget),
    (LIGHTNING, DDP): lambda budget: lit(budget, strategy="ddp", devices=2),
    (PLAIN, DDP): lambda budget: plain(budget, wrap=nn.parallel.DistributedDataParallel),
}
FRACTION = 0.85
# Most of what SFTTrainer needs is the scratch tensor of its loss, which lies outside of the model.
FRACTIONS = {TRL: 0.93}


def judge(trainer: str, run: Callable[[Any], Outcome]) -> str:
    """Trains without and within a budget of a part of the eager peak, and says in a few words how that went."""
    eager = run(None)
    budget = int(FRACTIONS.get(trainer, FRACTION) * eager.peak)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            within = run(budget)
        except remat.BudgetTooSmall:
            return "refused"
    if within.peak > budget:
        is_told = any(issubclass(warning.category, remat.BudgetWarning) for warning in caught)
        return "over, with a warning" if is_told else "OVER IN SILENCE"
    if same_bits(within, eager):
        return "holds"
    return "holds (a)" if same_bits(within, run(COMPILED)) else "OTHER BITS"
