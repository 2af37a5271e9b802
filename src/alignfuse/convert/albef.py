"""Official ALBEF checkpoints (github.com/salesforce/ALBEF): pretraining and retrieval layout.

Shapes: E embedding width, Q queue size, N image tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.vision import VisionConfig
from alignfuse.convert import bert, vit
from alignfuse.convert.files import read_settings, read_state
from alignfuse.convert.fill import cut_text_positions, fill, resize_image_positions, square_grid
from alignfuse.convert.layout import Sources, count_layers, module, to_ours
from alignfuse.convert.report import LoadReport
from alignfuse.errors import UserError
from alignfuse.state.queue import UNKNOWN_ID, FeatureQueue
from alignfuse.state.teacher import Teacher
from alignfuse.systems.albef import ALBEF, ALBEFConfig

HEAD_WIDTH = 64  # of every published ALBEF; the number of heads leaves no trace in the tensors
WITHOUT_TEACHER = ("match_head", "temperature")  # parts that the official code keeps no momentum copy of
QUEUE = ("image_queue", "text_queue", "queue_ptr", "idx_queue")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An official checkpoint as it was read, and the config that its tensors tell."""

    path: Path
    state: dict[str, Tensor]
    config: ALBEFConfig
    bert_prefix: str  # "bert." in the pretraining layout, "" in the retrieval layout


@dataclass(frozen=True, kw_only=True)
class Converted:
    """An official checkpoint as our objects, in evaluation mode."""

    model: ALBEF
    teacher: Teacher
    queue: FeatureQueue | None  # None where the file has none
    report: LoadReport


def sources(config: ALBEFConfig, *, bert_prefix: str = "bert.", momentum: bool = False) -> Sources:
    """Official names of every parameter of our ALBEF, or of its teacher (`_m` behind the name of each part).

    `bert_prefix` is empty in the layout of the retrieval model.
    """
    copy = "_m" if momentum else ""
    encoder = f"text_encoder{copy}.{bert_prefix}"
    found = vit.timm("image_encoder", f"visual_encoder{copy}.", config.image.layers)
    found |= bert.embeddings("text_encoder.embeddings", f"{encoder}embeddings")
    for index in range(config.text.layers):
        found |= bert.layer(f"text_encoder.blocks.{index}", f"{encoder}encoder.layer.{index}")
    for index in range(config.text.fusion_layers):
        ours, theirs = f"fusion_encoder.blocks.{index}", f"{encoder}encoder.layer.{config.text.layers + index}"
        found |= bert.layer(ours, theirs) | bert.cross_attention(ours, theirs)
    found |= bert.masked_language_head("mask_head", f"text_encoder{copy}.cls")
    found |= module("image_projection.linear", f"vision_proj{copy}") | module(
        "text_projection.linear", f"text_proj{copy}"
    )
    if not momentum:
        found |= module("match_head", "itm_head") | {"temperature": ("temp",)}
    return found


def sizes(state: Mapping[str, Tensor], *, bert_prefix: str) -> ALBEFConfig:
    """The config that the shapes of an official checkpoint tell; the heads are left at 1."""
    encoder = f"text_encoder.{bert_prefix}"
    layers = count_layers(state, f"{encoder}encoder.layer")
    plain = sum(f"{encoder}encoder.layer.{i}.crossattention.self.query.weight" not in state for i in range(layers))
    patch = state["visual_encoder.patch_embed.proj.weight"]
    rows, columns = square_grid(state["visual_encoder.pos_embed"].shape[1] - 1, "visual_encoder.pos_embed")
    image = VisionConfig(
        image_size=(rows * patch.shape[-1], columns * patch.shape[-1]),
        patch_size=patch.shape[-1],
        width=patch.shape[0],
        layers=count_layers(state, "visual_encoder.blocks"),
        heads=1,
        hidden=state["visual_encoder.blocks.0.mlp.fc1.weight"].shape[0],
    )
    words = state[f"{encoder}embeddings.word_embeddings.weight"]
    text = TextConfig(
        vocab_size=words.shape[0],
        width=words.shape[1],
        layers=plain,
        fusion_layers=layers - plain,
        heads=1,
        hidden=state[f"{encoder}encoder.layer.0.intermediate.dense.weight"].shape[0],
        positions=state[f"{encoder}embeddings.position_embeddings.weight"].shape[0],
    )
    embed_dim = state["vision_proj.weight"].shape[0]
    return ALBEFConfig(image=image, text=text, embed_dim=embed_dim, temperature=float(state["temp"]))


