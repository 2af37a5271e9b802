"""Every section, and the page that holds them."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from alignfuse.errors import UserError
from alignfuse.metrics.recall import recall_both_ways
from alignfuse.report.confusions import Confusion, confusion_section, differing
from alignfuse.report.gallery import gallery_section
from alignfuse.report.markup import Markup, join, tag, void
from alignfuse.report.page import Figure, Section, page
from alignfuse.report.picture import picture
from alignfuse.report.retrieval import retrieval_section
from alignfuse.report.search import Found, Query, search_section
from alignfuse.report.settings import settings_section
from alignfuse.report.training import read_log, training_section
from alignfuse.report.understanding import GuessedWord, guesses_section, understanding_section
from alignfuse.tasks.retrieval_report import RetrievalReport
from tests.report.well_formed import Reader


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of 5 x 4 pixels, all different."""
    path = tmp_path_factory.mktemp("pictures") / "a.png"
    Image.fromarray(np.arange(60, dtype=np.uint8).reshape(5, 4, 3)).save(path)
    return path


def test_only_markup_is_markup() -> None:
    assert tag("p", "a < b & c", tag("b", "d"), class_="x", stroke_width=2.50) == (
        '<p class="x" stroke-width="2.5">a &lt; b &amp; c<b>d</b></p>'
    )
    assert tag("q", title='"><script>') == '<q title="&quot;&gt;&lt;script&gt;"></q>'
    assert void("img", alt="") == '<img alt="">'
    assert isinstance(join("<", Markup("<br>")), Markup)
    assert join("<", Markup("<br>")) == "&lt;<br>"


def test_a_picture_is_inside_and_exact(image: Path) -> None:
    (found,) = Reader(picture(image, "a caption")).all("img")
    start, _, content = found["src"].partition(",")
    assert start == "data:image/png;base64"
    assert found["class"] == "sharp"
    with Image.open(io.BytesIO(base64.b64decode(content))) as shown:
        assert np.array(shown).tolist() == np.arange(60).reshape(5, 4, 3).tolist()


def test_a_large_picture_is_made_small(tmp_path: Path) -> None:
    Image.new("RGB", (800, 400), "red").save(tmp_path / "big.jpg")
    (found,) = Reader(picture(tmp_path / "big.jpg", "big")).all("img")
    with Image.open(io.BytesIO(base64.b64decode(found["src"].partition(",")[2]))) as shown:
        assert shown.size == (192, 96)
    assert found["class"] == "smooth"


def test_the_page_is_whole_and_points_nowhere_else(image: Path) -> None:
    sections = [Section("One thing", "lead <b>", Markup("<p>body</p>")), gallery_section("Data", [(image, "a 'dog'")])]
    document = page("A & B", eyebrow="demo", lead="what", figures=[Figure("R@1", "50%", "of all")], sections=sections)
    read = Reader(document)
    assert document.startswith("<!doctype html>")
    assert "http" not in document and "url(" not in document
    assert [found["href"] for found in read.all("a")] == ["#one-thing", "#data"]
    assert [found["id"] for found in read.all("section")] == ["one-thing", "data"]
    for text in ("A & B", "lead <b>", "R@1", "50%", "a 'dog'"):
        assert text in read.text


