"""Commands run in this process, and the model that they train once for all tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alignfuse.cli import main


class Outcome(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The result of a command that succeeded, as a value."""
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command."""

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(int(exit_.value.code or 0), out, err)

    return command


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of generated pairs: 24 images for training, 2 for validation, 2 for testing, five captions each."""
    folder = tmp_path_factory.mktemp("data") / "scenes"
    with pytest.raises(SystemExit):
        main(["world", "export", str(folder), "--count", "24"])
    return folder / "pairs.jsonl"


SHORT = ("steps=3", "batch_size=8", "workers=0", "log_steps=1")
NARROW = ("model.image.layers=1", "model.text.layers=1", "model.text.fusion_layers=1")
SETTINGS = ("--size", "toy", *(word for change in (*SHORT, *NARROW) for word in ("--set", change)))


@pytest.fixture(scope="session")
def trained(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of three steps: one epoch."""
    out = tmp_path_factory.mktemp("runs") / "mine"
    with pytest.raises(SystemExit):
        main(["pretrain", "albef", "--data", str(scenes), "--out", str(out), *SETTINGS])
    return out
