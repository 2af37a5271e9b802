"""The demo from end to end, in a few steps."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from alignfuse.api import load
from alignfuse.cli import main
from alignfuse.errors import UserError
from alignfuse.recipes import demo as recipe
from alignfuse.recipes.budget import Pace
from alignfuse.recipes.demo import DemoResult, demo, prepare
from alignfuse.recipes.demo_config import DemoConfig, quick
from alignfuse.training.loop import Result
from tests.report.well_formed import Reader

SECTIONS = ["Data", "Training", "Understanding", "Masked words", "Retrieval", "Search", "Most confused", "Settings"]
FEW = replace(quick(), train=96, val=12, test=45, fewest_steps=8, most_steps=8, pairs=40)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    """A demo that was killed while it painted, and then resumed."""
    out = tmp_path_factory.mktemp("runs") / "demo"
    prepare(out, FEW, resume=False, overwrite=False)
    (out / "world.partial" / "images").mkdir(parents=True)
    return demo(out, resume=True)


def test_the_report_is_one_whole_file(result: DemoResult) -> None:
    document = (result.out / "report.html").read_text(encoding="utf-8")
    read = Reader(document)
    titles = [found["id"] for found in read.all("section")]
    assert titles == [title.lower().replace(" ", "-") for title in SECTIONS]
    assert "http" not in document
    assert all(found["src"].startswith("data:image/png;base64,") for found in read.all("img"))
    assert len(read.all("svg")) == 4
    assert len(read.all("figure", "bars")) == 2
    for text in ("Contrastive loss (ITC)", "re-ranked by ITM", "a large red cross in the middle", "8 of 16 pairs"):
        assert text in read.text


def test_the_run_is_one_that_users_have(result: DemoResult) -> None:
    pipe = load(result.out)
    assert pipe.model.config.text.width == 128
    index = pipe.open_index(result.out / "index")
    assert len(index.search(pipe.embed_texts(["a large red cross in the middle"]), 5)[0]) == 5
    assert (result.out / "last" / "state.pt").is_file()
    assert json.loads((result.out / "config.json").read_text())["augment"] is None


def test_everything_is_measured_on_the_held_out_scenes(result: DemoResult) -> None:
    found = result.found
    assert (found.retrieval.images, found.retrieval.texts, found.retrieval.split) == (45, 45, "test")
    assert set(found.retrieval.recalls) == {"itc", "itm", "itc+itm"}
    assert sum(tally.of for tally in found.understanding.masked["wrong image"].values()) == 90
    assert {kind: tally.of for kind, tally in found.understanding.pairs.items()} == dict.fromkeys(
        ("colour", "relation", "shape", "size"), 20
    )
    folders = {Path(str(record.image)).parent for record in found.held_out.records}
    assert folders == {result.out / "world" / "images" / "test"}
    assert [caption.text for caption in found.held_out.said] == found.held_out.texts


def test_the_summary_has_the_numbers_and_where_the_report_is(result: DemoResult) -> None:
    text, figures = str(result), json.loads(json.dumps(result.to_dict()))
    assert str(result.out / "report.html") in text
    assert "one-word pairs" in text and "text to image" in text and "search 'a large red cross in the middle'" in text
    assert figures["steps"] == 8
    assert figures["understanding"]["one_word_pairs"]["count"] == 80
    assert len(figures["search"]["a large red cross in the middle"]) == 3
    assert set(figures["seconds"]) == {"painting", "training", "evaluation", "report"}


def test_a_finished_demo_resumed_trains_no_more(
    result: DemoResult, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [(result.out / name).read_bytes() for name in ("model.safetensors", "metrics.jsonl")]
    (result.out / "report.html").unlink()
    with caplog.at_level(logging.INFO, logger="alignfuse"):
        again = demo(result.out, DemoConfig(), resume=True)
    assert [(result.out / name).read_bytes() for name in ("model.safetensors", "metrics.jsonl")] == before
    assert again.found.retrieval.recalls == result.found.retrieval.recalls
    assert again.found.understanding == result.found.understanding
    assert (result.out / "report.html").is_file()


def test_a_stopped_demo_says_how_to_go_on(result: DemoResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "execute", lambda *_, **__: Result(3, False, None))
    with pytest.raises(UserError, match=f"stopped after step 3; alignfuse demo --out {result.out} --resume"):
        demo(result.out, resume=True)


def test_what_is_there_is_neither_overwritten_nor_mistaken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty: choose another --out, or replace a run there with --overwrite"):
        prepare(tmp_path, FEW, resume=False, overwrite=False)
    with pytest.raises(UserError, match="nothing to resume"):
        prepare(tmp_path, FEW, resume=True, overwrite=False)
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "map.png").write_text("mine too")
    with pytest.raises(UserError, match="in the way"):
        prepare(tmp_path, FEW, resume=False, overwrite=True)
    assert (tmp_path / "world" / "map.png").is_file()


def test_overwriting_removes_an_earlier_demo_alone(tmp_path: Path) -> None:
    prepare(tmp_path, FEW, resume=False, overwrite=False)
    for name in ("world/images", "index", "best"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="--overwrite"):
        prepare(tmp_path, FEW, resume=False, overwrite=False)
    assert prepare(tmp_path, quick(), resume=False, overwrite=True) == quick()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.json", "notes.txt"]
    assert prepare(tmp_path, DemoConfig(), resume=True, overwrite=False) == quick()


def test_steps_that_fit_leave_room_for_validation() -> None:
    assert Pace(step=0.2, validation=5.0, updates=100).steps(250) == 1000
    assert Pace(step=0.2, validation=0.0, updates=100).steps(250) == 1250
    assert Pace(step=0.2, validation=0.0, updates=100).steps(0.1) == 1


@pytest.mark.parametrize(
    ("options", "config"),
    [(["--quick"], quick()), (["--minutes", "60"], DemoConfig(minutes=60.0)), ([], DemoConfig())],
)
def test_the_command_passes_its_settings_on(
    result: DemoResult,
    options: list[str],
    config: DemoConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = []
    monkeypatch.setattr(recipe, "demo", lambda out, config, **_: asked.append((out, config)) or result)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--out", str(result.out), "--json", *options])
    assert ended.value.code == 0
    assert asked == [(result.out, config)]
    assert json.loads(capsys.readouterr().out)["report"] == str(result.out / "report.html")
