"""Ctrl-C and SIGTERM as a request to stop after the running step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether the user or the machine has asked to stop."""

    def __init__(self) -> None:
        self.asked_by: str | None = None

    def __bool__(self) -> bool:
        return self.asked_by is not None

    def notice(self, number: int, frame: FrameType | None) -> None:
        """Signal handler; a second signal has its usual effect."""
        self.asked_by = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within this the two signals only set the request. Outside the main thread Python does not allow handlers."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.notice) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
