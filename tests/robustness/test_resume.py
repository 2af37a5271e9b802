"""A run that is stopped or killed and resumed gives, bit for bit, the losses of one that was not.

An epoch of 22 pairs in batches of 2 has eleven steps, so steps 5 and 13 lie within one; the queue of 20 pairs is half
full after step 5.
"""

import itertools
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from alignfuse.data.records import Record
from alignfuse.training.checkpoint import load_state
from alignfuse.training.loop import Result, Validation, fit
from alignfuse.training.settings import TrainingConfig
from tests.training.fake import FakeSystem, make_loader, make_records, make_tokenizer

CONFIG = TrainingConfig(batch_size=2, steps=18, workers=0, log_steps=3, checkpoint_steps=4)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return make_records(tmp_path_factory.mktemp("pairs"), 22)


class Stopping(FakeSystem):
    """Is sent a signal in the middle of its `at`-th step."""

    def __init__(self, at: int | None, number: int = signal.SIGTERM) -> None:
        super().__init__(make_tokenizer())
        self.at, self.number, self.steps = at, number, 0

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), self.number)
        super().after_step(carries)


def train(
    records: list[Record], out: Path, *, stop: int | None = None, resume: bool = False, workers: int = 0, **options: int
) -> tuple[Result, Stopping]:
    out.mkdir(exist_ok=True)
    config = replace(CONFIG, workers=workers)
    system = Stopping(stop, **options)
    loader = make_loader(records, config)
    return fit(system, loader, config, out, device=torch.device("cpu"), resume=resume), system


def log(out: Path) -> list[dict[str, float]]:
    """The log without what the clock on the wall decides."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "samples_per_second"} for line in lines]


def same_state(one: FakeSystem, other: FakeSystem) -> bool:
    state = other.state_dict()
    return all(torch.equal(tensor, state[name]) for name, tensor in one.state_dict().items())


@pytest.fixture(scope="module")
def whole(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stopping]:
    out = tmp_path_factory.mktemp("whole")
    result, system = train(records, out)
    assert result.finished
    return out, system


@pytest.mark.parametrize(("at", "workers"), [(5, 0), (5, 2), (11, 0), (13, 2)])
def test_stopped_by_sigterm_and_resumed(
    records: list[Record], tmp_path: Path, whole: tuple[Path, Stopping], at: int, workers: int
) -> None:
    result, half = train(records, tmp_path, stop=at, workers=workers)
    assert result == Result(at, False, None)
    assert int(half.queue.filled.sum()) == min(20, 2 * at)
    result, system = train(records, tmp_path, resume=True, workers=workers)
    assert result.finished
    assert log(tmp_path) == log(whole[0])
    assert same_state(system, whole[1])


def test_a_validation_that_a_signal_put_off_is_made_up_for(records: list[Record], tmp_path: Path) -> None:
    """Stopped at the very end of an epoch."""
    asked: list[int] = []
    for stop, resume in ((11, False), (None, True)):
        system = Stopping(stop)

        def validate(system: Stopping = system) -> Validation:
            asked.append(system.steps)
            return Validation(0.5, {"mean_recall": 0.5})

        fit(
            system,
            make_loader(records, CONFIG),
            CONFIG,
            tmp_path,
            device=torch.device("cpu"),
            validate=validate,
            resume=resume,
        )
    assert asked == [0, 7]  # steps of the resumed run
    assert [line["step"] for line in log(tmp_path) if "val/mean_recall" in line] == [11, 18]


def test_ctrl_c_writes_a_checkpoint_and_says_where(
    records: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert train(records, tmp_path, stop=7, number=signal.SIGINT)[0] == Result(7, False, None)
    assert f"stopped after step 7, with a checkpoint in {tmp_path}" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert (tmp_path / "model.safetensors").is_file()


def test_a_second_ctrl_c_does_not_wait(records: list[Record], tmp_path: Path) -> None:
    class Impatient(Stopping):
        def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(Impatient(None), make_loader(records, CONFIG), CONFIG, tmp_path, device=torch.device("cpu"))


def killed(out: Path, run: Callable[[], object]) -> None:
    """Run in a child process that has to end by SIGKILL."""
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert (out / "last" / "state.pt").is_file()


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_a_random_step_and_resumed(
    records: list[Record], tmp_path: Path, whole: tuple[Path, Stopping], workers: int
) -> None:
    at = random.randrange(5, 18)
    killed(tmp_path, lambda: train(records, tmp_path, stop=at, number=signal.SIGKILL, workers=workers))
    result, system = train(records, tmp_path, resume=True, workers=workers)
    assert result.finished
    assert log(tmp_path) == log(whole[0]), f"killed in step {at}"
    assert same_state(system, whole[1])


def test_killed_while_writing_a_checkpoint(
    records: list[Record], tmp_path: Path, whole: tuple[Path, Stopping], monkeypatch: pytest.MonkeyPatch
) -> None:
    save, calls = torch.save, itertools.count(1)

    def cut_short(state: object, path: Path) -> None:
        save(state, path)
        if next(calls) == 2:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", cut_short)
        killed(tmp_path, lambda: train(records, tmp_path))
    assert load_state(tmp_path)["step"] == 4
    assert train(records, tmp_path, resume=True)[0].finished
    assert log(tmp_path) == log(whole[0])
