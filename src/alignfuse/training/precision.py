"""The number format of activations. Weights and losses stay fp32 whatever it is."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

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


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype`."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)
