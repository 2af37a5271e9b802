"""What models can do (verbs) and what a system gives to the training loop.

Tasks ask for these protocols, never for a class. Shapes: B batch, L tokens, D width, E embedding width, I images,
T texts, Q embeddings of one image, M masked places, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.data.batch import Batch
from alignfuse.objectives.masked_language import Masked

__all__ = [
    "Batch",
    "Clock",
    "Draws",
    "Embeds",
    "Encodes",
    "Fuses",
    "Loss",
    "Masked",
    "Masking",
    "Predicts",
    "Step",
    "System",
    "Text",
    "Tokens",
]

# --- verbs of a model -------------------------------------------------------------------------------------------------


@runtime_checkable
class Encodes(Protocol):
    """A model with an image and a text encoder."""

    def encode_image(self, images: Num[Tensor, "B 3 H W"]) -> Tokens: ...
    def encode_text(self, text: Text) -> Text: ...


@runtime_checkable
class Embeds(Encodes, Protocol):
    """Unit vectors of both modalities in one space: retrieval, zero-shot classification."""

    def embed_image(self, image: Tokens) -> Float[Tensor, "B E"] | Float[Tensor, "B Q E"]: ...
    def embed_text(self, text: Text) -> Float[Tensor, "B E"]: ...
    def similarity(self, images: Tensor, texts: Float[Tensor, "T E"]) -> Float[Tensor, "I T"]: ...


@runtime_checkable
class Fuses(Encodes, Protocol):
    """Reads an image and a text together. A memory is opaque to its users: made once, read by any number of texts."""

    def remember(self, image: Tokens) -> Any: ...
    def fuse(
        self, text: Text, memory: Any, image_of: Int[Tensor, " B"] | None = None, *, first_only: bool = False
    ) -> Tokens:
        """Text i reads remembered image `image_of[i]` (None: image i). `first_only`: all that `match` needs."""
        ...

    def match(self, fused: Tokens) -> Float[Tensor, "B 2"]: ...  # logits: no match, match


@runtime_checkable
class Predicts(Fuses, Protocol):
    """Predicts masked words; `where` holds flat places (row * L + column)."""

    def predict(self, fused: Tokens, where: Int[Tensor, " M"]) -> Float[Tensor, "M V"]: ...


# --- the training form ------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """Sum and number of terms: means are taken over micro-batches and ranks by the loop."""

    total: Float[Tensor, ""]
    count: Int[Tensor, ""]  # type: ignore[assignment]  # in place of tuple.count, which nobody asks of two numbers


class Step(NamedTuple):
    """What one forward pass gives to the loop."""

    losses: dict[str, Loss]  # named, unweighted; the recipe holds the weights
    carry: dict[str, Tensor]  # detached, for after_step
    metrics: dict[str, Loss]  # detached sums and counts, for the log (ITM accuracy, temperature, ...)


class Masking(NamedTuple):
    """How texts are masked, and the ids that takes."""

    probability: float
    whole_word: bool
    mask_id: int
    ordinary: Int[Tensor, " V"]  # ids that may replace a word: all but the special ones


class Clock(NamedTuple):
    """Where training stands at the start of a step."""

    step: int  # optimizer steps done
    total_steps: int
    epoch: float  # epochs done, with the fraction of the running one


@runtime_checkable
class Draws(Protocol):
    """Every random choice of a system, by name."""

    def mask(self, batch: Batch, masking: Masking) -> Masked:
        """Corrupted texts for masked language modelling."""
        ...

    def mine(self, name: str, weights: Float[Tensor, "B N"]) -> Int[Tensor, " B"]:
        """One candidate per row, drawn with these probabilities; any index for a row without mass."""
        ...


@runtime_checkable
class System(Protocol):
    """The training form of a model. `forward` mutates nothing; it is the one thing that DDP, FSDP and compile wrap."""

    @property
    def model(self) -> nn.Module:
        """What is exported."""
        ...

    def before_step(self) -> None:
        """Once per optimizer step, before its first forward: clamp the temperature, move the teacher."""
        ...

    def teach(self, batch: Batch) -> Any:
        """Teacher features of one micro-batch, without gradient (None where a system has no teacher)."""
        ...

    def terms(self, batch: Batch, draws: Draws) -> dict[str, int]:
        """Number of terms of each loss of this micro-batch, known before the forward pass from ids and draws alone.

        Equal to the counts of the `Step` that `forward` will give: the loop divides by their sum over micro-batches and
        ranks, which makes accumulation and data parallelism exact.
        """
        ...

    def forward(self, batch: Batch, lessons: Sequence[Any], own: int, clock: Clock, draws: Draws) -> Step:
        """`lessons`: what `teach` gave for all micro-batches of this step; `own`: which one is this batch's."""
        ...

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        """Once per optimizer step, after the update: fill the queues."""
        ...
