"""What is kept of encoded images and texts between embedding and re-ranking, in bounded memory.

Texts are kept without padding, in memory or in a scratch file that is mapped into it. Images are kept batch by batch
while they fit a budget; the rest is encoded anew when it is asked for again.

Shapes: B rows, L tokens, D width, T texts, S = T + 1, N tokens of all texts together.
"""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import torch
from jaxtyping import Float, Int, Int64, Num
from torch import Tensor

from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.systems.protocols import Encodes

Images = Num[Tensor, "_ 3 _ _"]  # one batch: uint8 pixels, or normalised floats


@dataclass(frozen=True, kw_only=True)
class TextStore:
    """Encoded texts end to end. `ids` and `states` may lie on a device, `starts` is on the CPU."""

    ids: Int[Tensor, " N"]
    states: Float[Tensor, "N D"] | None  # None where the model fuses ids
    starts: Int64[Tensor, " S"]  # text t owns the tokens from starts[t] to starts[t + 1]
    file: IO[bytes] | None = None  # the scratch file behind `states`; gone with this object

    @property
    def lengths(self) -> Int64[Tensor, " T"]:
        """Tokens of each text."""
        return self.starts.diff()

    def take(self, rows: Int64[Tensor, " B"], device: torch.device | str) -> Text:
        """These texts on the device, padded to the longest of them."""
        lengths = self.lengths[rows]
        columns = torch.arange(int(lengths.max()))
        mask = columns < lengths[:, None]
        places = ((self.starts[rows][:, None] + columns) * mask).to(self.ids.device)
        mask = mask.to(device)
        ids = self.ids[places].to(device) * mask
        if self.states is None:
            return Text(ids, mask)
        return Text(ids, mask, self.states[places].to(device).masked_fill_(~mask[..., None], 0.0))

    def moved(self, device: torch.device | str, *, budget: int) -> "TextStore":
        """The same texts on the device if they take up to `budget` bytes, else where they are."""
        size = self.ids.nbytes + (0 if self.states is None else self.states.nbytes)
        if torch.device(device).type == "cpu" or size > budget:
            return self
        states = None if self.states is None else self.states.to(device)
        return replace(self, ids=self.ids.to(device), states=states)


class TextStoreWriter:
    """Collects encoded texts; `scratch` = a folder for the file that holds their states (else they stay in memory)."""

    def __init__(self, scratch: Path | None) -> None:
        self.ids: list[Tensor] = []
        self.lengths: list[Tensor] = []
        self.states: list[Tensor] = []
        self.like: Tensor | None = None  # a state without rows: width and dtype
        self.file: IO[bytes] | None = None
        if scratch is not None:
            self.file = tempfile.NamedTemporaryFile(dir=scratch, suffix=".states")  # noqa: SIM115, lives with the store

    def add(self, text: Text) -> None:
        """Keep a batch of encoded texts, real tokens only."""
        self.ids.append(text.ids[text.mask].cpu())
        self.lengths.append(text.mask.sum(dim=1).cpu())
        if text.states is None:
            return
        states = text.states[text.mask].cpu()
        self.like = states[:0]
        if self.file is None:
            self.states.append(states)
        else:
            self.file.write(states.view(torch.uint8).numpy().tobytes())

    def finish(self) -> TextStore:
        """Everything collected."""
        lengths = torch.cat(self.lengths)
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return TextStore(ids=torch.cat(self.ids), states=self._joined(int(starts[-1])), starts=starts, file=self.file)

    def _joined(self, tokens: int) -> Tensor | None:
        if self.like is None:
            return None
        if self.file is None:
            return torch.cat(self.states)
        self.file.flush()
        width, dtype = self.like.shape[1], self.like.dtype
        return torch.from_file(self.file.name, shared=False, size=tokens * width, dtype=dtype).view(tokens, width)


class ImageTokens:
    """The encoded images of a set, batch by batch, as often as wanted.

    The first batches are kept while their states take up to `budget` bytes; later ones are encoded anew in each pass,
    so `batches` must give the same images each time (a list or a data loader, not a generator).
    """

    def __init__(
        self,
        model: Encodes,
        batches: Iterable[Images],
        *,
        device: torch.device | str = "cpu",
        budget: int,
    ) -> None:
        if iter(batches) is batches:
            raise TypeError("the images are read more than once: give a list or a data loader, not a generator")
        self.model, self.batches, self.device = model, batches, device
        self.budget = budget
        self.kept: list[Tokens] = []
        self.complete = False  # every batch is kept
        self.resolution: tuple[int, int] | None = None  # rows and columns of pixels of the first image

    def __iter__(self) -> Iterator[Tokens]:
        if self.complete:
            yield from self.kept
            return
        full = False
        for index, images in enumerate(self.batches):
            self.resolution = self.resolution or (images.shape[2], images.shape[3])
            if index < len(self.kept):
                yield self.kept[index]
                continue
            tokens = self.model.encode_image(images.to(self.device))
            full = full or self.budget < tokens.states.nbytes
            if not full:
                self.kept.append(tokens)
                self.budget -= tokens.states.nbytes
            yield tokens
        self.complete = not full
