"""The toy experiment of the vision-language pretraining article, on our own model and objectives.

Twenty-four captions, "small red ring" and the like, are all combinations of two sizes, three colours and four shapes.
Each has six neighbours that share two of its three words. A picture of 16 x 16 pixels is drawn anew whenever it is
shown: brightness and noise differ, and so they do in the pictures that are measured on. A batch holds eight different
captions. For every seed:

- a model learns to align: ITC and MLM;
- from there on all three objectives, once with mined negatives as in the paper, once with random ones. Both begin with
  the same weights and see the same pictures and masks, so that the negatives are all that differs;
- another model learns MLM alone in front of a blank picture: what the words say about each other.

Measured on fresh pictures:

- near mass: share of the mining weights that lies on neighbours, and the same for uniform weights;
- ITC loss of a batch of eight (chance: ln 8 = 2.079);
- one-word ITM: mean of the share of true pairs accepted and the share of pairs with one word changed that is refused,
  at the untuned threshold, each picture with its caption and with all six neighbours;
- masked words: each of the three words in turn. Text alone can be right in (1/2 + 1/3 + 1/4) / 3 = 36% of the cases.

    python benchmarks/article_toy.py [--seeds 0-9] [--json]
"""

import argparse
import copy
import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.tokens import Text
from alignfuse.blocks.vision import VisionConfig
from alignfuse.data.batch import Batch
from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.objectives.contrastive import contrastive_loss, scaled_similarity
from alignfuse.objectives.matching import mining_weights, uniform_weights
from alignfuse.systems.albef import ALBEFSystem, ALBEFTraining, Objective
from alignfuse.systems.protocols import Clock
from alignfuse.training.optimizer import OptimizerConfig, make_optimizer
from alignfuse.training.schedule import ScheduleConfig, learning_rate
from alignfuse.training.step import Updater, seed_everything

SIZES = {"small": 3.5, "large": 6.5}  # half the height in pixels
COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 230)}
SHAPES = ("square", "ring", "bar", "post")
CAPTIONS = list(itertools.product(SIZES, COLOURS, SHAPES))
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [*SPECIAL, *SIZES, *COLOURS, *SHAPES]
MASK = SPECIAL.index("[MASK]")

SIDE = 16
NOISE = 60  # of 255
BATCH = 8
STEPS = {"align": 450, "match": 500, "words": 150}
TESTS = 20  # pictures per caption that are measured on
MODEL = ALBEFConfig(
    image=VisionConfig(
        image_size=(SIDE, SIDE),
        patch_size=4,
        width=48,
        layers=1,
        heads=4,
        hidden=192,
        init_std=0.1,
        mean=(0.2,) * 3,
        std=(0.2,) * 3,
    ),
    text=TextConfig(
        vocab_size=len(WORDS),
        width=48,
        layers=1,
        fusion_layers=1,
        heads=4,
        hidden=192,
        positions=5,
        dropout=0.15,
        init_std=0.1,
    ),
    embed_dim=32,
    temperature=0.15,
)
OPTIMIZER = OptimizerConfig(lr=4e-3, betas=(0.9, 0.98))
SCHEDULE = ScheduleConfig(warmup=0.1, end=0.05)

