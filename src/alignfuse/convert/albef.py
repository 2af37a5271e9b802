"""Official ALBEF checkpoints (github.com/salesforce/ALBEF): pretraining and retrieval layout.

Shapes: E embedding width, Q queue size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alignfuse.convert import bert, vit
from alignfuse.convert.files import read_settings, read_state, tied
from alignfuse.convert.layout import Sources, count_layers, module
from alignfuse.convert.report import LoadReport
from alignfuse.convert.source import IMAGE_PARTS, TEXT_PARTS, Source
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.state.queue import UNKNOWN_ID, FeatureQueue
from alignfuse.state.teacher import Teacher

WITHOUT_TEACHER = ("match_head", "temperature")  # parts that the official code keeps no momentum copy of
QUEUE = ("image_queue", "text_queue", "queue_ptr", "idx_queue")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An official checkpoint as it was read, and the config that its tensors tell."""

    path: Path
    student: dict[str, Tensor]
    teacher: dict[str, Tensor]  # empty where the file has no momentum copies
    queue: dict[str, Tensor]  # empty where the file has none
    config: ALBEFConfig
    bert_prefix: str  # "bert." in the pretraining layout, "" in the retrieval layout
    heads_stated: bool

    def source(self, *, momentum: bool = False) -> Source:
        """The whole model, or its momentum copy."""
        headless = "text_encoder.cls.predictions.bias" not in self.student  # as in the retrieval layout
        return Source(
            path=self.path,
            state=self.teacher if momentum else self.student,
            names=lambda config: sources(config, bert_prefix=self.bert_prefix, momentum=momentum),
            parts=("",),
            text=self.config.text,
            image=self.config.image,
            lacks=lambda name: headless and name.startswith("mask_head."),
            heads="stated" if self.heads_stated else "guessed",
        )

    def text_source(self) -> Source:
        """The text and the fusion encoder alone."""
        return replace(self.source(), parts=TEXT_PARTS, image=None, names=self._some(TEXT_PARTS), left_out=("",))

    def image_source(self) -> Source:
        """The image encoder alone."""
        return replace(self.source(), parts=IMAGE_PARTS, text=None, names=self._some(IMAGE_PARTS), left_out=("",))

    def _some(self, parts: tuple[str, ...]) -> Callable[[ALBEFConfig], Sources]:
        def names(config: ALBEFConfig) -> Sources:
            found = sources(config, bert_prefix=self.bert_prefix)
            return {ours: theirs for ours, theirs in found.items() if ours.startswith(parts)}

        return names


@dataclass(frozen=True, kw_only=True)
class Converted:
    """An official checkpoint as our objects, in evaluation mode."""

    model: ALBEF
    teacher: Teacher[ALBEF]
    queue: FeatureQueue | None  # None where the file has none
    report: LoadReport


def sources(config: ALBEFConfig, *, bert_prefix: str = "bert.", momentum: bool = False) -> Sources:
    """Official names of every parameter of our ALBEF, or of its teacher (`_m` behind the name of each part).

    `bert_prefix` is empty in the layout of the retrieval model.
    """
    copy = "_m" if momentum else ""
    found = vit.timm("image_encoder", f"visual_encoder{copy}.", config.image.layers)
    found |= bert.names(config.text, f"text_encoder{copy}.{bert_prefix}", f"text_encoder{copy}.cls")
    found |= module("image_projection.linear", f"vision_proj{copy}")
    found |= module("text_projection.linear", f"text_proj{copy}")
    if not momentum:
        found |= module("match_head", "itm_head") | {"temperature": ("temp",)}
    return found


