"""What a run prints, logs, keeps and refuses."""

import itertools
import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alignfuse.data.batch import Batch
from alignfuse.data.records import Record
from alignfuse.errors import UserError
from alignfuse.systems.protocols import Loss, Step
from alignfuse.training import loop
from alignfuse.training.estimate import refuse_large_on_cpu
from alignfuse.training.loop import Result, Validation, fit
from alignfuse.training.memory import explained
from alignfuse.training.optimizer import OptimizerConfig
from alignfuse.training.progress import duration
from alignfuse.training.schedule import ScheduleConfig
from alignfuse.training.settings import TrainingConfig
from tests.training.fake import FakeSystem, make_loader, make_tokenizer

CONFIG = TrainingConfig(epochs=2, batch_size=4, workers=0, log_steps=1)  # six steps an epoch


def train(
    records: list[Record],
    out: Path,
    config: TrainingConfig = CONFIG,
    system: FakeSystem | None = None,
    validate: Callable[[], Validation] | None = None,
    resume: bool = False,
) -> Result:
    out.mkdir(exist_ok=True)
    system = system or FakeSystem(make_tokenizer())
    device = torch.device("cpu")
    return fit(system, make_loader(records, config), config, out, device=device, validate=validate, resume=resume)


def lines(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_says_what_it_will_take_before_it_begins(
    records: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(records, tmp_path / "run") == Result(12, True, None)
    out, err = capsys.readouterr()
    assert out == ""
    said = err.splitlines()
    system = FakeSystem(make_tokenizer())
    assert said[0].startswith(f"parameters: {sum(p.numel() for p in system.model.parameters()):,} trainable")
    assert said[1] == "steps: 12, 6 for each epoch of 22 samples"
    assert said[2].startswith("time: about ")
    assert said[3].startswith("disk: up to ")
    assert said[4].startswith("step 1/12  epoch 0.2  loss ")
    assert "pairs/s" in said[-1] and "left" in said[-1]


class Slow(FakeSystem):
    """A step takes so many seconds, in turn; the first real step ends the run."""

    def __init__(self, *seconds: float) -> None:
        super().__init__(make_tokenizer())
        self.seconds, self.rehearsals = itertools.cycle(seconds), 0

    def teach(self, batch: Batch) -> object:  # type: ignore[override]
        self.rehearsals += 1
        time.sleep(next(self.seconds))
        return super().teach(batch)

    def before_step(self) -> None:
        raise UserError("rehearsed enough")


def test_the_time_is_that_of_a_step_that_is_warm(
    records: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="rehearsed enough"):
        train(records, tmp_path / "run", replace(CONFIG, epochs=10), Slow(1.5, 0.0, 0.0, 0.0, 0.0, 0.0))
    found = re.search(r"at ([\d.]+) s a step", capsys.readouterr().err)
    assert found is not None and float(found[1]) < 0.9


@pytest.mark.parametrize(("patience", "steps", "rehearsals"), [(0.0, 400, 1), (99.0, 400, 24), (99.0, 12, 2)])
def test_a_few_seconds_are_enough_for_the_estimate(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, steps: int, rehearsals: int
) -> None:
    monkeypatch.setattr("alignfuse.training.estimate.PATIENCE", patience)
    system = Slow(0.001)
    with pytest.raises(UserError, match="rehearsed enough"):
        train(records, tmp_path / "run", replace(CONFIG, steps=steps), system)
    assert system.rehearsals == rehearsals


def test_the_estimate_does_not_touch_training(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, epochs=10)
    rehearsed = FakeSystem(make_tokenizer())
    train(records, tmp_path / "rehearsed", config, rehearsed)
    plain = FakeSystem(make_tokenizer())
    monkeypatch.setattr(loop._Run, "_rehearsed", lambda self, first, groups: ([first], 0.0))
    train(records, tmp_path / "plain", config, plain)
    one, other = ([{**line, "samples_per_second": 0} for line in lines(tmp_path / n)] for n in ("rehearsed", "plain"))
    assert len(one) == 60 and one == other
    assert all(torch.equal(tensor, plain.state_dict()[name]) for name, tensor in rehearsed.state_dict().items())


def test_the_log_holds_rates_and_means(records: list[Record], tmp_path: Path) -> None:
    schedule = ScheduleConfig(warmup=4, start=0.0, end=0.0)
    config = replace(CONFIG, optimizer=OptimizerConfig(lr=0.5), schedule=schedule, steps=8)
    train(records, tmp_path / "each", config)
    train(records, tmp_path / "window", replace(config, log_steps=4))
    each, window = lines(tmp_path / "each"), lines(tmp_path / "window")
    assert [line["step"] for line in each] == list(range(1, 9))
    assert [round(line["lr"], 3) for line in each[:5]] == [0.0, 0.125, 0.25, 0.375, 0.5]
    assert each[2]["epoch"] == 0.5
    assert [line["step"] for line in window] == [4, 8]
    assert window[0]["loss"] == pytest.approx(sum(line["loss"] for line in each[:4]) / 4)
    assert {"loss/align", "loss/word", "align_accuracy", "grad_norm", "samples_per_second"} <= window[0].keys()


def test_a_run_leaves_a_model_and_training_state(records: list[Record], tmp_path: Path) -> None:
    system = FakeSystem(make_tokenizer())
    train(records, tmp_path / "run", system=system)
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert weights.keys() == system.model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in system.model.state_dict().items())
    beside = load_file(tmp_path / "run" / "training.safetensors")
    assert torch.equal(beside["queue.images"], system.queue.images)
    assert "teacher.model.word.weight" in beside
    assert any((tmp_path / "run").glob("events.out.tfevents.*"))


def scores(values: list[float], system: FakeSystem, seen: list[torch.Tensor]) -> Callable[[], Validation]:
    remaining = iter(values)

    def validate() -> Validation:
        assert not system.training
        torch.rand(5)  # what a validation draws must not reach training
        seen.append(system.model.image.weight.detach().clone())
        score = next(remaining)
        return Validation(score, {"mean_recall": score})

    return validate


@pytest.mark.parametrize(
    ("values", "best"), [([0.0, 0.0], 0), ([0.2, 0.5], 1), ([0.5, 0.2], 0), ([float("nan"), 0.1], 1)]
)
def test_the_best_epoch_is_kept_even_if_its_score_is_zero(
    records: list[Record], tmp_path: Path, values: list[float], best: int
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "tokenizer.json").write_text("{}")
    system, seen = FakeSystem(make_tokenizer()), list[torch.Tensor]()
    result = train(records, out, system=system, validate=scores(values, system, seen))
    assert result.best == values[best]
    assert torch.equal(load_file(out / "best" / "model.safetensors")["image.weight"], seen[best])
    assert (out / "best" / "tokenizer.json").exists()
    assert json.loads((out / "best" / "score.json").read_text())["step"] == 6 * (best + 1)
    assert [line["step"] for line in lines(out) if "val/mean_recall" in line] == [6, 12]
    assert system.training


def test_validation_does_not_shift_training(records: list[Record], tmp_path: Path) -> None:
    system = FakeSystem(make_tokenizer())
    train(records, tmp_path / "with", system=system, validate=scores([0.1, 0.2], system, []))
    train(records, tmp_path / "without")
    assert [line["loss"] for line in lines(tmp_path / "with") if "loss" in line] == [
        line["loss"] for line in lines(tmp_path / "without")
    ]


def test_a_run_that_ends_within_an_epoch_is_validated(records: list[Record], tmp_path: Path) -> None:
    system = FakeSystem(make_tokenizer())
    config = replace(CONFIG, steps=8)
    result = train(records, tmp_path / "run", config, system, scores([0.1, 0.2], system, []))
    assert result == Result(8, True, 0.2)


class Failing(FakeSystem):
    """Fails at its third step."""

    def __init__(self, error: Exception) -> None:
        super().__init__(make_tokenizer())
        self.error = error
        self.steps = 0

    def before_step(self) -> None:
        self.steps += 1
        if self.steps == 3:
            raise self.error
        super().before_step()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: 8 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_names_the_settings(records: list[Record], tmp_path: Path, error: Exception) -> None:
    message = r"batch_size 4 and accumulation 1: use batch_size=2 accumulation=2 .*image size.*precision=bf16"
    with pytest.raises(UserError, match=message):
        train(records, tmp_path / "run", system=Failing(error))


def test_a_killed_worker_is_explained_and_other_errors_pass() -> None:
    with pytest.raises(UserError, match="fewer workers"), explained(4, 1):
        raise RuntimeError("DataLoader worker (pid 12) is killed by signal: Bus error.")
    with pytest.raises(RuntimeError, match="shapes differ"), explained(4, 1):
        raise RuntimeError("shapes differ")


def test_not_a_number_keeps_the_last_checkpoint(records: list[Record], tmp_path: Path) -> None:
    class Diverging(FakeSystem):
        def forward(self, *arguments: object) -> Step:  # type: ignore[override]
            step = super().forward(*arguments)  # type: ignore[arg-type]
            clock = arguments[3]
            if clock.step == 4:  # type: ignore[attr-defined]
                total, count = step.losses["align"]
                return step._replace(losses={**step.losses, "align": type(step.losses["align"])(total / 0, count)})
            return step

    with pytest.raises(UserError, match="step 5: align loss is inf"):
        train(records, tmp_path / "run", replace(CONFIG, checkpoint_steps=2), Diverging(make_tokenizer()))
    assert loop.checkpoint.load_state(tmp_path / "run")["step"] == 4


def test_a_run_whose_matching_answers_constantly_warns(
    records: list[Record], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Constant(FakeSystem):
        def terms(self, *arguments: object) -> dict[str, int]:
            return {**super().terms(*arguments), "itm": 3}  # type: ignore[arg-type]

        def forward(self, *arguments: object) -> Step:  # type: ignore[override]
            """Always "no match", at one match to two others."""
            step = super().forward(*arguments)  # type: ignore[arg-type]
            of = {name: Loss(torch.tensor(right), torch.tensor(count)) for name, right, count in RIGHT}
            itm = Loss(step.losses["align"].total * 0 + 3 * 0.6365, torch.tensor(3))
            return step._replace(losses={**step.losses, "itm": itm}, metrics={**step.metrics, **of})

    RIGHT = (("itm_positive_accuracy", 0, 1), ("itm_negative_accuracy", 2, 2))
    monkeypatch.setattr("alignfuse.training.health.PATIENCE", 5)
    train(records, tmp_path / "run", system=Constant(make_tokenizer()))
    assert caplog.text.count("ITM has given every pair the same answer for 5 steps") == 1
    assert lines(tmp_path / "run")[0]["itm_negative_accuracy"] == 1.0


def test_resuming_with_other_data_is_refused(records: list[Record], tmp_path: Path) -> None:
    train(records, tmp_path / "run")
    with pytest.raises(UserError, match="had 22 samples per epoch and there are 21 now"):
        train(records[:21], tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="had 6 updates per epoch and there are 3 now"):
        train(records, tmp_path / "run", replace(CONFIG, batch_size=8), resume=True)


def test_a_state_that_was_tampered_with_is_named(records: list[Record], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(records, out)
    state = loop.checkpoint.load_state(out)
    forged = [{key: value for key, value in state.items() if key != name} for name in state if name != "format"]
    forged += [{**state, name: "x"} for name in state if name not in ("format", "scaler")]
    forged += [
        {**state, "system": {}},
        {**state, "optimizer": {"state": {}, "param_groups": []}},
        {**state, "step": 13},
    ]
    for content in forged:
        torch.save(content, out / "last" / "state.pt")
        with pytest.raises(UserError, match=r"state\.pt does not fit this run \(.+\): remove it to begin the run anew"):
            train(records, out, resume=True)
    (out / "last" / "state.pt").unlink()
    assert train(records, out, resume=True).finished


def test_a_run_killed_before_its_first_checkpoint_begins_again(records: list[Record], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 5}\n{"st')
    assert train(records, tmp_path / "run", resume=True).step == 12
    assert [line["step"] for line in lines(tmp_path / "run")] == list(range(1, 13))


def test_a_finished_run_can_be_made_longer(records: list[Record], tmp_path: Path) -> None:
    train(records, tmp_path / "run")
    assert train(records, tmp_path / "run", resume=True) == Result(12, True, None)
    assert train(records, tmp_path / "run", replace(CONFIG, epochs=3), resume=True) == Result(18, True, None)
    assert [line["step"] for line in lines(tmp_path / "run")] == list(range(1, 19))


def test_a_large_model_on_a_cpu_needs_a_yes() -> None:
    with torch.device("meta"):
        large, small = torch.nn.Linear(10_000, 6_000), torch.nn.Linear(10, 10)
    with pytest.raises(UserError, match=r"60 million parameters on a CPU.*--yes"):
        refuse_large_on_cpu(large, torch.device("cpu"), yes=False)
    refuse_large_on_cpu(large, torch.device("cpu"), yes=True)
    refuse_large_on_cpu(large, torch.device("meta"), yes=False)
    refuse_large_on_cpu(small, torch.device("cpu"), yes=False)


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.4, "42 s"), (600.0, "10 min"), (11_100.0, "3 h 5 min"), (187_300.0, "2 d 4 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_bad_samples_are_listed_once_and_training_goes_on(
    records: list[Record], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = [*records[:-1], replace(records[-1], image=tmp_path / "no such file.png")]
    with caplog.at_level(logging.WARNING):
        assert train(missing, tmp_path / "run").finished
    listed = [json.loads(line) for line in (tmp_path / "run" / "bad_samples.jsonl").read_text().splitlines()]
    assert [(item["path"], item["row"]) for item in listed] == [
        (str(tmp_path / "no such file.png"), "pairs.csv, row 23")
    ]
    assert "no such file" in listed[0]["reason"]
    assert caplog.text.count("such samples are listed in") == 1


def test_too_many_bad_samples_end_the_run(records: list[Record], tmp_path: Path) -> None:
    moved = [replace(record, image=tmp_path / f"{record.id}.png") for record in records[:12]] + records[12:]
    with pytest.raises(
        UserError, match=r"of \d+ samples could not be read, more than max_bad_share=0\.5; the first: .*"
    ):
        train(moved, tmp_path / "run")
    assert train(moved, tmp_path / "other", replace(CONFIG, max_bad_share=0.6)).finished
    with pytest.raises(UserError, match=r"i0\.png \(pairs\.csv, row 2\): .*on_bad=skip"):
        train([moved[0]], tmp_path / "third", replace(CONFIG, on_bad="raise"))
