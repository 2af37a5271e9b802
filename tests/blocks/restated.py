"""Attention and the transformer block once more, in loops over rows, heads and tokens."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from alignfuse.blocks.attention import Attention
from alignfuse.blocks.transformer import Block

Module = TypeVar("Module", bound=nn.Module)


def attend(query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor, heads: int) -> Tensor:
    """One row: query [L, D], keys and values [S, D], allowed [L, S]; each head has its own D / heads channels."""
    out = torch.zeros_like(query)
    each = query.shape[1] // heads
    for head in range(heads):
        channels = slice(head * each, (head + 1) * each)
        for place in range(len(query)):
            seen = [s for s in range(len(keys)) if allowed[place, s]]
            scores = [query[place, channels] @ keys[s, channels] / math.sqrt(each) for s in seen]
            if not scores:
                continue
            weights = torch.softmax(torch.stack(scores), 0)
            out[place, channels] = sum(w * values[s, channels] for w, s in zip(weights, seen, strict=True))
    return out


def self_attention(layer: Attention, x: Tensor, mask: Tensor) -> Tensor:
    """x [B, L, D], mask [B, 1 or L, L]."""
    rows = []
    for row, allowed in zip(x, mask, strict=True):
        query, keys, values = layer.query_key_value(row).chunk(3, dim=-1)
        rows.append(layer.out(attend(query, keys, values, allowed.expand(len(row), -1), layer.heads)))
    return torch.stack(rows)


def cross_attention(layer: Attention, x: Tensor, states: Tensor, mask: Tensor, index: list[int]) -> Tensor:
    """Row i of x reads states[index[i]], where its mask [N, S] is True."""
    rows = []
    for row, source in zip(x, index, strict=True):
        keys, values = layer.key_value(states[source]).chunk(2, dim=-1)
        allowed = mask[source].expand(len(row), -1)
        rows.append(layer.out(attend(layer.query(row), keys, values, allowed, layer.heads)))
    return torch.stack(rows)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def gelu(x: Tensor) -> Tensor:
    """x * P(standard normal < x)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def perceptron(block: Block, x: Tensor) -> Tensor:
    """Up, GELU, down."""
    return gelu(x @ block.up.weight.T + block.up.bias) @ block.down.weight.T + block.down.bias


def randomised(module: Module, seed: int = 0) -> Module:
    """Every parameter drawn, norms and biases too, so that none can be left out unnoticed."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0.0, 0.3, generator=random)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return module.eval()
