"""Training forms of the published systems, by the name a user types."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.systems.albef import ALBEFSystem, ALBEFTraining
from alignfuse.systems.protocols import System


class Entry(NamedTuple):
    """How a system is put together: system(model(config), training, mask_id=, special_ids=, shared_pairs=)."""

    config: type[Any]  # dataclass: sizes of the model
    model: Callable[..., nn.Module]
    training: type[Any]  # dataclass: objectives and teacher
    system: Callable[..., System]


SYSTEMS = {
    "albef": Entry(ALBEFConfig, ALBEF, ALBEFTraining, ALBEFSystem),
}
