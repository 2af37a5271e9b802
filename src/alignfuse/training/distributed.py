"""The one place that knows devices, processes and how they talk. Alone (world size 1) nothing needs a process group.

Several processes are started by `torchrun`. Data parallelism is plain torch.distributed: DDP, one gather and a few sums
are all that is used, and a wrapper such as accelerate would hide where the loop synchronises.

Scaling: every rank's backward runs on (sum of its own terms / number of terms of all ranks) x world size, and DDP
averages over ranks, so gradients are those of one process that holds the whole batch. `gather` keeps to that: the
gradient of a gathered row is the sum of what all ranks' losses ask of it.

Shapes: B rows of this rank (ranks may differ), N rows of all ranks.
"""

import gc
import inspect
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from alignfuse.errors import UserError

SETTLING = 0.5  # seconds, of which a thread needs microseconds on a core of its own
PATIENCE = timedelta(hours=2)  # how long ranks wait for one that evaluates or writes


def choose_device(device: str = "auto") -> torch.device:
    """The device to run on; "auto" takes an accelerator where there is one. Under torchrun each rank has its own."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}: write auto, cpu, cuda, cuda:1 or mps") from error
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (chosen.index or 0) >= count.get(chosen.type, 1):
        raise UserError(f"device {device!r} is not available on this machine: write auto or cpu")
    return chosen


def supports_bf16(device: torch.device) -> bool:
    """Whether the device computes in bf16 at speed."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


@contextmanager
def processes(device: str = "auto") -> Iterator[torch.device]:
    """Join the processes that torchrun started, if it did; gives the device of this one."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield chosen
        return
    # Sums of host numbers go over gloo also where tensors go over nccl, so that they never wait for the accelerator.
    dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield chosen
    finally:
        _leave()


def _leave() -> None:
    """End the process group once its threads hold nothing.

    A thread of gloo holds the tensors of a sum for a moment after the sum is done, and takes Python's lock to let go of
    them. If the interpreter is ending by then, this aborts the process; if the group is being destroyed, which waits
    for the thread and keeps the lock, neither goes on. No call waits for that moment, so it is slept through. Then what
    no one uses any more, as DDP, lets go of the group, so that its threads end here.
    """
    time.sleep(SETTLING)
    gc.collect()
    dist.destroy_process_group()


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_main() -> bool:
    """Whether this is the process that prints and writes."""
    return rank() == 0


def say(line: str) -> None:
    """One line for the user on stderr, from the main process only."""
    if is_main():
        print(line, file=sys.stderr, flush=True)


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        total_counts({"": 0})


def gather(rows: Shaped[Tensor, "B *rest"]) -> Shaped[Tensor, "N *rest"]:
    """The rows of all ranks in rank order, with gradient; ranks may hold different numbers of rows."""
    if world_size() == 1:
        return rows
    return cast(Tensor, _Gather.apply(rows))  # type: ignore[no-untyped-call]


def first_row(rows: int) -> int:
    """Where this rank's rows begin in what `gather` gives."""
    return sum(_row_counts(rows)[: rank()])


def total_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Sums over ranks of numbers that live on the host; the names must be the same on every rank."""
    if world_size() == 1:
        return dict(counts)
    totals = torch.tensor(list(counts.values()), dtype=torch.int64)
    dist.all_reduce(totals)
    return dict(zip(counts, totals.tolist(), strict=True))


def total(values: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Sums over ranks, without gradient."""
    values = values.detach()
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def collect(item: Any) -> list[Any]:
    """One small picklable object of every rank, in rank order, on every rank."""
    if world_size() == 1:
        return [item]
    items: list[Any] = [None] * world_size()
    dist.all_gather_object(items, item)
    return items


def parallel(module: nn.Module, device: torch.device) -> nn.Module:
    """The module wrapped for data-parallel training; alone it is the module itself."""
    if world_size() == 1:
        return module
    # Buffers (queues, running statistics) are equal on all ranks by construction. torch 2.13 renamed the option.
    renamed = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    buffers: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    ids = None if device.type == "cpu" else [device]
    return DistributedDataParallel(module, device_ids=ids, gradient_as_bucket_view=True, **buffers)


def local_gradients(module: nn.Module, active: bool) -> AbstractContextManager[None]:
    """Where active, backward passes add up gradients on this rank only; the next one outside averages the sum."""
    if active and isinstance(module, DistributedDataParallel):
        return cast(AbstractContextManager[None], module.no_sync())
    return nullcontext()


class _Gather(torch.autograd.Function):
    """All-gather of uneven rows by padding to the most; the backward pass sums over ranks and keeps the own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        counts = _row_counts(len(rows))
        ctx.start, ctx.rows = sum(counts[: rank()]), len(rows)
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return total(gradients[0].contiguous())[ctx.start : ctx.start + ctx.rows]


def _row_counts(rows: int) -> list[int]:
    """Rows of every rank."""
    mine = torch.tensor([rows])
    if world_size() == 1:
        return [rows]
    counts = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(counts, mine)
    return [int(count) for count in counts]
