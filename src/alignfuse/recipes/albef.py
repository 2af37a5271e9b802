"""ALBEF pretraining: the sizes of the model, and the run that they make."""

from dataclasses import replace

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.vision import VisionConfig
from alignfuse.data.augment import AugmentConfig
from alignfuse.models.albef import ALBEFConfig
from alignfuse.recipes.pretrain import DataConfig, PretrainRun, StartConfig, starting_sizes, starting_text
from alignfuse.systems.albef import ALBEFTraining
from alignfuse.training.optimizer import OptimizerConfig
from alignfuse.training.schedule import ScheduleConfig
from alignfuse.training.settings import TrainingConfig

# The vocabulary size is that of the tokenizer, whatever stands here.
SIZES = {
    # for the embedded world, tests and first tries: minutes on two CPU cores
    "toy": ALBEFConfig(
        image=VisionConfig(
            image_size=(32, 32),
            patch_size=8,
            stem="convolution",
            width=128,
            layers=2,
            heads=4,
            hidden=512,
            init_std=0.06,
            position_init="sine",
        ),
        text=TextConfig(
            width=128, layers=2, fusion_layers=3, heads=4, hidden=512, positions=64, dropout=0.0, init_std=0.06
        ),
        embed_dim=64,
    ),
    # a few ten thousand pairs, one GPU
    "small": ALBEFConfig(
        image=VisionConfig(image_size=(224, 224), width=384, heads=6, hidden=1536),
        text=TextConfig(width=384, layers=3, fusion_layers=3, heads=12, hidden=1536),
    ),
    # the paper's: 209,937,725 parameters with BERT's vocabulary
    "base": ALBEFConfig(),
}


# What a narrow model, a small set and a short run want otherwise than the paper.
RATE = {"toy": 1e-3, "small": 3e-4}
SHORT = ALBEFTraining(
    momentum=0.99,
    queue_size=4096,
    temperature_range=(0.05, 0.5),  # at a high rate the temperature falls faster than the features come
)


def pretrain(data: DataConfig, *, size: str = "base", start: StartConfig | None = None) -> PretrainRun:
    """The paper's pretraining at a size; toy and small have a higher rate, warm-up by share, and clipping.

    Starting weights bring their own sizes and treatment of texts, which are read from their files here.
    """
    start = start or StartConfig()
    run = PretrainRun(
        system="albef",
        data=data,
        start=start,
        model=starting_sizes(SIZES[size], start),
        objective=ALBEFTraining(),
        text=starting_text(start),
        augment=AugmentConfig(),
        training=TrainingConfig(),
    )
    if size == "base":
        return run
    training = replace(
        run.training,
        batch_size=32 if size == "toy" else 64,
        clip_norm=1.0,
        optimizer=OptimizerConfig(lr=RATE[size], betas=(0.9, 0.98)),
        schedule=ScheduleConfig(warmup=0.05, end=0.01),
    )
    return replace(run, objective=SHORT if size == "toy" else run.objective, training=training)


def debug(data: DataConfig) -> PretrainRun:
    """The toy run in a few steps: the same path, for tests."""
    run = pretrain(data, size="toy")
    return replace(run, training=replace(run.training, steps=4, batch_size=8, log_steps=1, workers=0))