def recognise(path: Path, state: dict[str, Tensor], *, heads: tuple[int, int] | None = None) -> Checkpoint | None:
    """An official checkpoint; None where it is something else.

    heads: of the image and of the text encoder; without it from a config.json beside the file (`vision_heads`, and
    `text_heads` or `num_attention_heads`), else one per 64 channels.
    """
    if "visual_encoder.pos_embed" not in state:
        return None
    prefix = "bert." if any(name.startswith("text_encoder.bert.") for name in state) else ""
    for encoder in ("text_encoder", "text_encoder_m"):
        head, words = f"{encoder}.cls.predictions", f"{encoder}.{prefix}embeddings.word_embeddings.weight"
        for name, twin in ((f"{head}.decoder.weight", words), (f"{head}.decoder.bias", f"{head}.bias")):
            if tied(state, name, twin):
                state = {other: value for other, value in state.items() if other != name}
    momentum = {name for name in state if name.split(".")[0].endswith("_m")}
    student = {name: value for name, value in state.items() if name not in momentum and name not in QUEUE}
    try:
        config = sizes(student, prefix)
    except KeyError as error:
        raise UserError(f"{path}: looks like an ALBEF checkpoint, but holds no {error.args[0]}") from None
    heads = heads or _heads_beside(path)
    return Checkpoint(
        path=path,
        student=student,
        teacher={name: state[name] for name in momentum},
        queue={name: state[name] for name in QUEUE if name in state},
        config=_with_heads(config, heads, path) if heads else config,
        bert_prefix=prefix,
        heads_stated=heads is not None,
    )


def sizes(state: Mapping[str, Tensor], bert_prefix: str) -> ALBEFConfig:
    """The config that the shapes tell; the heads are a guess."""
    layers = count_layers(state, "visual_encoder.blocks")
    return ALBEFConfig(
        image=vit.sizes(state, vit.timm("image_encoder", "visual_encoder.", layers)),
        text=bert.sizes(state, f"text_encoder.{bert_prefix}"),
        embed_dim=state["vision_proj.weight"].shape[0],
        temperature=float(state["temp"]),
    )


def read(path: Path | str, *, heads: tuple[int, int] | None = None, trust: bool = False) -> Checkpoint:
    """Open an official checkpoint; see `recognise` for the heads."""
    path = Path(path)
    checkpoint = recognise(path, read_state(path, trust=trust), heads=heads)
    if checkpoint is None:
        raise UserError(f"{path}: not an official ALBEF checkpoint, it holds no visual_encoder.pos_embed")
    return checkpoint


def build(checkpoint: Checkpoint, config: ALBEFConfig | None = None) -> Converted:
    """Model, teacher and queue of a checkpoint, by its own config or by another of the same widths and depths.

    For another image size the position tables of student and teacher are resized. A file without momentum copies gives
    a teacher that starts from the model.
    """
    config = config or checkpoint.config
    with torch.random.fork_rng(devices=[]):  # what the file cannot hold starts the same way in every conversion
        torch.manual_seed(0)
        model = ALBEF(config).eval()
    report = checkpoint.source().load(model)
    report.check()
    teacher = Teacher(model, without=WITHOUT_TEACHER)
    if checkpoint.teacher:
        copy = checkpoint.source(momentum=True).load(teacher.model)
        copy.check()
        report.unexpected += copy.unexpected
    else:
        report.notices.append("no momentum copy in the source: the teacher starts from the model")
    return Converted(model=model, teacher=teacher, queue=_queue(checkpoint.queue), report=report)


def _heads_beside(path: Path) -> tuple[int, int] | None:
    settings: dict[str, Any] = read_settings(path)
    image, text = settings.get("vision_heads"), settings.get("text_heads", settings.get("num_attention_heads"))
    return (int(image), int(text)) if image and text else None


def _with_heads(config: ALBEFConfig, heads: tuple[int, int], path: Path) -> ALBEFConfig:
    for name, width, count in (("image", config.image.width, heads[0]), ("text", config.text.width, heads[1])):
        if count < 1 or width % count:
            raise UserError(f"{path}: the {name} encoder is {width} wide, which {count} heads do not divide")
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