# What the article reports for seeds 0-9.
PUBLISHED = {
    "near_mass": (0.57, 0.85),
    "itm_random": (0.74, 0.81),
    "itm_mined": (0.88, 0.95),
    "words_without_image": (0.33, 0.37),
    "words_with_image": (0.98, 0.99),
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The results of one seed: shares from 0 to 1, and a loss."""

    seed: int
    near_mass: float
    near_mass_uniform: float
    itc_loss: float
    itm_random: float
    itm_mined: float
    words_without_image: float
    words_with_image: float


class Pictures(NamedTuple):
    """Pictures and the numbers of their captions."""

    images: UInt8[Tensor, "N 3 16 16"]
    captions: Int[Tensor, " N"]


# --- data -------------------------------------------------------------------------------------------------------------


def silhouettes() -> Bool[Tensor, "24 16 16"]:
    """Where each caption's shape is, in the middle of the picture."""
    axis = torch.arange(SIDE) - (SIDE - 1) / 2
    y, x = axis[:, None].abs(), axis[None, :].abs()

    def shape(name: str, radius: float) -> Bool[Tensor, "16 16"]:
        box = torch.maximum(x, y) <= radius
        return {
            "square": box,
            "ring": ((x**2 + y**2).sqrt() - radius + 1).abs() <= 1,
            "bar": box & (y <= radius / 3),
            "post": box & (x <= radius / 3),
        }[name]

    return torch.stack([shape(name, SIZES[size]) for size, _, name in CAPTIONS])


def draw(captions: Int[Tensor, " N"], random: torch.Generator) -> Pictures:
    """One picture of each caption: its shape in its colour, more or less bright, on dark noise."""
    colours = torch.tensor([COLOURS[colour] for _, colour, _ in CAPTIONS])[captions]
    light = 0.7 + 0.3 * torch.rand(len(captions), 1, generator=random)
    paint = (colours * light)[:, :, None, None] * silhouettes()[captions][:, None]
    noise = torch.rand(len(captions), 3, SIDE, SIDE, generator=random) * NOISE
    return Pictures((paint + noise).clamp(0, 255).to(torch.uint8), captions)


def encode(captions: Int[Tensor, " N"]) -> Text:
    """[CLS] size colour shape [SEP]."""
    rows = [["[CLS]", *CAPTIONS[caption], "[SEP]"] for caption in captions.tolist()]
    ids = torch.tensor([[WORDS.index(word) for word in row] for row in rows])
    return Text(ids, torch.ones_like(ids, dtype=torch.bool))


def neighbours() -> Bool[Tensor, "24 24"]:
    """Which captions share exactly two of three words."""
    words = encode(torch.arange(len(CAPTIONS))).ids[:, 1:4]
    return (words[:, None] == words[None]).sum(2) == 2


def make_batch(pictures: Pictures, seeds: Int[Tensor, " B"]) -> Batch:
    """A training batch; only the three words may be masked."""
    text = encode(pictures.captions)
    maskable = torch.zeros_like(text.mask)
    maskable[:, 1:4] = True
    return Batch(
        images=pictures.images,
        text=text,
        maskable=maskable,
        image_ids=pictures.captions,
        caption_ids=pictures.captions,
        seeds=seeds,
    )


# --- training ---------------------------------------------------------------------------------------------------------


def train(
    model: ALBEF,
    steps: int,
    *,
    seed: int,
    objectives: tuple[Objective, ...] = ("itc", "itm", "mlm"),
    negatives: Literal["mined", "random"] = "mined",
    blank: bool = False,
) -> ALBEF:
    """Train the model on batches of eight different captions; with `blank` it never sees a picture."""
    training = ALBEFTraining(
        objectives=objectives,
        negatives=negatives,
        queue_size=0,  # the contrast stays within the eight pairs
        alpha=0.0,
        momentum=0.5,
        temperature_range=(0.15, 0.5),
        mask_probability=0.5,
    )
    system = ALBEFSystem(model, training, mask_id=MASK, special_ids=range(len(SPECIAL)))
    system.train()
    optimizer = make_optimizer(system, OPTIMIZER)
    updater = Updater(system, optimizer, device=torch.device("cpu"), clip_norm=1.0, seed=seed)
    random = torch.Generator().manual_seed(seed)
    for step in range(steps):
        pictures = draw(torch.randperm(len(CAPTIONS), generator=random)[:BATCH], random)
        if blank:
            pictures = pictures._replace(images=torch.zeros_like(pictures.images))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, OPTIMIZER.lr, SCHEDULE)
        seeds = torch.randint(2**62, (BATCH,), generator=random)
        updater.update([make_batch(pictures, seeds)], Clock(step, steps, 0.0))
    return model.eval()


# --- measures ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def contrast(model: ALBEF, pictures: Pictures, random: torch.Generator) -> tuple[float, float, float]:
    """Near mass of mined and of uniform weights, and the ITC loss, over random batches of eight different captions."""
    images = model.embed_image(model.encode_image(pictures.images))
    texts = model.embed_text(model.encode_text(encode(torch.arange(len(CAPTIONS)))))
    sums = torch.zeros(3)
    for first in range(0, len(images), len(CAPTIONS)):  # the pictures stand in rounds of all captions
        chosen = torch.randperm(len(CAPTIONS), generator=random)[:BATCH]
        near = neighbours()[chosen][:, chosen]
        own, every = torch.eye(BATCH, dtype=torch.bool), torch.ones(BATCH, dtype=torch.bool)
        for logits in (
            scaled_similarity(images[first + chosen], texts[chosen], model.temperature),
            scaled_similarity(texts[chosen], images[first + chosen], model.temperature),
        ):
            sums[0] += (mining_weights(logits, own) * near).sum() / BATCH
            sums[1] += (uniform_weights(own) * near).sum() / BATCH
            sums[2] += contrastive_loss(logits, own.float(), every) / BATCH
    mined, uniform, loss = (sums / (2 * len(images) / len(CAPTIONS))).tolist()
    return mined, uniform, loss


