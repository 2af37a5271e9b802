"""Pairs on disk for the tests of training."""

from pathlib import Path

import pytest

from alignfuse.data.records import Record
from tests.training.fake import make_records


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """22 images with one to three captions each."""
    folder: Path = tmp_path_factory.mktemp("pairs with spaces")
    return make_records(folder, 22)
