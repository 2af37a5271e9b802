"""ALBEF: align before fuse (Li et al. 2021). Equation numbers are the paper's.

Shapes: B pairs, K keys (teacher features of all pairs of this step, then the queue), L tokens, E embedding width,
P captions that stand under several images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from alignfuse.blocks.text import Memory
from alignfuse.blocks.tokens import join
from alignfuse.models.albef import ALBEF
from alignfuse.objectives import contrastive, distillation, masked_language, matching
from alignfuse.objectives.contrastive import positive_pairs, scaled_similarity
from alignfuse.state.queue import UNKNOWN_ID, FeatureQueue, Keys, read, written
from alignfuse.state.teacher import Teacher
from alignfuse.systems.contrast import Direction
from alignfuse.systems.limits import check_settings
from alignfuse.systems.protocols import Batch, Clock, Draws, Loss, Masked, Masking, Step, Text, Tokens
from alignfuse.training.distributed import first_row, gather

Objective = Literal["itc", "itm", "mlm"]


@dataclass(frozen=True, kw_only=True)
class ALBEFTraining:
    """The objectives and the teacher; the defaults are the paper's, without the official code's known faults."""

    objectives: tuple[Objective, ...] = ("itc", "itm", "mlm")
    alpha: float = 0.4  # weight of the teacher's targets
    ramp_epochs: float = 1.0  # alpha grows from 0 over these
    momentum: float = 0.995
    queue_size: int = 65536  # pairs
    temperature_range: tuple[float, float] = (0.001, 0.5)
    mask_probability: float = 0.15
    whole_word: bool = False
    negatives: Literal["mined", "random"] = "mined"
    # The paper mines within the batch. A small one seldom holds a caption that is nearly right; the queue does. It then
    # keeps its captions, and those that are drawn are encoded anew.
    text_negatives: Literal["batch", "queue"] = "batch"
    # What the official code does otherwise: teacher dropout on; no clamp in fine-tuning; no ids in pretraining.
    teacher_dropout: bool = False
    clamp_temperature: bool = True
    respect_ids: bool = True

    def __post_init__(self) -> None:
        check_settings(self)


class Lesson(NamedTuple):
    """What the teacher made of one micro-batch."""

    keys: Keys  # of this micro-batch on all ranks
    rows: slice  # this rank's pairs among them
    image: Tokens  # the teacher's image tokens of this rank's pairs


class ALBEFSystem(nn.Module):
    """Pretraining and retrieval fine-tuning of ALBEF: ITC + ITM + MLM with momentum distillation.

    `special_ids` are never put in place of a masked word. `shared_pairs` are the captions that stand under several
    images (see `objectives.contrastive.positive_pairs`). `max_tokens`: the longest text, if it is shorter than what the
    text encoder has places for.
    """

    shared: Tensor
    ordinary: Tensor

    def __init__(
        self,
        model: ALBEF,
        training: ALBEFTraining,
        *,
        mask_id: int,
        special_ids: Sequence[int] = (),
        shared_pairs: Int[Tensor, " P"] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.training_config = training
        self.teacher = Teacher(model, without=("match_head", "temperature"), dropout=training.teacher_dropout)
        self.caption_tokens = 0
        if training.text_negatives == "queue":
            self.caption_tokens = max_tokens or model.config.text.positions
        self.queue = FeatureQueue(training.queue_size, model.config.embed_dim, self.caption_tokens)
        self.mask_id = mask_id
        words = torch.arange(model.config.text.vocab_size)
        self.register_buffer("ordinary", words[~torch.isin(words, torch.tensor(special_ids))], persistent=False)
        shared = torch.empty(0, dtype=torch.long) if shared_pairs is None else shared_pairs
        self.register_buffer("shared", shared, persistent=False)

    def before_step(self) -> None:
        """Clamp the temperature; move the teacher before its features are taken (eq. 5, in the official order)."""
        if self.training_config.clamp_temperature:
            with torch.no_grad():
                self.model.temperature.clamp_(*self.training_config.temperature_range)
        self.teacher.move(self.model, self.training_config.momentum)

    @torch.no_grad()
    def teach(self, batch: Batch) -> Lesson:
        """Teacher features of the batch, gathered over ranks.

        They are constants: no gradient reaches the teacher. What a pair contrasts with is therefore never a student
        feature of another micro-batch, and under accumulation the micro-batches' own backward passes add up to the
        gradient of one graph over all of them, dropout included. In-batch contrast among student features would need a
        second pass through the student for that (gradient caching, Gao et al. 2021); ALBEF does not.
        """
        assert batch.images is not None and batch.text is not None
        teacher = self.teacher.model
        image, text = teacher.encode_image(batch.images), teacher.encode_text(batch.text)
        image_ids, caption_ids = self._ids(batch)
        filled = torch.ones_like(image_ids, dtype=torch.bool)
        captions = written(batch.text, self.caption_tokens)
        own = Keys(teacher.embed_image(image), teacher.embed_text(text), image_ids, caption_ids, filled, captions)
        start = first_row(len(batch))
        return Lesson(Keys(*(gather(part) for part in own)), slice(start, start + len(batch)), image)

    def terms(self, batch: Batch, draws: Draws) -> dict[str, int]:
        """Number of terms of each loss of this micro-batch, from its ids and draws alone."""
        image_ids, caption_ids = self._ids(batch)
        shared = self.shared.to(image_ids.device)  # a batch is counted where it was made, on the host
        positive = positive_pairs(image_ids, image_ids, caption_ids, shared)
        negative = ~positive.fill_diagonal_(True)
        counts = {"itc": len(batch), "itm": len(batch) + int(negative.any(0).sum() + negative.any(1).sum())}
        if "mlm" in self.training_config.objectives:
            counts["mlm"] = len(draws.mask(batch, self._masking()).where())
        return {name: counts[name] for name in self.training_config.objectives}

    def forward(self, batch: Batch, lessons: Sequence[Lesson], own: int, clock: Clock, draws: Draws) -> Step:
        """One pass over a micro-batch, in the paper's order."""
        assert batch.images is not None and batch.text is not None
        model, objectives = self.model, self.training_config.objectives
        alpha = distillation.ramp(self.training_config.alpha, clock.epoch, self.training_config.ramp_epochs)
        losses: dict[str, Loss] = {}
        metrics = {"temperature": Loss(model.temperature.detach(), torch.ones(()))}

        image = model.encode_image(batch.images)
        text = model.encode_text(batch.text)
        keys, local = self._keys(lessons, own, len(batch))
        directions = self._contrast(model.embed_image(image), model.embed_text(text), batch, lessons[own], keys, local)
        if "itc" in objectives:
            losses["itc"] = self._align(directions, keys.filled, alpha)

        memory = model.remember(image)
        if "itm" in objectives:
            losses["itm"], matched = self._match(text, memory, directions, keys, draws)
            metrics |= matched

        if "mlm" in objectives:
            masked = draws.mask(batch, self._masking())
            losses["mlm"], predicted = self._predict(masked, batch.text.mask, memory, lessons[own], alpha)
            metrics |= predicted
        return Step(losses, dict(zip(Keys._fields, lessons[own].keys, strict=True)), metrics)

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        """The queue takes the teacher features of every micro-batch."""
        for carry in carries:
            self.queue.push(Keys(**carry))

    # --- the three objectives -----------------------------------------------------------------------------------------

    def _contrast(
        self,
        images: Float[Tensor, "B E"],
        texts: Float[Tensor, "B E"],
        batch: Batch,
        lesson: Lesson,
        keys: Keys,
        local: slice,
    ) -> tuple[Direction, Direction]:
        """Similarities of the student's features with all keys (eq. 1): image to text, text to image."""
        image_ids, caption_ids = self._ids(batch)
        texts_of_image = positive_pairs(image_ids, keys.image_ids, keys.caption_ids, self.shared)
        images_of_text = positive_pairs(keys.image_ids, image_ids, caption_ids, self.shared).T.clone()
        for positive in (texts_of_image, images_of_text):
            positive[:, local].fill_diagonal_(True)  # a pair is its own partner, its id known or not
        taught = lesson.keys.images[lesson.rows], lesson.keys.texts[lesson.rows]
        tau = self.model.temperature
        return (
            Direction(scaled_similarity(images, keys.texts, tau), texts_of_image, taught[0], keys.texts, local),
            Direction(scaled_similarity(texts, keys.images, tau), images_of_text, taught[1], keys.images, local),
        )

    def _align(self, directions: tuple[Direction, Direction], filled: Bool[Tensor, " K"], alpha: float) -> Loss:
        """ITC, the mean of both directions: eq. 2 with the targets of eq. 6."""
        total = torch.zeros((), device=filled.device)
        for logits, positive, taught, keys, _ in directions:
            targets = contrastive.equal_targets(positive & filled)
            if self.training_config.alpha > 0:
                opinion = scaled_similarity(taught, keys, self.model.temperature.detach())
                targets = distillation.blend(targets, opinion.masked_fill(~filled, -torch.inf), alpha)
            total = total + contrastive.contrastive_loss(logits, targets, filled) / 2
        return Loss(total, torch.tensor(len(directions[0].logits)))

    def _match(
        self, text: Text, memory: Memory, directions: tuple[Direction, Direction], keys: Keys, draws: Draws
    ) -> tuple[Loss, dict[str, Loss]]:
        """ITM (eq. 4): every true pair, every text with a mined image, every image with a mined text."""
        config = self.training_config
        from_queue, mined = config.text_negatives == "queue", config.negatives == "mined"
        its_texts, its_images = (direction.in_batch() for direction in directions)
        valid = torch.cat([torch.ones_like(its_texts.exist()), its_images.exist(), its_texts.exist()])
        if from_queue:
            its_texts = directions[0].in_queue(keys)
        text_weights = its_texts.weights(mined=mined)
        images = draws.mine("image_for_text", its_images.weights(mined=mined))
        texts = draws.mine("text_for_image", text_weights)
        negatives = self.model.encode_text(read(keys.captions[texts])) if from_queue else text.rows(texts)

        own = torch.arange(len(images), device=images.device)
        pairs, image_of = join([text, text, negatives]), torch.cat([own, images, own])
        logits = self.model.match(self.model.fuse(pairs, memory, image_of, first_only=True))
        true = torch.arange(len(image_of), device=own.device) < len(own)

        loss = Loss(matching.matching_loss(logits, true.long(), valid), valid.sum())
        right = (logits.argmax(1) == true.long()) & valid
        return loss, {
            "itm_positive_accuracy": Loss(right[: len(own)].sum(), valid[: len(own)].sum()),
            "itm_negative_accuracy": Loss(right[len(own) :].sum(), valid[len(own) :].sum()),
            "near_negatives": Loss(its_texts.near(text_weights), its_texts.exist().sum()),
        }

    def _predict(
        self, masked: Masked, mask: Bool[Tensor, "B L"], memory: Memory, lesson: Lesson, alpha: float
    ) -> tuple[Loss, dict[str, Loss]]:
        """MLM (eq. 3) with the teacher's distribution over words (eq. 7), at masked places only."""
        text, where = Text(masked.ids, mask), masked.where()
        labels = masked.labels.flatten()[where]
        logits = self.model.predict(self.model.fuse(self.model.encode_text(text), memory), where)
        total = masked_language.masked_language_loss(logits, labels)
        if self.training_config.alpha > 0:
            with torch.no_grad():
                teacher = self.teacher.model
                fused = teacher.fuse(teacher.encode_text(text), teacher.remember(lesson.image))
                opinion = teacher.predict(fused, where)
            total = (1 - alpha) * total + alpha * distillation.soft_cross_entropy(logits, opinion)
        count = torch.tensor(len(labels))
        return Loss(total, count), {"mlm_accuracy": Loss((logits.argmax(1) == labels).sum(), count)}

    # --- keys and ids -------------------------------------------------------------------------------------------------

    def _keys(self, lessons: Sequence[Lesson], own: int, rows: int) -> tuple[Keys, slice]:
        """All keys, this step's first and the queue's behind them; and where this micro-batch's pairs stand."""
        parts = [*(lesson.keys for lesson in lessons), self.queue.keys()]
        start = sum(len(lesson.keys.images) for lesson in lessons[:own]) + lessons[own].rows.start
        return Keys(*(torch.cat(part) for part in zip(*parts, strict=True))), slice(start, start + rows)

    def _ids(self, batch: Batch) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Image and caption ids of the batch; unknown where it has none or where they are not respected."""
        assert batch.text is not None
        unknown = torch.full((len(batch),), UNKNOWN_ID, device=batch.text.ids.device)
        if not self.training_config.respect_ids:
            return unknown, unknown
        return (
            unknown if batch.image_ids is None else batch.image_ids,
            unknown if batch.caption_ids is None else batch.caption_ids,
        )

    def _masking(self) -> Masking:
        config = self.training_config
        return Masking(config.mask_probability, config.whole_word, self.mask_id, self.ordinary)
