"""The number format of activations. Weights and losses stay fp32 whatever it is."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.utils import deterministic

from alignfuse.errors import UserError
from alignfuse.training.distributed import supports_bf16

Precision = Literal["auto", "fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The format to compute in; "auto" is bf16 where the device has it, otherwise fp32."""
    if precision == "auto":
        return torch.bfloat16 if supports_bf16(device) else torch.float32
    if precision == "fp16" and device.type == "cpu":
        raise UserError("precision fp16 is about 200 times slower than fp32 on a CPU: use precision=fp32 or bf16")
    return DTYPES[precision]


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """On a CPU, sums in one order whatever the threads: gradients of gathered rows would differ from run to run."""
    memory: Any = deterministic
    before, filled = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype`."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)
