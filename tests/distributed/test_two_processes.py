"""Two gloo processes do what one does: losses, gradients, samples, files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from alignfuse.errors import UserError
from tests.distributed import ranks
from tests.training.fake import make_records

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where the images lie and where the two ranks write."""
    return tmp_path_factory.mktemp("pairs"), tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folders: tuple[Path, Path]) -> list[dict[str, Any]]:
    """What each rank found."""
    make_records(folders[0], 22)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::FutureWarning", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(ROOT / "tests" / "distributed" / "ranks.py"), *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(folders[1] / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


def log(out: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "samples_per_second"} for line in lines]


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_gather_of_uneven_rows_has_the_gradient_of_one_process(two: list[dict[str, Any]]) -> None:
    alone = ranks.gathered_gradients([5])
    for rank, found in enumerate(two):
        assert_close(found["gather"]["gradient"], alone["gradient"])
        assert found["gather"]["ids"].tolist() == [0, 1, 2, 10, 11]
        assert found["gather"]["first"] == (0, 3)[rank]
        assert found["gather"]["total"] == {"rows": 5, "ones": 2}
    assert alone["first"] == 0


def test_albef_on_two_ranks_is_albef_with_mining_in_halves(two: list[dict[str, Any]]) -> None:
    alone = ranks.albef_steps([5], draws=ranks.Halved)
    for found in two:
        for one, other in zip(alone["losses"], found["albef"]["losses"], strict=True):
            names = one.keys() - {"near_negatives"}  # a share of the candidates, of which a half has fewer
            assert {name: other[name] for name in names} == pytest.approx(
                {name: one[name] for name in names}, rel=1e-5, abs=1e-5
            )
        for step in range(3):
            assert found["albef"]["gradients"][step].keys() == alone["gradients"][step].keys()
            for name, gradient in alone["gradients"][step].items():
                assert_close(found["albef"]["gradients"][step][name], gradient)
    whole = ranks.albef_steps([5])  # mining over all five pairs is another draw, so the comparison sees mining
    assert whole["losses"][0]["loss/itm"] != pytest.approx(alone["losses"][0]["loss/itm"], abs=1e-4)


def test_seven_samples_in_batches_of_two_end_and_lose_none(two: list[dict[str, Any]]) -> None:
    assert [found["seven"]["result"] for found in two] == [(4, True, None)] * 2
    assert sorted(two[0]["seven"]["seen"] + two[1]["seven"]["seen"]) == list(range(7))
    assert [len(found["seven"]["seen"]) for found in two] == [4, 3]


@pytest.mark.parametrize(("name", "config"), [("seven", ranks.SEVEN), ("uneven", ranks.UNEVEN)])
def test_a_run_logs_and_learns_the_same(
    two: list[dict[str, Any]], folders: tuple[Path, Path], tmp_path: Path, name: str, config: Any
) -> None:
    records = make_records(folders[0], 22)[: 7 if name == "seven" else 22]
    whole = ranks.replace(config, batch_size=2 * config.batch_size)
    alone = ranks.train(records, tmp_path, whole)
    for line, expected in zip(log(folders[1] / name), log(tmp_path), strict=True):
        assert line == pytest.approx(expected, rel=1e-5, abs=1e-5)
    for found in two:
        for key, tensor in alone["state"].items():
            torch.testing.assert_close(found[name]["state"][key], tensor, rtol=1e-4, atol=1e-4, msg=key)


def test_a_signal_to_one_rank_stops_all_and_the_run_goes_on(
    two: list[dict[str, Any]], folders: tuple[Path, Path]
) -> None:
    assert [found["stopped"]["result"] for found in two] == [(3, False, None)] * 2
    assert [found["resumed"]["result"] for found in two] == [(6, True, None)] * 2
    assert log(folders[1] / "stopped") == log(folders[1] / "uneven")


def test_bad_samples_of_all_ranks_are_listed_once(two: list[dict[str, Any]], folders: tuple[Path, Path]) -> None:
    assert [found["bad"]["result"] for found in two] == [(12, True, None)] * 2
    lines = (folders[1] / "bad" / "bad_samples.jsonl").read_text().splitlines()
    assert [Path(json.loads(line)["path"]).name for line in lines] == ["no such file.png"]


def test_processes_that_leave_end_well() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "distributed" / "leaving.py"), "4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert ranks.distributed.choose_device() == torch.device("cpu")
    for name in ("cuda", "cuda:1"):
        with pytest.raises(UserError, match=f"device '{name}' is not available"):
            ranks.distributed.choose_device(name)
    with pytest.raises(UserError, match="unknown device 'gpu'"):
        ranks.distributed.choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert ranks.distributed.choose_device() == ranks.distributed.choose_device("cuda") == torch.device("cuda", 3)
    assert ranks.distributed.choose_device("cuda:1") == torch.device("cuda", 1)


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with ranks.distributed.processes() as device:
        assert device.type in ("cpu", "cuda", "mps")
        assert not torch.distributed.is_initialized()
        rows = torch.ones(2, 3)
        assert ranks.distributed.gather(rows) is rows
        ranks.distributed.barrier()
