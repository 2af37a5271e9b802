"""What is decayed, and updates in full precision."""

import torch
from torch import nn

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.vision import VisionConfig
from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.training.optimizer import OptimizerConfig, make_optimizer, parameter_groups


def small_albef() -> ALBEF:
    image = VisionConfig(image_size=(16, 16), patch_size=8, width=8, layers=1, heads=2, hidden=16)
    text = TextConfig(vocab_size=30, width=8, layers=1, fusion_layers=1, heads=2, hidden=16, positions=12)
    return ALBEF(ALBEFConfig(image=image, text=text, embed_dim=4))


def test_only_matrices_are_decayed() -> None:
    model = small_albef()
    decayed, free = parameter_groups(model, 0.02)
    assert decayed["weight_decay"] == 0.02
    assert free["weight_decay"] == 0.0
    names = {name for name, _ in free["params"]}
    assert {"temperature", "image_encoder.cls_token", "image_encoder.positions"} <= names
    assert "text_encoder.embeddings.position.weight" in names
    assert all(parameter.ndim == 2 or "patch" in name or "stem" in name for name, parameter in decayed["params"])
    assert "text_encoder.embeddings.word.weight" in {name for name, _ in decayed["params"]}
    assert not any(name.endswith("bias") or "norm" in name for name, _ in decayed["params"])
    assert len(names) + len(decayed["params"]) == len(list(model.parameters()))


def test_frozen_parameters_are_left_out_and_shared_ones_stand_once() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    second.bias.requires_grad_(False)
    groups = parameter_groups(nn.Sequential(first, second), 0.1)
    assert [[name for name, _ in group["params"]] for group in groups] == [["0.weight"], ["0.bias"]]


def test_decay_shrinks_matrices_alone() -> None:
    module = nn.Linear(2, 2)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    optimizer = make_optimizer(module, OptimizerConfig(lr=0.1, weight_decay=0.5))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(module.weight.detach(), before["weight"] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(module.bias.detach(), before["bias"])


def test_weights_in_half_precision_are_trained_in_fp32() -> None:
    module = nn.Linear(4, 1).half()
    optimizer = make_optimizer(module, OptimizerConfig(lr=1e-3))
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.full((2, 4), 1e-4)).sum().backward()
        optimizer.step()
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert all(parameter.isfinite().all() for parameter in module.parameters())
