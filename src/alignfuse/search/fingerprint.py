"""A short name for a model's weights, by which embeddings are told to belong to it."""

from hashlib import sha256

import torch
from torch import nn


def fingerprint(model: nn.Module, *settings: str) -> str:
    """SHA-256 of all weights with their names, and of `settings`: whatever else changes an embedding, as text (the
    config, the preprocessing, the tokenizer)."""
    digest = sha256()
    for setting in settings:
        digest.update(f"{len(setting)}:{setting}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
