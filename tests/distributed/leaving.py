"""Pairs of processes that join, work together and leave, again and again, while others keep the cores busy.

python tests/distributed/leaving.py ROUNDS

Forked from one process, so that a round takes little more than its sums: each child ends as an interpreter does. Exit
codes other than 0 are printed, and the whole ends with 1.
"""

import os
import socket
import sys

import torch
from torch import nn

from alignfuse.training import distributed

BUSY = 2  # processes that only compute


def work() -> None:
    """What a run does: gradients, then sums that end together with it."""
    with distributed.processes("cpu") as device:
        module = distributed.parallel(nn.Linear(4, 4), device)
        for _ in range(3):
            module(distributed.gather(torch.ones(2, 4))).sum().backward()
        for _ in range(20):
            distributed.total(torch.ones(1000))
        distributed.barrier()


def child(rank: int, port: int) -> int:
    """Process number of a forked rank."""
    pid = os.fork()
    if pid == 0:
        os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        work()
        sys.exit()  # through the end of the interpreter, where threads that still run are dangerous
    return pid


def busy() -> None:
    """A process that computes as long as this one lives."""
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            pass
        os._exit(0)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main(rounds: int) -> int:
    """1 if a process did not end well."""
    failed = 0
    for _ in range(BUSY):
        busy()
    for number in range(rounds):
        port = free_port()
        pids = [child(rank, port) for rank in (0, 1)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if any(codes):
            failed = 1
            print(f"round {number}: {codes}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