def read(path: Path | str, *, heads: tuple[int, int] | None = None, trust: bool = False) -> Checkpoint:
    """Open an official checkpoint.

    heads: of the image and of the text encoder; without it from a config.json beside the file (`vision_heads`,
    `text_heads` or `num_attention_heads`), else one per 64 channels.
    """
    path = Path(path)
    state = read_state(path, trust=trust)
    prefix = "bert." if any(name.startswith("text_encoder.bert.") for name in state) else ""
    _drop_tied(state, prefix)
    try:
        config = sizes(state, bert_prefix=prefix)
    except KeyError as error:
        raise UserError(f"{path}: not an official ALBEF checkpoint, it holds no {error.args[0]}") from None
    config = _with_heads(config, heads or _heads_beside(path, config), path)
    return Checkpoint(path=path, state=state, config=config, bert_prefix=prefix)


def build(checkpoint: Checkpoint, config: ALBEFConfig | None = None) -> Converted:
    """Model, teacher and queue of a checkpoint, by its own config or by another of the same widths and depths.

    For another image size the position tables of student and teacher are resized. A file without momentum copies gives
    a teacher that starts from the model.
    """
    config = config or checkpoint.config
    with torch.random.fork_rng(devices=[]):  # what the file cannot hold starts the same way in every conversion
        torch.manual_seed(0)
        model = ALBEF(config).eval()
    report = LoadReport(source=str(checkpoint.path))
    student_unused = _fill(model, checkpoint, report, momentum=False)
    teacher = Teacher(model, without=WITHOUT_TEACHER)
    unused = set(student_unused)
    if any(name.startswith("visual_encoder_m.") for name in checkpoint.state):
        copy = LoadReport(source=f"{checkpoint.path} (momentum copy)")
        unused &= set(_fill(teacher.model, checkpoint, copy, momentum=True))
    else:
        report.notices.append("no momentum copy in the source: the teacher starts from the model")
    report.unexpected += [name for name in student_unused if name in unused and name not in QUEUE]
    return Converted(model=model, teacher=teacher, queue=_queue(checkpoint.state), report=report)


def _fill(model: nn.Module, checkpoint: Checkpoint, report: LoadReport, *, momentum: bool) -> list[str]:
    """Fill the student or the teacher; returns the names in the file that it does not use."""
    config = model.config
    assert isinstance(config, ALBEFConfig)
    found = to_ours(checkpoint.state, sources(config, bert_prefix=checkpoint.bert_prefix, momentum=momentum))
    resize_image_positions(found.tensors, "image_encoder.positions", config.image.grid, report)
    cut_text_positions(found.tensors, "text_encoder.embeddings.position.weight", config.text.positions, report)
    headless = "text_encoder.cls.predictions.bias" not in checkpoint.state
    fill(model, found.tensors, report, new=("mask_head",) if headless else ())
    report.check()
    return found.unused


def _drop_tied(state: dict[str, Tensor], prefix: str) -> None:
    """Forget the second names of tied tensors (the output matrix is the word table); keep them where they differ."""
    for encoder in ("text_encoder", "text_encoder_m"):
        head = f"{encoder}.cls.predictions"
        words = state.get(f"{encoder}.{prefix}embeddings.word_embeddings.weight")
        for name, twin in ((f"{head}.decoder.weight", words), (f"{head}.decoder.bias", state.get(f"{head}.bias"))):
            if name in state and twin is not None and torch.equal(state[name], twin):
                del state[name]


def _heads_beside(path: Path, config: ALBEFConfig) -> tuple[int, int]:
    settings: dict[str, Any] = read_settings(path)
    image = settings.get("vision_heads", max(config.image.width // HEAD_WIDTH, 1))
    text = settings.get("text_heads", settings.get("num_attention_heads", max(config.text.width // HEAD_WIDTH, 1)))
    return int(image), int(text)


def _with_heads(config: ALBEFConfig, heads: tuple[int, int], path: Path) -> ALBEFConfig:
    for name, width, count in (("image", config.image.width, heads[0]), ("text", config.text.width, heads[1])):
        if count < 1 or width % count:
            raise UserError(
                f"{path}: the {name} encoder is {width} wide, which {count} heads do not divide; give heads"
            )
    return replace(config, image=replace(config.image, heads=heads[0]), text=replace(config.text, heads=heads[1]))


def _queue(state: Mapping[str, Tensor]) -> FeatureQueue | None:
    """The momentum queue: columns there are rows here; image ids where the layout has them (-100 there = unknown)."""
    if "image_queue" not in state or "text_queue" not in state:
        return None
    images, texts = state["image_queue"].T, state["text_queue"].T
    queue = FeatureQueue(*images.shape)
    queue.fill(images, texts, int(state.get("queue_ptr", torch.zeros(1))))
    if "idx_queue" in state:
        ids = state["idx_queue"].flatten()
        queue.image_ids.copy_(torch.where(ids < 0, UNKNOWN_ID, ids))
    return queue
