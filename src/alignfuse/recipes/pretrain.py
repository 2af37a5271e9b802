"""From a user's pairs to a run directory: read, split, tokenise, build, start, train, validate."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from alignfuse.api import Pipeline
from alignfuse.blocks.vision import VisionConfig
from alignfuse.config import from_dict, to_dict
from alignfuse.convert.files import read_settings
from alignfuse.convert.initial import image_config, init_from, text_config, text_pooling, whole_config
from alignfuse.convert.run import load_training
from alignfuse.convert.write import OFFICIAL_TEXT
from alignfuse.data.augment import Augment, AugmentConfig
from alignfuse.data.collate import Bad, PairDataset, PairLoader
from alignfuse.data.ids import Identities
from alignfuse.data.images import ImageError, load_image
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.readers import read_pairs
from alignfuse.data.records import Record
from alignfuse.data.sampler import EpochSampler
from alignfuse.data.splits import HELD_OUT, split_records
from alignfuse.data.tokenizer import Tokenizer, TokenizerConfig
from alignfuse.errors import UserError, reading
from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.systems.albef import ALBEFSystem, ALBEFTraining, Objective
from alignfuse.tasks.retrieval import RetrievalConfig
from alignfuse.training import checkpoint, distributed
from alignfuse.training.bad_samples import BadSamples
from alignfuse.training.estimate import refuse_large_on_cpu
from alignfuse.training.loop import Result, Validation, fit
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import seed_everything
from alignfuse.wording import counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the pairs are and how their columns are called (None: by their usual names)."""

    paths: tuple[str, ...]
    root: str | None = None
    image_field: str | None = None
    caption_field: str | None = None
    id_field: str | None = None
    split_field: str | None = None
    held_out: float = HELD_OUT  # share of the images kept for validation where the data has no splits

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must be at least 0 and below 1, not {self.held_out}")


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """What training starts from; nothing = from scratch."""

    run: str | None = None  # a run directory or an official checkpoint: the whole model
    text: str | None = None  # a BERT, or the text side of one of the above
    image: str | None = None  # a ViT, DeiT or EfficientNet-Lite0, or the image side
    keep_queue: bool = False  # keep the old features of `run` as negatives, as the official code does
    allow_missing: bool = False  # parts that a source should hold and does not may start from scratch
    trust: bool = False  # open pickles that may run code
    vocabulary: str | None = None  # vocab.txt, tokenizer.json or a folder with one; None: that of the start, or trained
    vocab_size: int = 10_000  # of a trained vocabulary


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Retrieval on the held-out images after each epoch."""

    k: int = 16
    images: int = 1000  # the first so many
    score: Literal["itm", "itc+itm", "itc"] = "itm"

    def __post_init__(self) -> None:
        if self.k < 1 or self.images < 1:
            raise ValueError(f"k and images must be at least 1, not {self.k} and {self.images}")


@dataclass(frozen=True, kw_only=True)
class PretrainRun:
    """Everything that decides a run; stored resolved beside its checkpoints."""

    system: Literal["albef"]
    data: DataConfig
    start: StartConfig
    model: ALBEFConfig
    objective: ALBEFTraining
    text: TokenizerConfig
    augment: AugmentConfig | None
    training: TrainingConfig
    validation: ValidationConfig = field(default_factory=ValidationConfig)


READERS: dict[str, set[Objective]] = {  # the objectives that read a part of the model; all read its encoders
    "image_projection": {"itc"},
    "text_projection": {"itc"},
    "temperature": {"itc"},
    "match_head": {"itm"},
    "mask_head": {"mlm"},
    "fusion_encoder": {"itm", "mlm"},
}


class Corpus(NamedTuple):
    """The pairs of a run, and what splits and tells apart their captions: the slow part of building one."""

    train: list[Record]
    held_out: list[Record]
    tokenizer: Tokenizer
    identities: Identities


class Parts(NamedTuple):
    """What a run is made of."""

    system: ALBEFSystem
    loader: PairLoader
    tokenizer: Tokenizer
    preprocessing: Preprocessing
    held_out: list[Record]


def execute(
    run: PretrainRun,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    yes: bool = False,
    device: str = "auto",
    corpus: Corpus | None = None,
) -> Result:
    """Train, and leave the run in `out`. `yes` lets a large model train on a CPU.

    To resume, give the run that `stored` reads from `out`. `corpus` is the run's where it was collected before.
    """
    with distributed.processes(device) as place:
        if distributed.is_main():
            checkpoint.refuse_occupied(out, resume=resume, overwrite=overwrite)
        resolved, parts = build(run, out if resume else None, corpus=corpus)
        refuse_large_on_cpu(parts.system, place, yes=yes)
        if distributed.is_main() and not resume:  # not before all of the new run is known to be in order
            checkpoint.prepare(out, overwrite=overwrite)
            checkpoint.write_json(out / "config.json", to_dict(resolved))
            parts.tokenizer.save(out / "tokenizer.json")
            parts.preprocessing.save(out / "preprocessing.json")
        distributed.barrier()
        parts = parts._replace(held_out=readable(parts.held_out[: resolved.validation.images], out, resolved.training))
        validate = validation(parts, resolved.validation, place) if parts.held_out else None
        return fit(parts.system, parts.loader, resolved.training, out, device=place, validate=validate, resume=resume)


def stored(out: Path) -> PretrainRun:
    """The run that a directory holds."""
    settings = read_settings(out)
    if "training" not in settings:
        raise UserError(f"{out}: no config.json of a run there; nothing to resume")
    with reading(out / "config.json"):
        return from_dict(PretrainRun, settings)


def held_out_share(folder: Path) -> float:
    """Which share of images without splits the model of a directory was not trained on; a converted one: the usual."""
    settings = read_settings(folder)
    with reading(folder / "config.json"):
        return from_dict(DataConfig, settings["data"], where="data").held_out if "data" in settings else HELD_OUT


def collect(run: PretrainRun, resumed: Path | None = None) -> Corpus:
    """Read the pairs, choose the tokenizer, look for captions that do not fit. A resumed run keeps its tokenizer."""
    splits = read_splits(run.data)
    train = splits.get("train", [])
    if not train:
        raise UserError(f"{', '.join(run.data.paths)}: no record is marked train; found {', '.join(splits)}")
    tokenizer = choose_tokenizer(run, train, resumed)
    captions = [(caption, record.row) for record in train for caption in record.captions]
    tokenizer.count_long([caption for caption, _ in captions], rows=[row for _, row in captions])
    return Corpus(train, splits.get("val", []), tokenizer, Identities.of(train))


def build(run: PretrainRun, resumed: Path | None = None, *, corpus: Corpus | None = None) -> tuple[PretrainRun, Parts]:
    """The run with every setting resolved, and its parts, new each time. A resumed run loads no start."""
    train, held_out, tokenizer, identities = corpus or collect(run, resumed)
    model_config = fitting_sizes(run, tokenizer)
    objective = replace(run.objective, queue_size=fitting_queue(run.objective.queue_size, len(train)))
    run = replace(run, model=model_config, objective=objective)

    seed_everything(run.training.seed)
    system = ALBEFSystem(
        new_model(run.model),
        run.objective,
        mask_id=tokenizer.mask_id,
        special_ids=tokenizer.special_ids,
        shared_pairs=identities.shared,
        max_tokens=run.text.max_tokens,
    )
    if resumed is None:
        load_start(system, run.start, tokenizer)
    freeze_unused(system.model, run.objective.objectives)
    preprocessing = Preprocessing(image_size=run.model.image.image_size, text=run.text)
    augment = None if run.augment is None else Augment(run.augment, run.model.image.image_size)
    dataset = PairDataset(train, identities, preprocessing, augment, seed=run.training.seed, on_bad=run.training.on_bad)
    sampler = EpochSampler(
        samples=len(dataset),
        batch_size=run.training.batch_size,
        seed=run.training.seed,
        accumulation=run.training.accumulation,
        rank=distributed.rank(),
        world_size=distributed.world_size(),
    )
    loader = PairLoader(dataset, sampler, tokenizer, workers=run.training.workers)
    return run, Parts(system, loader, tokenizer, preprocessing, held_out)


def read_splits(data: DataConfig) -> dict[str, list[Record]]:
    """The records of the data, by split."""
    pairs = read_pairs(
        data.paths,
        root=data.root,
        image_field=data.image_field,
        caption_field=data.caption_field,
        id_field=data.id_field,
        split_field=data.split_field,
    )
    return split_records(pairs.records, held_out=data.held_out)


def choose_tokenizer(run: PretrainRun, train: Sequence[Record], resumed: Path | None) -> Tokenizer:
    """The tokenizer that was named, or that of the start, or one trained on the training captions."""
    start = run.start
    if resumed is not None:
        return Tokenizer.from_file(resumed / "tokenizer.json", run.text)
    if start.vocabulary is not None:
        return Tokenizer.from_file(Path(start.vocabulary), run.text)
    for source in (start.text, start.run):
        if source is not None:
            folder = Path(source) if Path(source).is_dir() else Path(source).parent
            return Tokenizer.from_file(folder, run.text)
    captions = [caption for record in train for caption in record.captions]
    tokenizer = Tokenizer.train(captions, start.vocab_size, run.text)
    logger.info(
        "vocabulary: %s, trained on %s", counted(tokenizer.vocab_size, "word piece"), counted(len(captions), "caption")
    )
    return tokenizer


def starting_sizes(model: ALBEFConfig, start: StartConfig) -> ALBEFConfig:
    """`model` with the sizes that starting weights bring; `start.run` brings its image size too."""
    if start.run is not None:
        model = whole_config(Path(start.run), trust=start.trust)
    if start.text is not None:
        source = Path(start.text)
        text = text_config(source, model.text, trust=start.trust)
        model = replace(model, text=text, text_pooling=text_pooling(source))
    if start.image is not None:
        size = model.image.image_size
        image = image_config(Path(start.image), model.image, image_size=size, trust=start.trust)
        model = replace(model, image=image)
    return model


def starting_text(start: StartConfig) -> TokenizerConfig:
    """How texts were treated for the model that training starts from; by default where it is new."""
    if start.run is None:
        return TokenizerConfig()
    path = Path(start.run)
    file = (path if path.is_dir() else path.parent) / "preprocessing.json"
    return Preprocessing.load(file).text if file.is_file() else OFFICIAL_TEXT


def fitting_sizes(run: PretrainRun, tokenizer: Tokenizer) -> ALBEFConfig:
    """The model's sizes with the vocabulary of the tokenizer."""
    model = run.model
    if run.text.max_tokens > model.text.positions:
        raise UserError(
            f"text.max_tokens is {run.text.max_tokens}, but the model has {model.text.positions} positions: "
            "lower it, or raise model.text.positions"
        )
    image = model.image
    if isinstance(image, VisionConfig) and any(side % image.patch_size for side in image.image_size):
        raise UserError(
            f"model.image.image_size is {image.image_size[0]} x {image.image_size[1]} pixels, no whole number of "
            f"patches: it must be a multiple of model.image.patch_size={image.patch_size}"
        )
    return replace(model, text=replace(model.text, vocab_size=tokenizer.vocab_size))


