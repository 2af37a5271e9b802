"""The convolutional image encoder: shapes, frozen statistics, positions of other grids."""

import pytest
import torch
from torch.nn.functional import avg_pool2d, conv2d

from alignfuse.blocks.efficientnet import EfficientNetLite0, FrozenBatchNorm, SameConv2d
from alignfuse.blocks.grid import GridConfig, GridEncoder, image_encoder
from alignfuse.blocks.vision import VisionConfig, VisionTransformer, resize_positions

SMALL = GridConfig(image_size=(64, 96), width=12, layers=1, heads=2, hidden=16)


def test_number_of_parameters() -> None:
    """The published 4.65 M without the 1,281,000 of the classifier."""
    assert sum(parameter.numel() for parameter in EfficientNetLite0().parameters()) == 4_652_008 - 1_281_000


@pytest.mark.parametrize(("size", "stride", "padding"), [(7, 1, (1, 1)), (8, 2, (0, 1)), (7, 2, (1, 1))])
def test_same_padding(size: int, stride: int, padding: tuple[int, int]) -> None:
    """ceil(size / stride) places; an odd padding pixel goes to the end."""
    convolution = SameConv2d(1, 1, 3, stride, bias=False)
    x = torch.randn(1, 1, size, size)
    padded = torch.nn.functional.pad(x, padding * 2)
    expected = conv2d(padded, convolution.weight, stride=stride)
    torch.testing.assert_close(convolution(x), expected)
    assert expected.shape[-1] == -(-size // stride)


def test_statistics_stay_in_training() -> None:
    norm = FrozenBatchNorm(2).train()
    norm.mean.copy_(torch.tensor([1.0, -1.0]))
    norm.variance.copy_(torch.tensor([4.0, 1.0]) - 1e-3)
    x = torch.tensor([[[[3.0]], [[3.0]]], [[[5.0]], [[0.0]]]])
    torch.testing.assert_close(norm(x).flatten(), torch.tensor([1.0, 4.0, 2.0, 1.0]))
    assert norm.mean.tolist() == [1.0, -1.0]


def test_training_step_leaves_every_buffer() -> None:
    encoder = GridEncoder(SMALL).train()
    before = {name: buffer.clone() for name, buffer in encoder.named_buffers()}
    encoder(torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)).states.square().sum().backward()
    assert len(before) > 90
    for name, buffer in encoder.named_buffers():
        assert torch.equal(buffer, before[name]), name
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_a_frozen_network_takes_no_gradient() -> None:
    encoder = GridEncoder(GridConfig(image_size=(64, 64), width=8, freeze=True))
    encoder(torch.randn(1, 3, 64, 64)).states.sum().backward()
    assert all(parameter.grad is None for parameter in encoder.network.parameters())
    assert encoder.projection.weight.grad is not None


def test_tokens() -> None:
    """One token per 32 x 32 pixels behind the global one, which starts as their mean."""
    encoder = GridEncoder(GridConfig(image_size=(64, 96), width=12)).eval()
    images = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)
    tokens = encoder(images)
    assert tokens.grid == (2, 3) and tokens.prefix == 1 and tokens.states.shape == (2, 7, 12)
    assert tokens.mask.all()
    features = encoder.network((images.float() - 127) / 128)
    places = encoder.projection(features.permute(0, 2, 3, 1)).flatten(1, 2)
    torch.testing.assert_close(tokens.states[:, 0], encoder.norm(places.mean(1) + encoder.positions[:, 0]))
    torch.testing.assert_close(tokens.states[:, 5], encoder.norm(places[:, 4] + encoder.positions[:, 5]))
    pooled = encoder.projection(avg_pool2d(features, (2, 3)).flatten(1))
    torch.testing.assert_close(places.mean(1), pooled)


def test_another_image_size_gets_interpolated_positions() -> None:
    encoder = GridEncoder(GridConfig(image_size=(64, 96), width=12)).eval()
    images = torch.randn(1, 3, 130, 64)
    tokens = encoder(images)
    assert tokens.grid == (5, 2)
    places = encoder.projection(encoder.network(images).permute(0, 2, 3, 1)).flatten(1, 2)
    positions = resize_positions(encoder.positions, (2, 3), (5, 2))
    torch.testing.assert_close(tokens.states[:, 1:], encoder.norm(places + positions[:, 1:]))


def test_batch_of_two_is_two_singles() -> None:
    encoder = GridEncoder(SMALL).train()  # no statistics of the batch, in training either
    images = torch.randn(2, 3, 64, 96)
    together = encoder(images).states
    torch.testing.assert_close(together[1:], encoder(images[1:]).states, atol=1e-5, rtol=1e-4)


def test_choice_by_config() -> None:
    assert isinstance(image_encoder(SMALL), GridEncoder)
    vit = VisionConfig(image_size=(32, 32), width=8, layers=1, heads=1, hidden=8)
    assert isinstance(image_encoder(vit), VisionTransformer)
