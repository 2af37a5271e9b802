"""The settings of training that do not depend on the system."""

from dataclasses import dataclass, field

from alignfuse.data.collate import OnBad
from alignfuse.training.optimizer import OptimizerConfig
from alignfuse.training.precision import Precision
from alignfuse.training.schedule import ScheduleConfig


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train; the defaults of schedule and optimizer are those of ALBEF pretraining."""

    epochs: int = 30
    steps: int | None = None  # in place of epochs
    batch_size: int = 64  # samples of one process in one micro-batch
    accumulation: int = 1  # micro-batches of an update
    seed: int = 0
    precision: Precision = "auto"
    clip_norm: float | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    weights: dict[str, float] = field(default_factory=dict)  # of the losses; 1 where not named
    workers: int | None = None  # loading processes; none = by the number of cores
    on_bad: OnBad = "skip"
    max_bad_share: float = 0.5  # of the samples; where more cannot be read, the run ends
    log_steps: int = 10
    checkpoint_minutes: float = 15.0  # besides one at the end of each epoch
    checkpoint_steps: int | None = None

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("epochs", "batch_size", "accumulation", "log_steps")}
        counts |= {"steps": self.steps or 1, "checkpoint_steps": self.checkpoint_steps or 1}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, value in {"workers": self.workers or 0, "checkpoint_minutes": self.checkpoint_minutes}.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, not {value}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise ValueError(f"clip_norm must be above 0, or none, not {self.clip_norm}")
        if not 0 <= self.max_bad_share <= 1:
            raise ValueError(f"max_bad_share lies between 0 and 1, not {self.max_bad_share}")
        if any(weight < 0 for weight in self.weights.values()):
            raise ValueError(f"weights must not be negative, not {self.weights}")
