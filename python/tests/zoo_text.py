"""More models for sequences: the transformers library from small configs, recurrent networks, attention variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from zoo import N_CLASSES, Scores, TokenLoss

Made = tuple[nn.Module, tuple[Any, ...]]
VOCABULARY = 211


class Loss(nn.Module):
    """A model of the transformers library; it computes its own loss from keyword arguments."""

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.fixed = fixed

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, tensors, strict=True)), **self.fixed).loss

    def scores(self, *tensors: torch.Tensor) -> Scores:
        given = {**dict(zip(self.names, tensors, strict=True)), **self.fixed}
        labels = given.pop("labels", None)
        if labels is None:
            # Pictures and their texts, each of which belongs to the one of the same number.
            given.pop("return_loss")
            scores = self.model(**given).logits_per_image
            return scores, torch.arange(len(scores))
        if self.model.config.is_encoder_decoder:
            given["decoder_input_ids"] = labels
        return self.model(**given).logits.flatten(0, -2), labels.flatten()


def _tokens(length: int = 24) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (3, length))


def _language(model_name: str, config_name: str, **config: Any) -> Callable[[], Made]:
    """A causal or masked language model."""

    def make() -> Made:
        import transformers

        made = getattr(transformers, config_name)(vocab_size=VOCABULARY, pad_token_id=0, **config)
        ids = _tokens()
        is_causal = "Causal" in model_name
        fixed = {"use_cache": False} if is_causal else {}
        return Loss(getattr(transformers, model_name)(made), "input_ids", "labels", **fixed), (ids, ids)

    return make


SMALL = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "max_position_embeddings": 64,
}  # fmt: skip


def _t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, use_cache=False)
    config.decoder_start_token_id = 0
    return Loss(T5ForConditionalGeneration(config), "input_ids", "labels"), (_tokens(20), _tokens(16))


def _bart() -> Made:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=VOCABULARY, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64, use_cache=False,
        encoder_layerdrop=0.0, decoder_layerdrop=0.0,
    )  # fmt: skip
    return Loss(BartForConditionalGeneration(config), "input_ids", "labels"), (_tokens(20), _tokens(16))


def _whisper() -> Made:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=16, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=32, use_cache=False,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.1,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    return Loss(model, "input_features", "labels"), (torch.randn(2, 16, 64), torch.randint(3, VOCABULARY, (2, 12)))


def _vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        num_labels=N_CLASSES, hidden_dropout_prob=0.1,
    )  # fmt: skip
    return Loss(ViTForImageClassification(config), "pixel_values", "labels"), (
        torch.randn(2, 3, 32, 32),
        torch.randint(0, N_CLASSES, (2,)),
    )


def _clip() -> Made:
    from transformers import CLIPConfig, CLIPModel

    text = {**SMALL, "vocab_size": VOCABULARY, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1}
    vision = {**SMALL, "image_size": 32, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    return Loss(CLIPModel(config), "input_ids", "pixel_values", return_loss=True), (_tokens(16), torch.randn(3, 3, 32, 32))


class Recurrent(nn.Module):
    """Two layers of a recurrent network over an embedding."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.layers = kind(32, 48, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.layers(self.embedding(ids))
        return self.head(hidden)


def _recurrent(kind: Callable[..., nn.Module]) -> Callable[[], Made]:
    def make() -> Made:
        ids = _tokens(12)
        return TokenLoss(Recurrent(kind)), (ids, ids)

    return make


class Attention(nn.Module):
    """Blocks with one kind of attention."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.mixes = nn.ModuleList(nn.Linear(32, 96) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for mix in self.mixes:
            q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in mix(x).chunk(3, -1))
            x = x + self.attend(q, k, v).transpose(1, 2).flatten(2)
        return x


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _dropped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)


def _attention(attend: Callable[..., torch.Tensor]) -> Callable[[], Made]:
    return lambda: (TokenLoss(Attention(attend)), (torch.randn(4, 24, 32), torch.randint(0, 32, (4, 24))))


GQA = {**SMALL, "num_key_value_heads": 2}

TEXT: dict[str, Callable[[], Made]] = {
    "roberta": _language("RobertaForMaskedLM", "RobertaConfig", **SMALL),
    "distilbert": _language("DistilBertForMaskedLM", "DistilBertConfig", dim=48, n_layers=2, n_heads=4, hidden_dim=96),
    "albert": _language("AlbertForMaskedLM", "AlbertConfig", embedding_size=24, hidden_dropout_prob=0.1, **SMALL),
    "electra": _language("ElectraForMaskedLM", "ElectraConfig", embedding_size=48, **SMALL),
    "deberta_v2": _language(
        "DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"], **SMALL
    ),
    "opt": _language(
        "OPTForCausalLM", "OPTConfig", hidden_size=48, num_hidden_layers=2, num_attention_heads=4, ffn_dim=96,
        max_position_embeddings=64, word_embed_proj_dim=48,
    ),
    "gpt_neox": _language("GPTNeoXForCausalLM", "GPTNeoXConfig", hidden_dropout=0.1, **SMALL),
    "gptj": _language("GPTJForCausalLM", "GPTJConfig", n_positions=64, n_embd=48, n_layer=2, n_head=4, rotary_dim=8),
    "bloom": _language("BloomForCausalLM", "BloomConfig", hidden_size=48, n_layer=2, n_head=4, hidden_dropout=0.1),
    "phi": _language("PhiForCausalLM", "PhiConfig", resid_pdrop=0.1, **SMALL),
    "mistral": _language("MistralForCausalLM", "MistralConfig", sliding_window=8, **GQA),
    "qwen2": _language("Qwen2ForCausalLM", "Qwen2Config", **GQA),
    "qwen3": _language("Qwen3ForCausalLM", "Qwen3Config", head_dim=12, **GQA),
    "gemma": _language("GemmaForCausalLM", "GemmaConfig", head_dim=12, **GQA),
    "mixtral": _language("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **GQA),
    "mamba": _language("MambaForCausalLM", "MambaConfig", hidden_size=48, num_hidden_layers=2, state_size=4),
    "t5": _t5,
    "bart": _bart,
    "whisper": _whisper,
    "vit_hf": _vit,
    "clip": _clip,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "rnn": _recurrent(nn.RNN),
    "sdpa_causal": _attention(_causal),
    "sdpa_dropout": _attention(_dropped),
}  # fmt: skip
