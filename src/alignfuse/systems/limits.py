"""What the settings of a training method must hold."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignfuse.systems.albef import ALBEFTraining


def check_settings(training: "ALBEFTraining") -> None:
    """ValueError naming the setting that makes no sense."""
    if not training.objectives or len(set(training.objectives)) < len(training.objectives):
        raise ValueError(f"objectives must be one or more, each once, not {list(training.objectives)}")
    shares = {"alpha": training.alpha, "momentum": training.momentum, "mask_probability": training.mask_probability}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} lies between 0 and 1, not {share}")
    if training.queue_size < 0 or training.ramp_epochs < 0:
        raise ValueError(
            f"queue_size and ramp_epochs must not be negative, not {training.queue_size} and {training.ramp_epochs}"
        )
    if not 0 < training.temperature_range[0] <= training.temperature_range[1]:
        raise ValueError(f"temperature_range must be two positive numbers in order, not {training.temperature_range}")
