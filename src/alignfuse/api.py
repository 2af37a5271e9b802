"""A trained model ready to use: `pipe = alignfuse.load("runs/mine")`. Opens local files alone, none of them a pickle.

Shapes: N images or texts, E embedding width.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from alignfuse.blocks.vision import VisionConfig
from alignfuse.config import to_dict
from alignfuse.convert.run import model_config
from alignfuse.data.batches import Image, ImageBatches, TextBatches, as_source
from alignfuse.data.collate import default_workers
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.records import Record
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError, one_line
from alignfuse.models.albef import ALBEF
from alignfuse.search.fingerprint import fingerprint
from alignfuse.search.index import Hit, Index, Kind, build, open_index
from alignfuse.search.rerank import rerank_images, rerank_texts
from alignfuse.search.sources import Sources, image_at
from alignfuse.tasks.encoding import embed_images, embed_texts, inference, on_device
from alignfuse.tasks.progress import Report, Stages
from alignfuse.tasks.ranking import Score, require_score
from alignfuse.tasks.retrieval import RetrievalConfig, evaluate
from alignfuse.tasks.retrieval_report import RetrievalReport
from alignfuse.training.distributed import choose_device
from alignfuse.wording import counted

FilesOrPixels = Sequence[str | Path | Image]


class Match(NamedTuple):
    """How well a text fits an image."""

    itc: float  # cosine of the embeddings, -1 to 1
    itm: float  # logit of "match" of the fusion encoder
    probability: float  # that it is a match, by the fusion encoder


def load(path: str | Path, *, device: str = "auto") -> "Pipeline":
    """The model in a run directory (or its `best/`), in evaluation mode.

    Raises UserError where a file is missing or does not belong to the others.
    """
    folder = Path(path)
    for name in ("config.json", "model.safetensors", "preprocessing.json"):
        if not (folder / name).is_file():
            raise UserError(f"{folder}: no {name} there; give the directory of a run, or its best/")
    config = model_config(folder)
    preprocessing = Preprocessing.load(folder / "preprocessing.json")
    image, size = config.image, preprocessing.image_size
    if isinstance(image, VisionConfig) and min(size) < image.patch_size:
        raise UserError(
            f"{folder / 'preprocessing.json'}: image_size is {size[0]} x {size[1]} pixels, less than a patch of "
            f"{image.patch_size}: write {list(image.image_size)}, the size that the model was trained with"
        )
    if preprocessing.text.max_tokens > config.text.positions:
        raise UserError(
            f"{folder}: preprocessing.json allows {preprocessing.text.max_tokens} tokens, the model has "
            f"{config.text.positions} positions: they are not of one run"
        )
    tokenizer = None
    if (folder / "tokenizer.json").is_file():
        tokenizer = Tokenizer.from_file(folder / "tokenizer.json", preprocessing.text)
        if tokenizer.vocab_size != config.text.vocab_size:
            raise UserError(
                f"{folder}: tokenizer.json has {tokenizer.vocab_size} words, the model {config.text.vocab_size}: "
                "they are not of one run"
            )
    try:
        with torch.device("meta"):
            model = ALBEF(config)
        weights = load_file(folder / "model.safetensors")
        model.load_state_dict(weights, assign=True)
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{folder / 'model.safetensors'}: not the weights of this config ({one_line(error)})"
        ) from error
    if broken := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise UserError(f"{folder / 'model.safetensors'}: {broken[0]} holds NaN or infinite values")
    place = choose_device(device)
    return Pipeline(model.float().eval().to(place), tokenizer, preprocessing, str(folder), place)


@dataclass(frozen=True)
class Pipeline:
    """A model with its tokenizer and its image preprocessing. `model` has the verbs.

    A converted checkpoint may have come without its vocabulary (`vocabulary` None): it reads images, and ids through
    the model's verbs, but no texts.
    """

    model: ALBEF
    vocabulary: Tokenizer | None
    preprocessing: Preprocessing
    name: str  # where it was loaded from
    device: torch.device

    @property
    def tokenizer(self) -> Tokenizer:
        """What splits texts for this model."""
        if self.vocabulary is None:
            raise UserError(
                f"{self.name}: no tokenizer.json there, so no texts can be read; convert again with --vocab"
            )
        return self.vocabulary

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides an embedding; an index stores it."""
        settings = json.dumps([to_dict(self.model.config), to_dict(self.preprocessing)], sort_keys=True)
        words = "" if self.vocabulary is None else self.vocabulary.core.to_str()
        return fingerprint(self.model, settings, words)

    @property
    def itc_weight(self) -> float:
        """What the cosine counts beside the match logit in itc+itm: it is over the temperature, as in the loss."""
        return 1.0 / self.model.temperature.item()

    # --- embeddings ---------------------------------------------------------------------------------------------------

    def embed_images(self, images: FilesOrPixels, *, progress: Report | None = None) -> Float[Tensor, "N E"]:
        """Unit vectors of image files, encoded images in memory, or pixels (uint8 [3, H, W])."""
        batches = embed_images(self.model, self._image_batches(images), device=self.device)
        return self._joined(batches, "images", len(images), progress)

    def embed_texts(self, texts: Sequence[str], *, progress: Report | None = None) -> Float[Tensor, "N E"]:
        """Unit vectors of texts."""
        batches = embed_texts(self.model, self._text_batches(texts), device=self.device)
        return self._joined(batches, "texts", len(texts), progress)

    def match(self, images: FilesOrPixels, texts: Sequence[str]) -> list[Match]:
        """How well text i fits image i; a single image is compared with every text, a single text with every image."""
        require_list(images, "images")
        require_texts(texts)
        count = max(len(images), len(texts))
        if len(images) not in (1, count) or len(texts) not in (1, count):
            raise UserError(
                f"{counted(len(images), 'image')} and {counted(len(texts), 'text')}: "
                "give as many of both, or one of either"
            )
        found: list[Match] = []
        for start in range(0, count, 64):
            end = min(start + 64, count)
            some_images = images if len(images) == 1 else images[start:end]
            some_texts = texts if len(texts) == 1 else texts[start:end]
            found += self._match(some_images, some_texts, end - start)
        return found

    def _match(self, images: FilesOrPixels, texts: Sequence[str], count: int) -> list[Match]:
        """One batch of `match`; one image or one text stands for `count`."""
        (pixels,), (text,) = self._image_batches(images), self._text_batches(texts)
        with inference(self.model):
            image = self.model.encode_image(pixels.to(self.device))
            text = self.model.encode_text(on_device(text, self.device))
            cosines = (self.model.embed_image(image) * self.model.embed_text(text)).sum(dim=1).clamp(-1, 1)
            text_of = torch.zeros(count, dtype=torch.long) if len(texts) == 1 else torch.arange(count)
            image_of = torch.zeros(count, dtype=torch.long) if len(images) == 1 else torch.arange(count)
            memory, pairs = self.model.remember(image), text.rows(text_of.to(self.device))
            logits = self.model.match(self.model.fuse(pairs, memory, image_of.to(self.device), first_only=True)).float()
        probabilities = logits.softmax(dim=1)[:, 1]
        rows = zip(cosines.expand(count).tolist(), logits[:, 1].tolist(), probabilities.tolist(), strict=True)
        return [Match(*row) for row in rows]

    # --- sets ---------------------------------------------------------------------------------------------------------

    def embed(self, found: Sources, *, progress: Report | None = None) -> Index:
        """An index of images or texts, as `search.sources.sources` finds them; `Index.save` writes it."""
        texts = [item for item in found.items if isinstance(item, str)]
        kind: Kind = "text" if texts else "image"
        if texts:
            vectors = self.embed_texts(texts, progress=progress)
        else:
            vectors = self.embed_images([item for item in found.items if not isinstance(item, str)], progress=progress)
        return build(vectors, found.records, kind=kind, model=self.fingerprint)

    def search(
        self,
        query: str | Path,
        index: Index,
        *,
        k: int = 10,
        score: Score = "itm",
        shortlist: int = 64,
    ) -> list[Hit]:
        """The `k` best of an index for a text, or for an image given as a Path; best first.

        A text among images, or an image among texts, is ranked by ITC and its `shortlist` re-ranked by `score`; within
        one kind there is ITC alone.
        """
        if not isinstance(query, str | Path):
            raise UserError(f"a search is for one text, or for one image given as a Path, not for {query!r:.60}")
        if isinstance(query, str):
            require_texts([query])
        require_score(score)
        if k < 1 or shortlist < 1:
            raise UserError(f"k is {k}, shortlist {shortlist}: a search looks for at least one result")
        kind: Kind = "image" if isinstance(query, Path) else "text"
        rerank = score != "itc" and kind != index.kind
        vector = self.embed_images([query]) if isinstance(query, Path) else self.embed_texts([query])
        (hits,) = index.search(vector, max(k, shortlist) if rerank else k)
        if not rerank:
            return hits
        if isinstance(query, Path):
            (pixels,) = self._image_batches([query])
            captions = self._text_batches([str(hit.record["caption"]) for hit in hits])
            hits = rerank_texts(
                self.model, pixels, captions, hits, score=score, itc_weight=self.itc_weight, device=self.device
            )
        else:
            (text,) = self._text_batches([query])
            images = self._image_batches([image_at(hit.record) for hit in hits])
            hits = rerank_images(
                self.model, text, images, hits, score=score, itc_weight=self.itc_weight, device=self.device
            )
        return hits[:k]

    def open_index(self, folder: str | Path) -> Index:
        """An embedding file of this model; one of another model, or one that was changed, is refused."""
        return open_index(Path(folder), model=self.fingerprint)

    def evaluate_retrieval(
        self,
        records: Sequence[Record],
        *,
        split: str,
        config: RetrievalConfig | None = None,
        progress: Report | None = None,
    ) -> RetrievalReport:
        """Recalls both ways on the images of `records` and all their captions."""
        if not records:
            raise UserError("there is nothing to evaluate on: no records")
        captions = [(n, record.row, caption) for n, record in enumerate(records) for caption in record.captions]
        numbers, rows, texts = zip(*captions, strict=True)
        config = config or RetrievalConfig()
        if config.itc_weight is None:
            config = replace(config, itc_weight=self.itc_weight)
        return evaluate(
            self.model,
            self._image_batches([record.image for record in records]),
            TextBatches(texts, self.tokenizer, rows),
            torch.tensor(numbers),
            checkpoint=self.name,
            split=split,
            config=config,
            device=self.device,
            progress=progress,
        )

    # --- inside -------------------------------------------------------------------------------------------------------

    def _image_batches(self, images: FilesOrPixels) -> ImageBatches:
        require_list(images, "images")
        workers = default_workers() if len(images) > 256 else 0
        return ImageBatches([as_source(image) for image in images], self.preprocessing, workers=workers)

    def _text_batches(self, texts: Sequence[str]) -> TextBatches:
        require_texts(texts)
        return TextBatches(texts, self.tokenizer)

    def _joined(
        self, batches: Iterable[Float[Tensor, "_ E"]], unit: str, count: int, progress: Report | None
    ) -> Float[Tensor, "N E"]:
        """All embeddings, with progress."""
        stages = Stages(progress)
        stages.start(f"embed {unit}", unit, count)
        parts = [torch.empty(0, self.model.config.embed_dim)]
        for part in batches:
            parts.append(part)
            stages.add(len(part))
        return torch.cat(parts)


def require_list(items: object, what: str) -> None:
    """A text is a sequence of letters and a tensor one of planes: neither is what anyone means by several."""
    if isinstance(items, str | bytes | Tensor) or not isinstance(items, Sequence):
        shown = " ".join(repr(items).split())
        raise UserError(f"give a list of {what}, also for a single one: [{shown:.60}]")


def require_texts(texts: Sequence[str]) -> None:
    """A list of texts that each hold something to compare."""
    require_list(texts, "texts")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise UserError(f"text {number} is no str but {type(text).__name__}")
        if not text.strip():
            raise UserError(f"text {number} is empty: there is nothing to compare")
