"""A model directory in use: opened offline, files that do not belong together, lists and single items, scores."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import alignfuse
from alignfuse.api import Pipeline
from alignfuse.config import to_dict
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF
from alignfuse.recipes.albef import SIZES
from alignfuse.search.sources import Sources
from alignfuse.tasks.retrieval import RetrievalConfig
from alignfuse.training import checkpoint
from tests.shape_checks import no_shape_checks

TEXTS = ["a red boat", "a green boat on the water", "two old trees"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model as training leaves it, without training."""
    out = tmp_path_factory.mktemp("runs") / "mine"
    tokenizer = Tokenizer.train(TEXTS * 2, vocab_size=120)
    config = replace(SIZES["toy"], text=replace(SIZES["toy"].text, vocab_size=tokenizer.vocab_size))
    torch.manual_seed(0)
    checkpoint.export(ALBEF(config), out)
    checkpoint.write_json(out / "config.json", {"system": "albef", "model": to_dict(config)})
    tokenizer.save(out / "tokenizer.json")
    Preprocessing(image_size=config.image.image_size).save(out / "preprocessing.json")
    return out


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Pipeline:
    return alignfuse.load(folder, device="cpu")


def pixels(count: int, size: tuple[int, int] = (40, 30)) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return list(torch.randint(0, 256, (count, 3, *size), generator=random, dtype=torch.uint8))


def test_two_loads_without_a_network_give_the_same_vectors(folder: Path, no_sockets: None) -> None:
    one, other = (alignfuse.load(folder, device="cpu") for _ in range(2))
    assert torch.equal(one.embed_texts(TEXTS), other.embed_texts(TEXTS))
    assert torch.equal(one.embed_images(pixels(3)), other.embed_images(pixels(3)))
    assert one.fingerprint == other.fingerprint
    assert not one.model.training


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessing.json"])
def test_a_missing_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(UserError, match=f"no {name} there"):
        alignfuse.load(tmp_path / "copy")


def test_without_a_vocabulary_images_are_read_and_texts_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "tokenizer.json").unlink()
    pipe = alignfuse.load(tmp_path / "copy")
    assert pipe.embed_images(pixels(1)).shape == (1, 64)
    with pytest.raises(UserError, match=r"no tokenizer\.json there.*--vocab"):
        pipe.embed_texts(["a boat"])


def test_a_vocabulary_of_another_run_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    Tokenizer.train([*TEXTS, "others"] * 2, vocab_size=60).save(tmp_path / "copy" / "tokenizer.json")
    with pytest.raises(UserError, match="not of one run"):
        alignfuse.load(tmp_path / "copy")


def test_weights_under_other_names_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    renamed = {name.replace("text_encoder.", "bert."): tensor for name, tensor in weights.items()}
    save_file(renamed, tmp_path / "copy" / "model.safetensors")
    with pytest.raises(UserError, match="not the weights of this config"):
        alignfuse.load(tmp_path / "copy")


def test_unit_vectors_of_one_width_from_files_bytes_and_pixels(pipe: Pipeline, tmp_path: Path) -> None:
    from PIL import Image

    (picture,) = pixels(1)
    file = tmp_path / "a picture.png"
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(file)
    images = pipe.embed_images([file, str(file), file.read_bytes(), picture])
    texts = pipe.embed_texts(TEXTS)
    assert images.shape == (4, 64) and texts.shape == (3, 64)
    assert all(torch.equal(images[0], row) for row in images)
    assert torch.cat([images, texts]).norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)
    assert pipe.embed_images([]).shape == pipe.embed_texts([]).shape == (0, 64)


def test_a_single_item_is_not_taken_for_many(pipe: Pipeline) -> None:
    """A text is a sequence of letters, too."""
    with pytest.raises(UserError, match=r"a list of texts, also for a single one: \['a red boat'\]"):
        pipe.embed_texts("a red boat")
    with pytest.raises(UserError, match=r"a list of images, also for a single one: \['boat\.jpg'\]"):
        pipe.embed_images("boat.jpg")
    with pytest.raises(UserError, match="a list of texts"):
        pipe.match(pixels(1), "a red boat")


def test_a_single_text_gets_the_scores_that_it_gets_among_others(pipe: Pipeline) -> None:
    """No softmax over the texts: a lone one is not certain."""
    (picture,) = pixels(1)
    together = pipe.match([picture], TEXTS)
    for text, among in zip(TEXTS, together, strict=True):
        (alone,) = pipe.match([picture], [text])
        assert alone == pytest.approx(among, abs=1e-5)
        assert -1 <= alone.itc <= 1 and 0 < alone.probability < 0.99
    cosine = float(pipe.embed_images([picture])[0] @ pipe.embed_texts(TEXTS[:1])[0])
    assert together[0].itc == pytest.approx(cosine, abs=1e-5)


