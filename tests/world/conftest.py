"""Scenes that the tests of the world look at."""

import pytest

from alignfuse.world.sampling import World
from alignfuse.world.scenes import Scene


@pytest.fixture(scope="session")
def scenes() -> list[Scene]:
    """Held-out scenes with distinct facts, 1 to 4 things in each."""
    return [sample.scene for sample in World(seed=7).samples("test", 150)]
