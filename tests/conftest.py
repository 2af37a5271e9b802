"""Fixtures for all tests. The package is imported under shape checking: every jaxtyping annotation is enforced."""

import os
import socket
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: a forked process hangs in the threads of its parent


import pytest
from jaxtyping import install_import_hook

install_import_hook("alignfuse", "beartype.beartype")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; a test that needs it skips where it is absent."""
    folder = Path(__file__).resolve().parents[1].parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside this checkout")
    return folder


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to open a connection fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
