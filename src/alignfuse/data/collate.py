"""From records to training batches, in the main process or in workers, with equal results.

Everything random about a sample is a function of (seed, epoch, sample), so neither the worker nor the rank nor the rest
of the batch matters. A sample that cannot be read is reported with the batch it was meant for. Classes here pickle:
workers may be spawned.

Shapes: H and W rows and columns of pixels.
"""

import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from alignfuse.data.augment import Augment
from alignfuse.data.batch import Batch
from alignfuse.data.ids import Identities
from alignfuse.data.images import ImageError, load_image
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.records import Record
from alignfuse.data.sampler import EpochSampler
from alignfuse.data.seeds import generator, mix
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError

Visits = Literal["images", "pairs"]  # what an epoch visits once: each image with a random caption, or each pair
OnBad = Literal["raise", "skip", "replace"]
Key = tuple[int, int]  # epoch, sample
ATTEMPTS = 16  # replacements that are tried


class Sample(NamedTuple):
    """One pair, ready to be collated."""

    image: UInt8[Tensor, "3 H W"]
    caption: str
    image_id: int
    caption_id: int
    seed: int
    row: str


class Bad(NamedTuple):
    """A sample that could not be read."""

    path: str
    row: str
    reason: str


class Loaded(NamedTuple):
    """One micro-batch, and what went wrong on the way to it."""

    batch: Batch  # without rows where nothing could be read
    bad: list[Bad]
    error: str | None = None  # a mistake of the user's that ends the run


class PairDataset(Dataset[Sample | Bad]):
    """The pairs of a data set by (epoch, sample).

    A bad sample is left out of its batch (`skip`; on `raise` the training loop ends the run), or another one is drawn
    from the whole set, never one of the same batch (`replace`). Where nothing of a batch is left, one is drawn also on
    `skip`, so that all ranks have something to work on.
    """

    def __init__(
        self,
        records: Sequence[Record],
        identities: Identities,
        preprocessing: Preprocessing,
        augment: Augment | None = None,
        *,
        seed: int,
        visits: Visits = "images",
        on_bad: OnBad = "skip",
    ) -> None:
        self.records = records
        self.identities = identities
        self.preprocessing = preprocessing
        self.augment = augment
        self.seed = seed
        self.on_bad = on_bad
        self.pairs: list[tuple[int, int]] | None = None
        if visits == "pairs":
            self.pairs = [(i, k) for i, record in enumerate(records) for k in range(len(record.captions))]

    def __len__(self) -> int:
        return len(self.records if self.pairs is None else self.pairs)

    def __getitem__(self, key: Key) -> Sample | Bad:
        epoch, sample = key
        return self._load(sample, mix(self.seed, epoch, sample))

    def __getitems__(self, keys: Sequence[Key]) -> list[Sample | Bad]:
        """The samples of one batch in order, then replacements."""
        loaded = [self[key] for key in keys]
        lost = [key for key, item in zip(keys, loaded, strict=True) if isinstance(item, Bad)]
        if self.on_bad == "skip" and len(lost) == len(keys):
            lost = lost[:1]
        elif self.on_bad != "replace":
            lost = []
        taken = {sample for _, sample in keys}
        return loaded + [sample for key in lost for sample in self._replacement(key, taken)]

    def _replacement(self, key: Key, taken: set[int]) -> list[Sample]:
        """A readable sample that is not in `taken`, drawn at random; nothing if several draws fail."""
        seed = mix(self.seed, *key)
        for attempt in range(ATTEMPTS):
            other = mix(seed, attempt) % len(self)
            if other not in taken:
                taken.add(other)
                item = self._load(other, seed)
                if isinstance(item, Sample):
                    return [item]
        return []

    def _load(self, sample: int, seed: int) -> Sample | Bad:
        """Read and augment a sample; all it draws comes from `seed`."""
        index, caption = (sample, None) if self.pairs is None else self.pairs[sample]
        record = self.records[index]
        if caption is None:
            caption = generator(seed, "caption").randrange(len(record.captions))
        text = record.captions[caption]
        try:
            image = load_image(record.image)
            if self.augment is None:
                image = self.preprocessing(image)
            else:
                image = self.augment(image, generator(seed, "augment"), record.captions)  # all count as positives
        except ImageError as error:
            return Bad(str(record.image), record.row, error.reason)
        image_id, caption_id = int(self.identities.image_ids[index]), self.identities.caption_ids[index][caption]
        return Sample(image, text, image_id, caption_id, seed, record.row)


@dataclass(frozen=True)
class Collate:
    """Samples to a batch: images stacked, captions tokenised and padded to the longest."""

    tokenizer: Tokenizer

    def __call__(self, items: Sequence[Sample | Bad]) -> Loaded:
        samples = [item for item in items if isinstance(item, Sample)]
        bad = [item for item in items if isinstance(item, Bad)]
        if not samples:
            return Loaded(Batch(), bad, "nothing of a whole batch could be read, nor any replacement")
        try:
            encoded = self.tokenizer([sample.caption for sample in samples], rows=[sample.row for sample in samples])
        except UserError as error:  # as a value: raised in a worker it would reach the user as a traceback
            return Loaded(Batch(), bad, str(error))
        batch = Batch(
            images=torch.stack([sample.image for sample in samples]),
            text=encoded.text,
            maskable=encoded.maskable,
            words=encoded.words,
            image_ids=torch.tensor([sample.image_id for sample in samples]),
            caption_ids=torch.tensor([sample.caption_id for sample in samples]),
            seeds=torch.tensor([sample.seed for sample in samples]),
        )
        return Loaded(batch, bad)


class PairLoader:
    """The micro-batches of a run, update by update."""

    def __init__(
        self, dataset: PairDataset, sampler: EpochSampler, tokenizer: Tokenizer, *, workers: int | None = None
    ) -> None:
        self.dataset = dataset
        self.sampler = sampler
        self.collate = Collate(tokenizer)
        self.workers = default_workers() if workers is None else workers

    @property
    def samples(self) -> int:
        """Samples of an epoch, on all ranks together."""
        return self.sampler.samples

    @property
    def updates(self) -> int:
        """Optimizer steps of an epoch."""
        return self.sampler.updates

    def groups(self, first: int, last: int) -> Iterator[list[Loaded]]:
        """The micro-batches of updates `first` to `last` - 1, counted from the start of the run.

        Workers read ahead, also across epochs; what they have read is no part of the position.
        """
        plan, sizes = itertools.tee(self._plan(first, last))
        keys = (batch for update in plan for batch in update)
        loader = DataLoader(
            self.dataset,
            batch_sampler=keys,
            collate_fn=self.collate,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_begin_worker,
            generator=torch.Generator(),  # the default one belongs to dropout
        )
        batches = iter(loader)
        for update in sizes:
            yield [next(batches) for _ in update]

    def _plan(self, first: int, last: int) -> Iterator[list[list[Key]]]:
        """The keys of each micro-batch of each update."""
        epoch, start = divmod(first, self.updates)
        updates = (
            [[(number, sample) for sample in batch] for batch in update]
            for number in itertools.count(epoch)
            for update in self.sampler.groups(number, start if number == epoch else 0)
        )
        return itertools.islice(updates, last - first)


def default_workers() -> int:
    """A worker for each core of this process beyond its own, eight at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(8, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def _begin_worker(worker: int) -> None:
    """Ctrl-C and SIGTERM reach the whole group of processes, of which the main one decides when workers end.

    The tokenizer's threads do not survive a fork; workers are the parallelism.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
