"""Switching the run-time checks of shapes off, where a test is about time or about our own error messages."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def no_shape_checks() -> Iterator[None]:
    """As a user runs the package."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
