"""The embedding file: exact search, cosines in [-1, 1], and refusal of whatever does not belong together."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from alignfuse.errors import UserError
from alignfuse.search.fingerprint import fingerprint
from alignfuse.search.index import IDS, VECTORS, Hit, Index, build, open_index
from alignfuse.search.rerank import rerank_images, rerank_texts
from alignfuse.tasks.ranking import Score
from tests.tasks.table_model import TableModel, picture_batches, text_batches


@pytest.fixture
def raw() -> torch.Tensor:
    """Vectors of very different lengths."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(50, 12, generator=generator) * torch.logspace(-3, 3, 50)[:, None]


@pytest.fixture
def index(raw: torch.Tensor) -> Index:
    return build(
        raw, ({"id": f"r{row}", "image": f"ä\u2028{row}.png"} for row in range(50)), kind="image", model="a" * 64
    )


def test_raw_vectors_find_themselves_at_cosine_1(index: Index, raw: torch.Tensor) -> None:
    for row, hits in enumerate(index.search(raw * 267, k=3)):
        assert hits[0].row == row and hits[0].record == {"id": f"r{row}", "image": f"ä\u2028{row}.png"}
        assert 1 - 1e-6 <= hits[0].itc <= 1.0
        assert all(-1.0 <= hit.itc <= 1.0 for hit in hits)
    assert index.search(-raw[:1], k=50)[0][-1].itc == pytest.approx(-1.0, abs=1e-6)


def test_search_in_chunks_is_the_plain_search(index: Index, raw: torch.Tensor) -> None:
    queries = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))
    cosine = torch.nn.functional.cosine_similarity(queries.double()[:, None], raw.double()[None], dim=2)
    for chunk in (1, 30, 10**6):
        found = index.search(queries, k=7, scores_at_once=chunk)
        assert [[hit.row for hit in hits] for hits in found] == cosine.topk(7).indices.tolist()
        assert torch.tensor([[hit.itc for hit in hits] for hits in found]).numpy() == pytest.approx(
            cosine.topk(7).values.numpy(), abs=1e-6
        )
    assert len(index.search(queries, k=1000)[0]) == 50


def test_written_and_opened_again(index: Index, raw: torch.Tensor, tmp_path: Path) -> None:
    index.save(tmp_path / "new" / "folder")
    again = open_index(tmp_path / "new" / "folder", model="a" * 64)
    assert again.search(raw, k=5) == index.search(raw, k=5)
    assert again.kind == "image" and sorted(path.name for path in (tmp_path / "new/folder").iterdir()) == [VECTORS, IDS]


def test_another_model_is_refused(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path)
    with pytest.raises(UserError, match="another model"):
        open_index(tmp_path, model="b" * 64)


def test_changed_rows_are_refused(index: Index, tmp_path: Path) -> None:
    def opened_with(lines: list[str]) -> Index:
        index.save(tmp_path)
        (tmp_path / IDS).write_text("".join(lines), encoding="utf-8")
        return open_index(tmp_path, model="a" * 64)

    index.save(tmp_path)
    lines = list((tmp_path / IDS).open(encoding="utf-8"))
    assert opened_with(lines).record(7) == index.record(7)
    with pytest.raises(UserError, match="49 rows for 50 embeddings"):
        opened_with(lines[:10] + lines[11:])
    with pytest.raises(UserError, match="changed since"):
        opened_with([lines[1], lines[0], *lines[2:]])


def test_a_row_cut_from_the_vectors_is_refused(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path)
    header = {
        "format": "alignfuse-embeddings-1",
        "model": "a" * 64,
        "kind": "image",
        "width": "12",
        "count": "50",
        "ids": "",
    }
    vectors = load_file(tmp_path / VECTORS)["embeddings"][1:].contiguous()
    save_file({"embeddings": vectors}, tmp_path / VECTORS, metadata=header)
    with pytest.raises(UserError, match="header says 50 x 12"):
        open_index(tmp_path, model="a" * 64)


