"""A system small enough to check the loop with, and real image files for it.

Two linear towers with dropout, a teacher, a queue, a contrastive loss over all keys of the step and a loss on masked
words, of which micro-batches hold different numbers.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from alignfuse.data.augment import Augment, AugmentConfig
from alignfuse.data.batch import Batch
from alignfuse.data.collate import PairDataset, PairLoader
from alignfuse.data.ids import Identities
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.records import Record
from alignfuse.data.sampler import EpochSampler
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.state.queue import FeatureQueue, Keys, written
from alignfuse.state.teacher import Teacher
from alignfuse.systems.protocols import Clock, Draws, Loss, Masking, Step, Text
from alignfuse.training.distributed import first_row, gather, rank, world_size
from alignfuse.training.settings import TrainingConfig

SIDE, WIDTH = 8, 6
WORDS = ("red", "green", "blue", "small", "large", "old", "round", "square", "dog", "cat", "house", "tree")


class FakeModel(nn.Module):
    def __init__(self, vocab_size: int, dropout: float) -> None:
        super().__init__()
        self.image = nn.Linear(3 * SIDE * SIDE, WIDTH)
        self.word = nn.Embedding(vocab_size, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.guess = nn.Linear(WIDTH, vocab_size)
        self.temperature = nn.Parameter(torch.tensor(0.3))

    def embed_image(self, images: Tensor) -> Tensor:
        return functional.normalize(self.image(self.dropout(images.flatten(1).float() / 255)), dim=1)

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.word(ids) * mask[..., None]
        return self.norm(self.dropout(states.sum(1) / mask.sum(1, keepdim=True)))

    def embed_text(self, text: Text) -> Tensor:
        return functional.normalize(self.read(text.ids, text.mask), dim=1)


class FakeSystem(nn.Module):
    def __init__(self, tokenizer: Tokenizer, *, dropout: float = 0.1, queue_size: int = 20, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = FakeModel(tokenizer.vocab_size, dropout)
        self.teacher = Teacher(self.model, without=("guess", "temperature"))
        self.queue = FeatureQueue(queue_size, WIDTH)
        ordinary = torch.tensor([i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids])
        self.masking = Masking(0.3, False, tokenizer.mask_id, ordinary)

    def before_step(self) -> None:
        with torch.no_grad():
            self.model.temperature.clamp_(0.01, 0.5)
        self.teacher.move(self.model, 0.9)

    def teach(self, batch: Batch) -> tuple[Keys, int]:
        assert batch.images is not None and batch.text is not None
        assert batch.image_ids is not None and batch.caption_ids is not None
        teacher = self.teacher.model
        filled = torch.ones(len(batch), dtype=torch.bool)
        own = (teacher.embed_image(batch.images), teacher.embed_text(batch.text), batch.image_ids, batch.caption_ids)
        keys = Keys(*own, filled, written(batch.text, 0))
        return Keys(*(gather(part) for part in keys)), first_row(len(batch))

    def terms(self, batch: Batch, draws: Draws) -> dict[str, int]:
        return {"align": len(batch), "word": len(draws.mask(batch, self.masking).where())}

    def forward(self, batch: Batch, lessons: Sequence[tuple[Keys, int]], own: int, clock: Clock, draws: Draws) -> Step:
        assert batch.images is not None and batch.text is not None
        images = self.model.embed_image(batch.images)
        keys, start = lessons[own]
        texts = torch.cat([lesson.texts for lesson, _ in lessons] + [self.queue.texts[self.queue.filled]])
        logits = images @ texts.T / self.model.temperature
        first = sum(len(lesson.texts) for lesson, _ in lessons[:own]) + start
        labels = torch.arange(first, first + len(images))
        align = functional.cross_entropy(logits, labels, reduction="sum")

        masked = draws.mask(batch, self.masking)
        places = masked.where()
        rows = places // batch.text.ids.shape[1]
        guesses = self.model.guess(self.model.read(masked.ids, batch.text.mask) + images)[rows]
        word = functional.cross_entropy(guesses, batch.text.ids.flatten()[places], reduction="sum")
        losses = {"align": Loss(align, torch.tensor(len(images))), "word": Loss(word, torch.tensor(len(places)))}
        right = (logits.argmax(1) == labels).sum()
        return Step(losses, keys._asdict(), {"align_accuracy": Loss(right, torch.tensor(len(images)))})

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        for carry in carries:
            self.queue.push(Keys(**carry))


def make_records(folder: Path, count: int) -> list[Record]:
    """Images of noise with one to three captions of different lengths."""
    rng = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for i in range(count):
        path = folder / f"image {i}.png"
        Image.frombytes("RGB", (10, 9), rng.randbytes(270)).save(path)
        captions = tuple(" ".join(rng.choices(WORDS, k=rng.randint(2, 7))) for _ in range(1 + i % 3))
        records.append(Record(path, captions, f"i{i}", None, f"pairs.csv, row {i + 2}"))
    return records


def make_tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)] * 2, vocab_size=120)


def make_loader(records: list[Record], config: TrainingConfig, *, visits: str = "images") -> PairLoader:
    dataset = PairDataset(
        records,
        Identities.of(records),
        Preprocessing(image_size=(SIDE, SIDE)),
        Augment(AugmentConfig(count=0), (SIDE, SIDE)),
        seed=config.seed,
        visits=visits,  # type: ignore[arg-type]
        on_bad=config.on_bad,
    )
    sampler = EpochSampler(
        samples=len(dataset),
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        seed=config.seed,
        rank=rank(),
        world_size=world_size(),
    )
    return PairLoader(dataset, sampler, make_tokenizer(), workers=config.workers)