def test_training_shows_every_loss_and_the_validation(tmp_path: Path) -> None:
    lines = [{"step": step, "loss": 3.0, "loss/itc": 2.0, "loss/cap": 1.0, "lr": 0.1} for step in range(10, 500, 10)]
    lines += [
        {"step": 250, "val/itc mean recall": 40.0, "val/itm mean recall": 50.0, "val/words": 7.0, "val/itm R@1": 1.0}
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = Reader(training_section(read_log(tmp_path), lead="how it went").body)
    names = [found["aria-label"] for found in read.all("svg")]
    validations = ["Validation: mean recall", "Validation", "Validation: R@1"]
    assert names == ["Contrastive loss (ITC)", "cap loss", *validations]
    assert {"by ITC", "re-ranked by ITM", "250: by ITC 40, re-ranked by ITM 50"} <= set(read.texts)
    assert len(read.all("polyline", "raw")) == 2  # 49 points are smoothed, one is not


def test_training_without_validation_and_without_a_log(tmp_path: Path) -> None:
    read = Reader(training_section([{"step": 1, "loss/itc": 2.0}]).body)
    assert [found["aria-label"] for found in read.all("svg")] == ["Contrastive loss (ITC)"]
    with pytest.raises(UserError, match="no metrics"):
        read_log(tmp_path)


def retrieval_report() -> RetrievalReport:
    """Four images: ITC finds one of them, re-ranking all."""
    image_of = torch.arange(4)
    by_itc = torch.eye(4).roll(1, 0)
    by_itc[0] = torch.tensor([1.0, 0, 0, 0])
    return RetrievalReport(
        checkpoint="here",
        split="test",
        resolution=(32, 48),
        itc_weight=20.0,
        score="itm",
        k_image_to_text=3,
        k_text_to_image=2,
        images=4,
        texts=4,
        captions_per_image=(1, 1),
        pairs_fused=9,
        seconds={},
        recalls={
            "itc": recall_both_ways(by_itc, by_itc, image_of),
            "itm": recall_both_ways(torch.eye(4), torch.eye(4), image_of),
        },
    )


def test_retrieval_tells_what_re_ranking_added() -> None:
    read = Reader(retrieval_section(retrieval_report()).body)
    cells = [text for text in read.texts if text[0] in "+-" or text.replace(".", "").isdigit()]
    assert cells[:5] == ["25.0", "100.0", "100.0", "75.0", "2.5"]
    assert cells[5:12] == ["100.0", "+75.0", "100.0", "100.0", "100.0", "+25.0", "1"]
    assert "32 x 48 pixels" in read.text and "3 texts and 2 images; 9 pairs" in read.text


def test_search_frames_what_is_right(image: Path) -> None:
    orders = {"by ITC": [Found(image, "0.91"), Found(image, "0.90", "own")], "re-ranked": [Found(image, "3.2", "fits")]}
    read = Reader(search_section([Query("two dogs", "a note", orders, image), Query("a cat", "", orders)]).body)
    assert len(read.all("figure", "picture")) == 7
    assert len(read.all("figure", "own")) == 3
    assert len(read.all("figure", "fits")) == 2
    assert {"two dogs", "a cat", "0.91", "3.2", "by ITC", "re-ranked"} <= set(read.texts)


def test_differing_words_stand_out() -> None:
    assert differing("a big red ring", "a big green ring") == "a big <mark>red</mark> ring"
    assert differing("a ring", "a ring on the left") == "a ring"
    assert differing("a ring above a cross", "a cross") == "<mark>a ring above</mark> a cross"


def test_confusions(image: Path) -> None:
    section = confusion_section([Confusion(image, "a red ring", 0.25, "a red disc", 0.875)])
    assert {"0.875", "0.250", "disc", "ring"} <= set(Reader(section.body).texts)
    assert confusion_section([]).lead == "No image has a wrong caption before its own."


def test_understanding_and_guesses(image: Path) -> None:
    masked = {"all": {"seen": 88.0, "blind": 31.0}}
    read = Reader(understanding_section(masked, {"all": {"ITM": 77.0}}).body)
    assert {"88", "31", "77", "seen", "blind"} <= set(read.texts)
    guess = GuessedWord(
        image, ["a", "big", "ring"], 1, frozenset({"big", "large"}), {"seen": [("large", 0.6), ("small", 0.4)]}
    )
    read = Reader(guesses_section([guess]).body)
    assert "a ? ring" in read.text
    assert "60" in read.texts
    assert len(read.all("span", "good")) == 1


def test_settings() -> None:
    read = Reader(settings_section({"Run": {"steps": "1,000"}, "Time": {"training": "6 min"}}).body)
    assert {"Run", "steps", "1,000", "Time", "training", "6 min"} <= set(read.texts)