def test_what_is_no_embedding_file_is_named(index: Index, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no embeddings\.safetensors there"):
        open_index(tmp_path, model="a")
    index.save(tmp_path)
    (tmp_path / VECTORS).write_bytes(b"not a tensor")
    with pytest.raises(UserError, match="not an embedding file"):
        open_index(tmp_path, model="a" * 64)
    save_file({"embeddings": torch.eye(2)}, tmp_path / VECTORS)
    with pytest.raises(UserError, match="not an embedding file"):
        open_index(tmp_path, model="a" * 64)
    save_file({"weights": torch.eye(2)}, tmp_path / VECTORS)
    with pytest.raises(UserError, match="not an embedding file"):
        open_index(tmp_path, model="a" * 64)


def test_bad_queries_and_vectors(index: Index) -> None:
    with pytest.raises(UserError, match="query is 5 wide, the embeddings 12"):
        index.search(torch.ones(1, 5), k=1)
    with pytest.raises(UserError, match="query 1 is zero or not finite"):
        index.search(torch.tensor([[1.0] * 12, [0.0] * 12]), k=1)
    with pytest.raises(UserError, match="k is 0"):
        index.search(torch.ones(1, 12), k=0)
    with pytest.raises(UserError, match="embedding 1 is zero or not finite"):
        build(torch.tensor([[1.0], [float("nan")]]), [{}, {}], kind="text", model="m")
    with pytest.raises(ValueError, match="2 embeddings, but 1 records"):
        build(torch.ones(2, 3), [{}], kind="text", model="m")
    with pytest.raises(UserError, match="one embedding per image"):
        build(torch.ones(2, 4, 3), [{}, {}], kind="image", model="m")
    with pytest.raises(UserError, match="no embeddings"):
        build(torch.ones(0, 3), [], kind="text", model="m")


def test_fingerprint_sees_weights_names_and_settings() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    assert fingerprint(model) == fingerprint(other) and len(fingerprint(model)) == 64
    assert fingerprint(model, "224 px") != fingerprint(model, "384 px")
    assert fingerprint(model, "ab", "c") != fingerprint(model, "a", "bc")
    with torch.no_grad():
        other.bias[1] += 1e-6
    assert fingerprint(model) != fingerprint(other)
    assert fingerprint(model) != fingerprint(nn.Sequential(model))
    assert fingerprint(model.bfloat16()) != fingerprint(other.bfloat16().float())


@pytest.mark.parametrize(
    ("score", "images", "texts"),
    [("itc", [2, 0, 1], [2, 0, 1]), ("itm", [1, 0, 2], [0, 1, 2]), ("itc+itm", [0, 1, 2], [0, 2, 1])],
)
def test_rerank_orders_hits_by_the_named_score(score: Score, images: list[int], texts: list[int]) -> None:
    """Three images and texts; the hits come in ITC order 2, 0, 1 with cosines 0.9, 0.8, 0.1. Logits of text 0 with
    the images: 0.5, 0.9, 0.05; of image 0 with the texts: 0.5, 0.4, -0.3."""
    logits = torch.tensor([[0.5, 0.4, -0.3], [0.9, 0.0, 0.0], [0.05, 0.0, 0.0]])
    model = TableModel(torch.eye(3), torch.eye(3), logits)
    hits = [Hit(row=row, record={"id": row}, itc=itc) for row, itc in ((2, 0.9), (0, 0.8), (1, 0.1))]
    pictures = torch.cat(picture_batches(3))
    sentences = [text_batches(3, 1)[hit.row] for hit in hits]

    found = rerank_images(model, sentences[1], pictures[[2, 0, 1]].split(2), hits, score=score)
    assert [hit.row for hit in found] == images
    assert {hit.row: hit.itm for hit in found} == pytest.approx({0: 0.5, 1: 0.9, 2: 0.05})
    assert found[0].to_dict() == {"id": images[0], "itc": found[0].itc, "itm": found[0].itm}
    found = rerank_texts(model, pictures[:1], sentences, hits, score=score)
    assert [hit.row for hit in found] == texts
    with pytest.raises(ValueError, match="3 hits, but 2"):
        rerank_texts(model, pictures[:1], sentences[:2], hits)


def test_a_file_name_that_is_no_utf8_comes_back(tmp_path: Path) -> None:
    records = [{"image": "caf\udce9.png"}, {"image": "café.png"}]
    build(torch.eye(2), records, kind="image", model="m").save(tmp_path)
    index = open_index(tmp_path, model="m")
    assert [index.record(row) for row in range(2)] == records
    (tmp_path / "ids.jsonl").write_bytes(b"\xff\n\xff\n")
    with pytest.raises(UserError, match="changed since"):
        open_index(tmp_path, model="m")