@torch.no_grad()
def one_word_accuracy(model: ALBEF, pictures: Pictures) -> float:
    """Mean of: true pairs accepted, pairs with one word changed refused."""
    foil_image, foil_caption = neighbours()[pictures.captions].nonzero().T
    memory = model.remember(model.encode_image(pictures.images))

    def accepted(captions: Int[Tensor, " N"], image_of: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        text = model.encode_text(encode(captions))
        return model.match(model.fuse(text, memory, image_of, first_only=True)).argmax(1).float().mean()

    true = accepted(pictures.captions, torch.arange(len(pictures.captions)))
    return float(true + 1 - accepted(foil_caption, foil_image)) / 2


@torch.no_grad()
def masked_words(model: ALBEF, pictures: Pictures) -> float:
    """Share of the words that the model restores, one masked at a time."""
    memory = model.remember(model.encode_image(pictures.images))
    text = encode(pictures.captions)
    right = []
    for place in (1, 2, 3):
        ids = text.ids.clone()
        ids[:, place] = MASK
        fused = model.fuse(model.encode_text(Text(ids, text.mask)), memory)
        where = torch.arange(len(ids)) * ids.shape[1] + place
        right.append(model.predict(fused, where).argmax(1) == text.ids[:, place])
    return float(torch.stack(right).float().mean())


def measure(seed: int) -> Figures:
    """Train the models of a seed and measure them."""
    seed_everything(seed)
    model = ALBEF(MODEL)
    words_alone = train(copy.deepcopy(model), STEPS["words"], seed=seed, objectives=("mlm",), blank=True)
    aligned = train(model, STEPS["align"], seed=seed, objectives=("itc", "mlm"))
    mined = train(copy.deepcopy(aligned), STEPS["match"], seed=1000 + seed)
    random_negatives = train(aligned, STEPS["match"], seed=1000 + seed, negatives="random")
    random = torch.Generator().manual_seed(1_000_000 + seed)
    pictures = draw(torch.arange(len(CAPTIONS)).repeat(TESTS), random)
    near_mass, uniform, itc_loss = contrast(mined, pictures, random)
    return Figures(
        seed=seed,
        near_mass=near_mass,
        near_mass_uniform=uniform,
        itc_loss=itc_loss,
        itm_random=one_word_accuracy(random_negatives, pictures),
        itm_mined=one_word_accuracy(mined, pictures),
        words_without_image=masked_words(words_alone, pictures._replace(images=torch.zeros_like(pictures.images))),
        words_with_image=masked_words(mined, pictures),
    )


# --- report -----------------------------------------------------------------------------------------------------------


def medians(rows: Sequence[Figures]) -> dict[str, float]:
    """The median over the seeds of each figure."""
    figures = [asdict(row) for row in rows]
    return {name: statistics.median(row[name] for row in figures) for name in figures[0] if name != "seed"}


def checks(rows: Sequence[Figures]) -> dict[str, bool]:
    """What has to hold."""
    median = medians(rows)
    return {
        "near mass at least twice uniform on every seed": all(r.near_mass >= 2 * r.near_mass_uniform for r in rows),
        "ITM with mined negatives ahead on every seed": all(r.itm_mined > r.itm_random for r in rows),
        "median near mass in the published range or better": median["near_mass"] >= PUBLISHED["near_mass"][0],
        "median ITC loss at most the published 0.323": median["itc_loss"] <= 0.323,
        "median ITM with random negatives in the published range or better": median["itm_random"]
        >= PUBLISHED["itm_random"][0],
        "median ITM with mined negatives in the published range or better": median["itm_mined"]
        >= PUBLISHED["itm_mined"][0],
        "median masked words with image in the published range or better": median["words_with_image"]
        >= PUBLISHED["words_with_image"][0],
        "median masked words without image at most the published range": median["words_without_image"]
        <= PUBLISHED["words_without_image"][1],
    }


def table(rows: Sequence[Figures]) -> str:
    """A Markdown table: a row for each seed, the medians, the article's ranges."""
    heads = ["seed", "near mass", "uniform", "ITC loss", "ITM random", "ITM mined", "words alone", "words + image"]

    def cells(name: str, values: dict[str, float]) -> list[str]:
        shown = [f"{value:.3f}" if key == "itc_loss" else f"{value:.1%}" for key, value in values.items()]
        return [name, *shown]

    lines = [heads, ["---"] * len(heads)]
    lines += [cells(str(row.seed), {k: v for k, v in asdict(row).items() if k != "seed"}) for row in rows]
    lines.append(cells("median", medians(rows)))
    lines.append(["article", "57-85%", "21-36%", "0.323", "74-81%", "88-95%", "33-37%", "98-99%"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def numbers(text: str) -> list[int]:
    """'0-2,5' as 0, 1, 2, 5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the seeds, print the table and the checks; exit code 1 where a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=numbers("0-9"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [measure(seed) for seed in options.seeds]
    found = checks(rows)
    if options.json:
        result = {"seeds": [asdict(row) for row in rows], "medians": medians(rows), "checks": found}
        print(json.dumps(result, indent=2))
    else:
        print(table(rows))
        print("\n" + "\n".join(f"{'ok  ' if held else 'FAIL'}  {what}" for what, held in found.items()))
    raise SystemExit(0 if all(found.values()) else 1)


if __name__ == "__main__":
    main()
