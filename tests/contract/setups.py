"""Every system at a tiny size. A new one joins the whole suite with one entry in `TINY`."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.tokens import Text
from alignfuse.blocks.vision import VisionConfig
from alignfuse.data.batch import Batch
from alignfuse.models.albef import ALBEFConfig
from alignfuse.systems import SYSTEMS
from alignfuse.systems.draws import RandomDraws
from alignfuse.systems.protocols import Clock, Embeds, Predicts, Step

PAD, CLS, SEP, MASK = SPECIAL = (0, 1, 2, 3)
WORDS = 40
IMAGE = VisionConfig(image_size=(16, 24), patch_size=8, width=16, layers=2, heads=2, hidden=32)
TEXT = TextConfig(vocab_size=WORDS, width=16, layers=1, fusion_layers=2, heads=2, hidden=32, positions=16, dropout=0.0)


class Tiny(NamedTuple):
    """What the suite needs to know of a system."""

    config: Any
    verbs: tuple[type, ...]  # protocols that the model claims
    base: int  # trainable parameters at the published size
    learns: dict[str, float]  # losses that must fall below these means on 16 pairs
    training: dict[str, Any]  # options of its training config


TINY = {
    "albef": Tiny(
        config=ALBEFConfig(image=IMAGE, text=TEXT, embed_dim=8),
        verbs=(Embeds, Predicts),
        base=209_937_725,
        learns={"itm": 0.1},
        training={"queue_size": 24},
    ),
}


def build(name: str, *, shared_pairs: Tensor | None = None, config: Any = None, **training: Any) -> Any:
    """A tiny system in training mode, the same at every call."""
    entry, tiny = SYSTEMS[name], TINY[name]
    torch.manual_seed(0)
    model = entry.model(config or tiny.config)
    settings = entry.training(**{**tiny.training, **training})
    system = entry.system(model, settings, mask_id=MASK, special_ids=SPECIAL, shared_pairs=shared_pairs)
    assert isinstance(system, nn.Module)
    return system.train()


def model_of(name: str) -> Any:
    """A tiny model for inference."""
    return build(name).model.eval()


def pairs(
    count: int,
    *,
    seed: int = 0,
    length: int = 9,
    image_ids: Sequence[int] | None = None,
    caption_ids: Sequence[int] | None = None,
) -> Batch:
    """Random pixels with random texts [CLS] words [SEP] of 3 to `length` tokens; all ids differ unless given."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, *IMAGE.image_size), generator=random, dtype=torch.uint8)
    ids = torch.randint(len(SPECIAL), WORDS, (count, length), generator=random)
    ends, place = torch.randint(2, length, (count, 1), generator=random), torch.arange(length)[None]
    ids = ids.masked_fill(place == 0, CLS).masked_fill(place == ends, SEP).masked_fill(place > ends, PAD)
    maskable = (place > 0) & (place < ends)
    return Batch(
        images=images,
        text=Text(ids, place <= ends),
        maskable=maskable,
        words=(place // 2).where(maskable, -1),
        image_ids=torch.arange(count) if image_ids is None else torch.tensor(image_ids),
        caption_ids=torch.arange(count) if caption_ids is None else torch.tensor(caption_ids),
        seeds=1000 * seed + torch.arange(count),
    )


def draws(batch: Batch) -> RandomDraws:
    assert batch.seeds is not None
    return RandomDraws(batch.seeds)


def step(system: Any, batch: Batch, *, epoch: float = 0.5, choices: Any = None) -> Step:
    """One forward pass in the loop's order, without what comes before and after the step."""
    lesson = system.teach(batch)
    out: Step = system(batch, [lesson], 0, Clock(0, 100, epoch), choices or draws(batch))
    return out


def update(system: Any, optimizer: torch.optim.Optimizer, batch: Batch, *, epoch: float = 0.5) -> Step:
    """One whole optimizer step."""
    system.before_step()
    out = step(system, batch, epoch=epoch)
    optimizer.zero_grad()
    objective(out).backward()
    optimizer.step()
    system.after_step([out.carry])
    return out


def objective(out: Step) -> Tensor:
    """Sum of the mean losses."""
    return torch.stack([loss.total / loss.count.clamp(min=1) for loss in out.losses.values()]).sum()


def subsets(name: str) -> list[tuple[str, ...]]:
    """Every choice of objectives of a system that has a choice."""
    objectives: tuple[str, ...] = getattr(SYSTEMS[name].training(), "objectives", ())
    sizes = range(1, len(objectives) + 1)
    return [chosen for size in sizes for chosen in itertools.combinations(objectives, size)]


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}