def new_model(config: ALBEFConfig) -> ALBEF:
    """A model with random weights. UserError where its sizes do not go together."""
    try:
        return ALBEF(config)
    except ValueError as error:
        raise UserError(f"model: {error}") from error


def fitting_queue(wanted: int, images: int) -> int:
    """The queue is at most a quarter of the data: more would fill it with stale copies of the same images."""
    size = min(wanted, images // 4)
    if size < wanted:
        logger.info("queue: %s, a quarter of the %s", counted(size, "pair"), counted(images, "image"))
    return size


def load_start(system: ALBEFSystem, start: StartConfig, tokenizer: Tokenizer) -> None:
    """Starting weights into the model; the teacher starts from them too, or from its own where `run` has one."""
    paths = [None if name is None else Path(name) for name in (start.run, start.text, start.image)]
    if not any(paths):
        return
    whole, text, image = paths
    report = init_from(
        system.model,
        whole=whole,
        text=text,
        image=image,
        tokenizer=tokenizer,
        allow_missing=start.allow_missing,
        trust=start.trust,
    )
    logger.info("%s", report)
    system.teacher.copy(system.model)
    if whole is not None and whole.is_dir() and text is None and image is None:
        logger.info("%s", load_training(system, whole, keep_queue=start.keep_queue))


def freeze_unused(model: ALBEF, objectives: Sequence[Objective]) -> None:
    """Parts that no objective reads are not trained: DDP waits for the gradient of everything that is."""
    for part, readers in READERS.items():
        if readers.isdisjoint(objectives):
            getattr(model, part).requires_grad_(False)


def readable(records: Sequence[Record], out: Path, config: TrainingConfig) -> list[Record]:
    """The held-out records whose images can be read. The others are bad samples of the run, but do not end it."""

    def problem(record: Record) -> Bad | None:
        try:
            load_image(record.image)
        except ImageError as error:
            return Bad(str(record.image), record.row, error.reason)
        return None

    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(problem, records))
    found = [item for item in problems if item is not None]
    BadSamples(out, on_bad=config.on_bad, max_share=1.0, samples=len(records)).take(found, len(records))
    if found and len(found) == len(records):
        logger.warning("no image for validation can be read: the run goes without validation")
    return [record for record, item in zip(records, problems, strict=True) if item is None]


def validation(parts: Parts, config: ValidationConfig, device: torch.device) -> Callable[[], Validation]:
    """Mean recall of re-ranked retrieval on held-out images. Every rank computes the same."""
    records = parts.held_out[: config.images]
    pipe = Pipeline(parts.system.model, parts.tokenizer, parts.preprocessing, "", device)

    def validate() -> Validation:
        found = pipe.evaluate_retrieval(records, split="val", config=RetrievalConfig(k=config.k, score=config.score))
        metrics = {f"{score} mean recall": both.mean for score, both in found.recalls.items()}
        return Validation(found.final.mean, metrics)

    return validate
