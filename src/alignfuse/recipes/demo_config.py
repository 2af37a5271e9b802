"""All numbers of the demo."""

from dataclasses import dataclass, field, replace

from alignfuse.models.albef import ALBEFConfig
from alignfuse.recipes.albef import SHORT, SIZES
from alignfuse.recipes.pretrain import ValidationConfig
from alignfuse.systems.albef import ALBEFTraining
from alignfuse.training.optimizer import OptimizerConfig
from alignfuse.training.schedule import ScheduleConfig
from alignfuse.training.settings import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Scenes, training within a span of time, evaluation; the defaults fit ten minutes on two cores."""

    # scenes
    seed: int = 0
    things: tuple[float, ...] = (0.35, 0.65)  # how often a scene holds 1, 2 ... things
    train: int = 12_000
    val: int = 200
    test: int = 1000
    # training
    minutes: float = 7.0  # as many steps as fit
    fewest_steps: int = 200
    most_steps: int = 20_000
    measured_steps: int = 12
    log_lines: int = 150
    model: ALBEFConfig = field(default_factory=lambda: SIZES["toy"])
    objective: ALBEFTraining = field(
        default_factory=lambda: replace(
            SHORT,
            alpha=0.0,  # captions are exact: no distillation
            mask_probability=0.4,
            text_negatives="queue",
        )
    )
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            batch_size=32,
            weights={"itc": 0.5},  # its gradient is the largest, and what ITM and MLM learn takes longer
            clip_norm=1.0,
            optimizer=OptimizerConfig(lr=1e-3, betas=(0.9, 0.98)),
            schedule=ScheduleConfig(warmup=0.05, end=0.01),
        )
    )
    validation: ValidationConfig = field(default_factory=lambda: ValidationConfig(k=4, images=60))
    # evaluation
    k: int = 16  # length of a shortlist
    captions: int = 1  # of each held-out scene, that are ranked
    masked_words: int = 2  # of each held-out scene
    pairs: int = 2000  # captions with one word wrong
    phrases: tuple[str, ...] = (
        "a large red cross in the middle",
        "a small blue circle to the left of a large yellow square",
    )


def quick() -> DemoConfig:
    """The same path in few steps, for tests."""
    return DemoConfig(
        train=400, val=20, test=60, fewest_steps=30, most_steps=30, measured_steps=2, pairs=80,
        training=TrainingConfig(batch_size=16, clip_norm=1.0, workers=0, optimizer=OptimizerConfig(lr=1e-3)),
        validation=ValidationConfig(k=4, images=20),
    )  # fmt: skip
