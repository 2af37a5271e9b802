"""The vision transformer: pixels, patches, position tables on any grid."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.vision import (
    CLIP_MEAN,
    CLIP_STD,
    VisionConfig,
    VisionTransformer,
    convolution_stem,
    normalise,
    resize_positions,
    sine_positions,
)
from tests.blocks.restated import layer_norm, randomised
from tests.shape_checks import no_shape_checks

CONFIG = VisionConfig(image_size=(16, 24), patch_size=8, width=8, layers=2, heads=2, hidden=16)


def pixels(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def encoder(config: VisionConfig = CONFIG) -> VisionTransformer:
    return randomised(VisionTransformer(config))


def cubic(x: float) -> float:
    """Keys' kernel with a = -0.75."""
    x, a = abs(x), -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def bicubic(grid: Tensor, size: tuple[int, int]) -> Tensor:
    """[rows, columns, D] at another size: every new place is a weighted sum of its 4 x 4 old neighbours."""
    old_rows, old_columns, width = grid.shape
    out = torch.zeros(*size, width, dtype=torch.float64)
    for row in range(size[0]):
        for column in range(size[1]):
            y = (row + 0.5) * old_rows / size[0] - 0.5
            x = (column + 0.5) * old_columns / size[1] - 0.5
            for i in range(int(y // 1) - 1, int(y // 1) + 3):
                for j in range(int(x // 1) - 1, int(x // 1) + 3):
                    neighbour = grid[min(max(i, 0), old_rows - 1), min(max(j, 0), old_columns - 1)].double()
                    out[row, column] += cubic(y - i) * cubic(x - j) * neighbour
    return out.float()


class TestPixels:
    def test_bytes_by_hand(self) -> None:
        images = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 1, 1, 3).expand(1, 3, 1, 3)
        out = normalise(images, (0.5, 0.4, 0.0), (0.5, 0.2, 1.0))
        expected = torch.tensor([[-1.0, 1.0, -0.6], [-2.0, 3.0, -1.0], [0.0, 1.0, 0.2]])
        assert torch.allclose(out[0, :, 0], expected, atol=1e-6)

    def test_floats_are_taken_as_they_are(self) -> None:
        images = torch.randn(1, 3, 2, 2)
        assert torch.equal(normalise(images, CLIP_MEAN, CLIP_STD), images)

    def test_the_encoder_normalises_bytes_with_its_own_numbers(self) -> None:
        config = replace(CONFIG, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
        model, images = encoder(config), pixels(2, 3, 16, 24)
        mean, std = torch.tensor(config.mean).view(3, 1, 1), torch.tensor(config.std).view(3, 1, 1)
        assert torch.allclose(model(images).states, model((images / 255 - mean) / std).states, atol=1e-5)


class TestPositions:
    @pytest.mark.parametrize(
        ("old", "new"), [((2, 3), (4, 5)), ((4, 5), (2, 3)), ((3, 3), (1, 7)), ((2, 6), (6, 2)), ((1, 1), (2, 2))]
    )
    def test_equals_loops(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        table = torch.randn(1, 1 + old[0] * old[1], 4, generator=torch.Generator().manual_seed(0))
        resized = resize_positions(table, old, new)
        expected = bicubic(table[0, 1:].view(*old, 4), new).view(-1, 4)
        assert torch.equal(resized[:, :1], table[:, :1])  # [CLS] has no place in the grid
        assert torch.allclose(resized[0, 1:], expected, atol=1e-5)

    def test_the_same_grid_is_the_same_table(self) -> None:
        table = torch.randn(1, 7, 4)
        assert resize_positions(table, (2, 3), (2, 3)) is table

    def test_a_table_without_prefix(self) -> None:
        table = torch.randn(1, 6, 4)
        resized = resize_positions(table, (2, 3), (3, 4), prefix=0)
        assert torch.allclose(resized[0], bicubic(table[0].view(2, 3, 4), (3, 4)).view(-1, 4), atol=1e-5)

    def test_the_type_of_the_table_is_kept(self) -> None:
        assert resize_positions(torch.zeros(1, 7, 4, dtype=torch.bfloat16), (2, 3), (4, 4)).dtype == torch.bfloat16


class TestTransformer:
    def test_tokens_by_hand(self) -> None:
        """Without blocks: LayerNorm of patch x weights + bias + its position, row by row; [CLS] first."""
        model, images = encoder(replace(CONFIG, layers=0)), torch.randn(2, 3, 16, 24)
        tokens = model(images)
        assert tokens.grid == (2, 3) and tokens.prefix == 1 and tokens.mask.all()
        stem = model.stem
        assert isinstance(stem, torch.nn.Conv2d) and stem.bias is not None
        for image, states in zip(images, tokens.states, strict=True):
            places = [model.cls_token[0, 0]]
            for row in range(2):
                for column in range(3):
                    patch = image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
                    places.append((stem.weight * patch).sum((1, 2, 3)) + stem.bias)
            expected = layer_norm(torch.stack(places) + model.positions[0], model.norm)
            assert torch.allclose(states, expected, atol=1e-5)

    def test_blocks_follow_each_other(self) -> None:
        model, images = encoder(), torch.randn(2, 3, 16, 24)
        mask = torch.ones(2, 1, 7, dtype=torch.bool)
        start = torch.cat([model.cls_token.expand(2, 1, 8), model.stem(images).flatten(2).transpose(1, 2)], 1)
        x = model.blocks[1](model.blocks[0](start + model.positions, mask), mask)
        assert torch.allclose(model(images).states, layer_norm(x, model.norm), atol=1e-5)

    @pytest.mark.parametrize(("size", "grid"), [((16, 16), (2, 2)), ((40, 8), (5, 1)), ((24, 32), (3, 4))])
    @pytest.mark.parametrize("stem", ["patch", "convolution"])
    def test_other_image_sizes(self, size: tuple[int, int], grid: tuple[int, int], stem: str) -> None:
        """The same as a model whose own table was resized beforehand."""
        model = encoder(replace(CONFIG, stem=stem))
        images = pixels(2, 3, *size)
        tokens = model(images)
        assert tokens.grid == grid and tokens.states.shape == (2, 1 + grid[0] * grid[1], 8)
        resized = encoder(replace(CONFIG, stem=stem, image_size=size))
        state = model.state_dict()
        resized.load_state_dict(state | {"positions": resize_positions(state["positions"], (2, 3), grid)})
        assert torch.allclose(tokens.states, resized(images).states, atol=1e-5)

    def test_a_batch_is_its_images(self) -> None:
        for stem in ("patch", "convolution"):
            model, images = encoder(replace(CONFIG, stem=stem)), pixels(4, 3, 16, 24)
            singles = torch.cat([model(images[i : i + 1]).states for i in range(4)])
            assert torch.allclose(model(images).states, singles, atol=1e-5)

    @pytest.mark.parametrize("size", [(7, 24), (16, 4)])
    def test_an_image_without_a_patch_is_an_error(self, size: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match=f"{size[0]} x {size[1]} px has no 8 px patch"):
            encoder()(pixels(1, 3, *size))

    @pytest.mark.parametrize("shape", [(3, 16, 24), (2, 1, 16, 24), (2, 16, 24, 3)])
    def test_images_of_another_shape_are_an_error(self, shape: tuple[int, ...]) -> None:
        with no_shape_checks(), pytest.raises(ValueError, match=r"images must be \[B, 3, H, W\], not \["):
            encoder()(pixels(*shape))

    def test_every_parameter_learns(self) -> None:
        for stem in ("patch", "convolution"):
            model = encoder(replace(CONFIG, stem=stem))
            model(pixels(2, 3, 16, 24)).states.square().sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


class TestConvolutionStem:
    @pytest.mark.parametrize("patch", [2, 4, 16])
    def test_one_token_per_patch(self, patch: int) -> None:
        assert convolution_stem(32, patch)(torch.randn(1, 3, 2 * patch, 3 * patch)).shape == (1, 32, 2, 3)

    def test_a_token_sees_its_own_patch(self) -> None:
        """The change of one pixel moves the token of its patch, and no token two patches away through the filters."""
        stem = torch.nn.Sequential(*(m for m in convolution_stem(32, 4) if not isinstance(m, torch.nn.GroupNorm)))
        image = torch.randn(1, 3, 24, 24)
        changed = image.clone()
        changed[0, :, 9, 13] += 1.0  # patch (2, 3)
        moved = (stem(image) - stem(changed)).abs().amax(1)[0] > 1e-6
        assert moved[2, 3] and not moved[:, [0, 1, 5]].any() and not moved[[0, 4, 5]].any()

    @pytest.mark.parametrize("patch", [1, 6, 14])
    def test_patch_sizes_that_are_no_power_of_two(self, patch: int) -> None:
        with pytest.raises(ValueError, match=f"power of two, not {patch}"):
            convolution_stem(32, patch)


def test_sine_positions_tell_every_place_from_every_other() -> None:
    table = sine_positions((3, 5), 32)
    assert table.shape == (15, 32)
    distances = torch.cdist(table, table) + 9 * torch.eye(15)
    assert distances.min() > 0.5
    torch.testing.assert_close(table[7, 0], torch.tensor(1.0).sin() / 2)  # row 1 at the first frequency
    torch.testing.assert_close(table[7, 16], torch.tensor(2.0).sin() / 2)  # column 2
    model = VisionTransformer(
        VisionConfig(image_size=(24, 40), patch_size=8, width=32, layers=1, heads=2, hidden=32, position_init="sine")
    )
    torch.testing.assert_close(model.positions[0, 1:], table)
