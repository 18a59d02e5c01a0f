"""The models of the Rust registry, in PyTorch: same mathematics, same parameter names.

ResNets are torchvision's. Each class takes the options of its Rust twin and maps a batch to logits whose last axis
is the classes; `loss` is the mean cross-entropy over everything else.
"""

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn


class Mlp(nn.Module):
    """Hidden layers with ReLU, then one layer to the classes."""

    def __init__(self, features: int, width: int, layers: int, classes: int):
        super().__init__()
        widths = [features, *[width] * layers, classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Transformer(nn.Module):
    """Pre-norm encoder that predicts one token per position; learned positions, untied head with bias."""

    def __init__(self, vocab: int, seq: int, dim: int, layers: int, heads: int, ff: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(seq, dim)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(dim, heads, ff, dropout, F.relu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.embedding(tokens) + self.position.weight)
        return self.head(self.encoder(x))


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout: float) -> Tensor:
    """Attention over (B, T, heads, head_width) tensors; returns (B, T, heads * head_width)."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout).transpose(1, 2).flatten(2)


class BertSelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.query, self.key, self.value))
        return attend(q, k, v, causal=False, dropout=self.dropout if self.training else 0.0)


class BertResidual(nn.Module):
    """`LayerNorm(residual + dropout(dense(x)))`, the form of both sub-layers' ends."""

    def __init__(self, inputs: int, dim: int, dropout: float):
        super().__init__()
        self.dense = nn.Linear(inputs, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(residual + self.dropout(self.dense(x)))


class BertLayer(nn.Module):
    def __init__(self, dim: int, heads: int, ff: int, dropout: float):
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": BertSelfAttention(dim, heads, dropout), "output": BertResidual(dim, dim, dropout)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(dim, ff)})
        self.output = BertResidual(ff, dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    """Post-norm encoder with the masked-language-model head; every token is of segment 0, no padding.

    The parameters match Hugging Face's `BertForMaskedLM`: the head's matrix is the word embedding.
    """

    def __init__(self, vocab: int, seq: int, dim: int, layers: int, heads: int, ff: int, dropout: float):
        super().__init__()
        embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(vocab, dim),
                "position_embeddings": nn.Embedding(max(seq, 512), dim),
                "token_type_embeddings": nn.Embedding(2, dim),
                "LayerNorm": nn.LayerNorm(dim, eps=1e-12),
            }
        )
        stack = nn.ModuleList(BertLayer(dim, heads, ff, dropout) for _ in range(layers))
        self.bert = nn.ModuleDict({"embeddings": embeddings, "encoder": nn.ModuleDict({"layer": stack})})
        self.dropout = nn.Dropout(dropout)
        transform = nn.ModuleDict({"dense": nn.Linear(dim, dim), "LayerNorm": nn.LayerNorm(dim, eps=1e-12)})
        self.cls = nn.ModuleDict({"predictions": nn.ModuleDict({"transform": transform})})
        self.cls["predictions"].register_parameter("bias", nn.Parameter(torch.zeros(vocab)))

    def forward(self, tokens: Tensor) -> Tensor:
        table = self.bert["embeddings"]
        x = table["word_embeddings"](tokens) + table["position_embeddings"].weight[: tokens.shape[1]]
        x = self.dropout(table["LayerNorm"](x + table["token_type_embeddings"].weight[0]))
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x)
        head = self.cls["predictions"]
        x = head["transform"]["LayerNorm"](F.gelu(head["transform"]["dense"](x)))
        return F.linear(x, table["word_embeddings"].weight, head.bias)


class GptAttention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.q_norm, self.k_norm = (nn.RMSNorm(dim // heads, eps=1e-6) for _ in range(2))
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend(self.q_norm(q), self.k_norm(k), v, causal=True, dropout=0.0))


class GptBlock(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.ln_1 = nn.RMSNorm(dim, eps=1e-6)
        self.attn = GptAttention(dim, heads)
        self.ln_2 = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(dim, 4 * dim, bias=False), "c_proj": nn.Linear(4 * dim, dim, bias=False)}
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)))))


class Gpt(nn.Module):
    """Decoder language model: RMSNorm before each sub-layer, normalised queries and keys, tied embedding."""

    def __init__(self, vocab: int, seq: int, dim: int, layers: int, heads: int, dropout: float):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(seq, dim)
        self.dropout = nn.Dropout(dropout)
        self.h = nn.ModuleList(GptBlock(dim, heads, dropout) for _ in range(layers))
        self.ln_f = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.wte(tokens) + self.wpe.weight)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class DoubleConv(nn.Module):
    """Twice: 3x3 convolution without bias, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        half = lambda a: [nn.Conv2d(a, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.double_conv = nn.Sequential(*half(inputs), *half(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.conv = DoubleConv(inputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class Unet(nn.Module):
    """Four halvings from `width` to 16 times `width` channels and back, one class per pixel."""

    def __init__(self, classes: int, width: int):
        super().__init__()
        w = [width << i for i in range(5)]
        self.inc = DoubleConv(3, w[0])
        self.down1, self.down2, self.down3, self.down4 = (Down(w[i], w[i + 1]) for i in range(4))
        self.up1, self.up2, self.up3, self.up4 = (Up(w[i + 1], w[i]) for i in (3, 2, 1, 0))
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(w[0], classes, 1)})

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.inc(x)]
        for down in (self.down1, self.down2, self.down3, self.down4):
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in (self.up1, self.up2, self.up3, self.up4):
            x = up(x, skips.pop())
        return self.outc["conv"](x).movedim(1, -1)


def resnet(depth: int, classes: int) -> nn.Module:
    """torchvision's ResNet of the given depth."""
    return getattr(torchvision.models, f"resnet{depth}")(num_classes=classes)


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over every prediction."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())
