"""Running out of memory, in terms of the settings that change it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from alignfuse.errors import UserError

SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an accelerator or the host refused an allocation; on the host torch raises a plain RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS)


@contextmanager
def explained(batch_size: int, accumulation: int) -> Iterator[None]:
    """Turns running out of memory, and the death of a loading process, into a message that names what to change."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            half = max(1, batch_size // 2)
            raise UserError(
                f"out of memory with batch_size {batch_size} and accumulation {accumulation}: use batch_size={half} "
                f"accumulation={2 * accumulation} (the same updates), a smaller image size or model size, or "
                "precision=bf16"
            ) from error
        if "DataLoader worker" in str(error):
            raise UserError(
                "a loading process was killed, most often for lack of memory or of space in /dev/shm: "
                "use fewer workers (workers=0 loads in the main process)"
            ) from error
        raise
