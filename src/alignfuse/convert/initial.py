"""Starting weights from local files: recognised by their names, loaded, reported. Nothing here opens a connection."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from alignfuse.blocks.grid import GridConfig, ImageConfig
from alignfuse.blocks.text import TextConfig
from alignfuse.convert import albef, bert, efficientnet, run, vit
from alignfuse.convert.files import read_settings, read_state
from alignfuse.convert.report import LoadReport, summary
from alignfuse.convert.source import IMAGE_PARTS, TEXT_PARTS, Source
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig

Recogniser = Callable[[Path, dict[str, Tensor]], Source | None]


def _albef_text(path: Path, state: dict[str, Tensor]) -> Source | None:
    found = albef.recognise(path, state)
    return found.text_source() if found else None


def _albef_image(path: Path, state: dict[str, Tensor]) -> Source | None:
    found = albef.recognise(path, state)
    return found.image_source() if found else None


def _albef_whole(path: Path, state: dict[str, Tensor]) -> Source | None:
    found = albef.recognise(path, state)
    return found.source() if found else None


def _run_text(path: Path, state: dict[str, Tensor]) -> Source | None:
    return run.recognise(path, state, parts=TEXT_PARTS)


def _run_image(path: Path, state: dict[str, Tensor]) -> Source | None:
    return run.recognise(path, state, parts=IMAGE_PARTS)


TEXT: tuple[Recogniser, ...] = (bert.recognise, _albef_text, _run_text)
IMAGE: tuple[Recogniser, ...] = (vit.recognise, efficientnet.recognise, _albef_image, _run_image)
WHOLE: tuple[Recogniser, ...] = (_albef_whole, run.recognise)


def init_from(
    model: ALBEF,
    *,
    whole: Path | None = None,
    text: Path | None = None,
    image: Path | None = None,
    tokenizer: Tokenizer | None = None,
    allow_missing: bool = False,
    trust: bool = False,
) -> LoadReport:
    """Load starting weights into a model; what no source brings keeps its initial values.

    whole: an official ALBEF checkpoint or one of our run directories. text: BERT in the Hugging Face layout. image: ViT
    or DeiT in the timm or the Hugging Face layout, or EfficientNet-Lite0. text and image may also be the parts of an
    ALBEF, and replace those of `whole`. tokenizer: the model's own, compared with a vocabulary beside the text source.
    """
    reports = []
    for path, recognisers, what in (
        (whole, WHOLE, "model"),
        (text, TEXT, "text encoder"),
        (image, IMAGE, "image encoder"),
    ):
        if path is None:
            continue
        if what != "image encoder" and tokenizer is not None:
            check_vocabulary(path, tokenizer)
        report = _read(path, recognisers, what, trust).load(model)
        report.check(allow_missing=allow_missing)
        reports.append(report)
    if not reports:
        raise UserError("no starting weights were named")
    return sum(reports[1:], reports[0])


def text_config(path: Path, like: TextConfig, *, trust: bool = False) -> TextConfig:
    """The sizes that a text source brings, half of a BERT's layers for fusion; the rest as in `like`."""
    config = _read(path, TEXT, "text encoder", trust).text
    assert config is not None
    return replace(config, dropout=like.dropout)


def text_pooling(path: Path) -> Literal["cls", "mean"]:
    """What the states of a text source are read by: [CLS], or in a sentence encoder that says so the mean."""
    folder = (path if path.is_dir() else path.parent) / "1_Pooling"  # as sentence-transformers lays it out
    return "mean" if read_settings(folder).get("pooling_mode_mean_tokens") is True else "cls"


def image_config(
    path: Path, like: ImageConfig, *, image_size: tuple[int, int] | None = None, trust: bool = False
) -> ImageConfig:
    """The sizes that an image source brings, at its own image size or another; the rest as in `like`.

    What stands on a convolutional network has the width and heads of `like`, and no blocks unless `like` says so.
    """
    config = _read(path, IMAGE, "image encoder", trust).image
    assert config is not None
    size = image_size or config.image_size
    if isinstance(config, GridConfig):
        if isinstance(like, GridConfig):
            return replace(like, image_size=size)
        return replace(config, image_size=size, width=like.width, heads=like.heads, hidden=like.hidden)
    return replace(config, image_size=size, dropout=like.dropout)


def whole_config(path: Path, *, trust: bool = False) -> ALBEFConfig:
    """The sizes of an official ALBEF checkpoint or of one of our run directories."""
    if path.is_dir() or path.name == "model.safetensors":
        return run.model_config(path if path.is_dir() else path.parent)
    return albef.read(path, trust=trust).config


def check_vocabulary(path: Path, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that numbers the words otherwise than the vocabulary beside the weights, if there is one."""
    directory = path if path.is_dir() else path.parent
    if not any((directory / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return
    theirs, ours = Tokenizer.from_file(directory).core.get_vocab(), tokenizer.core.get_vocab()
    differing = [word for word in theirs.keys() | ours.keys() if theirs.get(word) != ours.get(word)]
    if differing:
        first = min(differing, key=lambda word: (theirs.get(word, ours.get(word, 0)), word))
        raise UserError(
            f"{directory}: its vocabulary is not the tokenizer's (words that differ: {len(differing)}, as {first!r}); "
            "train with the vocabulary that belongs to the weights"
        )


def _read(path: Path, recognisers: Sequence[Recogniser], what: str, trust: bool) -> Source:
    """The first layout that knows the names of the file."""
    state = read_state(path, trust=trust)
    for recognise in recognisers:
        source = recognise(path, state)
        if source is not None:
            return source
    raise UserError(f"{path}: no {what} of a known layout; its names are {summary(list(state))}")
