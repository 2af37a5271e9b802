"""The command line as a user meets it: exit codes, which stream says what, help that works."""

import errno
import logging
import shlex
from pathlib import Path

import pytest
from PIL import Image

from alignfuse import __version__
from alignfuse.cli import main
from tests.cli.conftest import Run
from tests.command_tree import COMMANDS


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Three images with captions; a fourth row names a file that is not there."""
    folder = tmp_path / "my pictures"
    folder.mkdir()
    for name, colour in {"a": "red", "b": "green", "c": "blue"}.items():
        Image.new("RGB", (20, 10), colour).save(folder / f"{name}.png")
    rows = ["file;caption", "a.png;a red boat", "b.png;a green boat", "c.png;ein blaues Boot", "d.png;no boat at all"]
    (folder / "pairs.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder / "pairs.csv"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_command_shows_an_example_that_parses(path: tuple[str, ...], run: Run) -> None:
    example = COMMANDS[path].epilog.removeprefix("Example: ")
    words = shlex.split(example)
    assert words[0] == "alignfuse"
    assert tuple(words[1 : len(path) + 1]) == path
    COMMANDS[path].make_context(path[-1], words[len(path) + 1 :])  # raises for unknown or missing options
    shown = run(*path, "--help")
    assert shown.code == 0
    assert words[-1] in shown.out
    assert COMMANDS[path].help.split()[0] in shown.out


def test_version(run: Run) -> None:
    assert f"alignfuse {__version__}\n" in run("version").out
    assert run("version", "--json").json()["alignfuse"] == __version__


def test_a_mistake_is_one_line_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    outcome = run("data", "check", tmp_path / "nothing.csv")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert "nothing.csv" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_a_mistake_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = run("world", "export", tmp_path / "file" / "below", "--count", "1")
    assert outcome.code == 2
    below = tmp_path / "file" / "below"
    assert outcome.err == f"error: {tmp_path / 'file'} is a file, so {below} cannot be made: choose another place\n"


WRITERS = {  # each command that writes, up to the place it writes to, and where its work begins
    "embed": ("embed {pairs} --model {pairs} --out", "alignfuse.api.load"),
    "vocab": ("vocab {pairs} --out", "alignfuse.recipes.pretrain.read_splits"),
    "convert": ("convert albef {pairs}", "alignfuse.convert.albef.read"),
    "world": ("world export", "alignfuse.world.export._write_images"),
    "demo": ("demo --out", "alignfuse.recipes.demo.paint_world"),
    "pretrain": ("pretrain albef --data {pairs} --size toy --out", "alignfuse.recipes.pretrain.build"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_cannot_be_written_ends_before_the_work(
    run: Run, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    command, work = WRITERS[name]
    words = [str(pairs) if word == "{pairs}" else word for word in command.split()]
    monkeypatch.setattr(work, begun)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/new"), pairs.parent):
        outcome = run(*words, out)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1), outcome.err
        assert str(out) in outcome.err
    with pytest.raises(AssertionError, match="begun"):
        run(*words, tmp_path / "new")


def test_a_wrong_option_ends_with_2(run: Run) -> None:
    outcome = run("data", "check", "pairs.csv", "--caption-feild", "x")
    assert outcome.code == 2
    assert "--caption-field" in outcome.err


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"nothing\.csv"):
        main(["--debug", "data", "check", str(tmp_path / "nothing.csv")])


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("alignfuse.world.export.export", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["world", "export", str(tmp_path / "out")])


def test_warnings_of_the_library_reach_stderr(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    def warns(*_: object, **__: object) -> list[Path]:
        logging.getLogger("alignfuse.world").warning("nearly %s", "full")
        logging.getLogger("alignfuse.world").info("told")
        logging.getLogger("alignfuse.world").debug("not told")
        return []

    monkeypatch.setattr("alignfuse.world.export.export", warns)
    outcome = run("world", "export", tmp_path / "out")
    assert outcome.code == 0
    assert outcome.err == "warning: nearly full\ntold\n"


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alignfuse.world.export.export", interrupted)
    outcome = run("world", "export", tmp_path / "out")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_data_check_tells_what_it_understood(run: Run, pairs: Path) -> None:
    outcome = run("data", "check", pairs)
    assert outcome.code == 0
    assert "d.png" in outcome.out
    result = run("data", "check", pairs, "--json").json()
    assert (result["images"], result["captions"]) == (4, 4)
    assert [problem["kind"] for problem in result["problems"]] == ["missing file"]
    assert "d.png" in result["problems"][0]["detail"]


def test_one_of_a_kind_is_told_in_the_singular(run: Run, pairs: Path) -> None:
    rows = pairs.read_text(encoding="utf-8").splitlines()
    pairs.write_text("\n".join(rows[:2]), encoding="utf-8")
    told = run("data", "check", pairs).out
    assert "CSV (semicolon), 1 row\n" in told
    assert "train 1 image, 1 caption (by hash of the id)" in told
    told = run("vocab", pairs, "--out", pairs.parent / "tokenizer.json").out
    assert told.endswith("word pieces from 1 caption\n")


def test_data_check_names_the_columns_it_found(run: Run, pairs: Path) -> None:
    pairs.write_text(pairs.read_text(encoding="utf-8").replace("caption", "words"), encoding="utf-8")
    outcome = run("data", "check", pairs)
    assert outcome.code == 2
    assert "file, words" in outcome.err
    assert "--caption-field" in outcome.err
    assert run("data", "check", pairs, "--caption-field", "words").code == 0


def test_data_check_strict_ends_with_1_while_there_are_problems(run: Run, pairs: Path) -> None:
    assert run("data", "check", pairs, "--strict").code == 1
    Image.new("RGB", (10, 20)).save(pairs.parent / "d.png")
    assert run("data", "check", pairs, "--strict").code == 0


def test_world_export_writes_pairs_that_data_check_reads(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "scenes"
    result = run("world", "export", out, "--count", 20, "--seed", 5, "--json").json()
    assert result == {"files": [str(out / "pairs.jsonl")], "images": {"train": 20, "val": 2, "test": 2}}
    report = run("data", "check", out / "pairs.jsonl", "--json").json()
    assert report["images"] == 24
    assert report["problems"] == []
    assert run("world", "export", out).code == 2  # never over something that is there


def test_world_export_names_the_formats(run: Run, tmp_path: Path) -> None:
    outcome = run("world", "export", tmp_path / "out", "--format", "yaml")
    assert outcome.code == 2
    assert "karpathy" in outcome.err


def test_a_full_disk_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("alignfuse.cli.show", full)
    outcome = run("version")
    assert (outcome.code, outcome.err) == (2, "error: No space left on device\n")