def test_images_and_texts_are_matched_row_by_row_or_one_with_all(pipe: Pipeline) -> None:
    pictures = pixels(3)
    rows = pipe.match(pictures, TEXTS)
    assert rows[1] == pytest.approx(pipe.match([pictures[1]], TEXTS)[1], abs=1e-5)
    assert rows[2] == pytest.approx(pipe.match(pictures, [TEXTS[2]])[2], abs=1e-5)
    with pytest.raises(UserError, match="3 images and 2 texts: give as many of both, or one of either"):
        pipe.match(pictures, TEXTS[:2])


def test_what_is_no_list_of_texts_or_images_is_refused(pipe: Pipeline) -> None:
    for refused, message in (
        (lambda: pipe.embed_texts(text for text in ("a", "b")), "give a list of texts"),  # type: ignore[arg-type]
        (lambda: pipe.embed_texts(["a", 3]), "text 2 is no str but int"),  # type: ignore[list-item]
        (lambda: pipe.embed_images([3]), "an image is a path"),  # type: ignore[list-item]
        (lambda: pipe.embed_images([torch.rand(3, 8, 8)]), r"pixels are a uint8 tensor .* not torch\.float32"),
        (
            lambda: pipe.embed_images([torch.zeros(8, 8, 3, dtype=torch.uint8)]),
            r"pixels .* not torch\.uint8 \[8, 8, 3\]",
        ),
        (lambda: pipe.evaluate_retrieval([], split="test"), "nothing to evaluate"),
        (lambda: pipe.embed_texts(["a", " \n"]), "text 2 is empty"),
        (lambda: pipe.match(pixels(1), [""]), "text 1 is empty"),
    ):
        with no_shape_checks(), pytest.raises(UserError, match=message):
            refused()


def test_a_search_is_for_one_text_or_image_by_a_known_score(pipe: Pipeline) -> None:
    index = pipe.embed(Sources(list(TEXTS), [{"caption": text} for text in TEXTS]))
    assert len(pipe.search("a boat", index, k=2)) == 2
    for query in (["a boat"], None, 3, b"a boat"):
        with (
            no_shape_checks(),
            pytest.raises(UserError, match="a search is for one text, or for one image given as a Path"),
        ):
            pipe.search(query, index)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="text 1 is empty"):
        pipe.search("  ", index)
    with no_shape_checks():
        for refused in (lambda: pipe.search("a", index, score="ITM"), lambda: RetrievalConfig(score="ITM")):  # type: ignore[arg-type]
            with pytest.raises(UserError, match=r"no score 'ITM': choose one of itm, itc\+itm, itc"):
                refused()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": [4, 40]}, "image_size is 4 x 40 pixels, less than a patch of 8: write \\[32, 32\\]"),
        ({"image_size": [0, 32]}, "image_size lies between 1 and 8192 pixels"),
        ({"image_size": [32, 100_000]}, "image_size lies between 1 and 8192 pixels"),
        ({"image_size": "large"}, "image_size must be a list of values"),
        ({"image_size": [32]}, "image_size must be 2 values"),
        ({"text": {"max_tokens": 1}}, "text: max_tokens must leave room"),
        ({"text": {"max_tokens": 1000}}, "allows 1000 tokens"),
        ({"imagesize": [32, 32]}, "did you mean 'image_size'"),
        (None, "Expecting value"),
    ],
)
def test_preprocessing_that_cannot_be_is_named(
    folder: Path, tmp_path: Path, changes: dict[str, object] | None, message: str
) -> None:
    edited = shutil.copytree(folder, tmp_path / "edited")
    file = edited / "preprocessing.json"
    settings = json.loads(file.read_text())
    file.write_text("no JSON" if changes is None else json.dumps({**settings, **changes}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"preprocessing\.json.*{message}"):
        alignfuse.load(edited)


@pytest.mark.parametrize("changes", [{"embed_dim": 0}, {"embed_dim": "wide"}, {"width": 3}, {"text": {"layers": -1}}])
def test_a_config_that_cannot_be_is_named(folder: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    edited = shutil.copytree(folder, tmp_path / "edited")
    settings = json.loads((edited / "config.json").read_text())
    settings["model"] |= changes
    (edited / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(UserError, match=rf"{edited / 'config.json'}: .*(embed_dim|width|layers)"):
        alignfuse.load(edited)


def test_a_damaged_model_directory_is_refused(folder: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    weights = load_file(damaged / "model.safetensors")
    weights["match_head.bias"][0] = float("nan")
    save_file(weights, damaged / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors: match_head\.bias holds NaN"):
        alignfuse.load(damaged)
    (damaged / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json: .*holds no settings of a model"):
        alignfuse.load(damaged)
