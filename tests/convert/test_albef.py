"""Official ALBEF checkpoints: written as run directories, and as starting weights of other sizes."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from alignfuse.blocks.tokens import Text
from alignfuse.convert import albef
from alignfuse.convert.initial import image_config, init_from, text_config, whole_config
from alignfuse.convert.run import load_training, model_config
from alignfuse.convert.write import convert_albef
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig
from alignfuse.systems.albef import ALBEFSystem, ALBEFTraining

HEADS = (3, 4)


@pytest.fixture
def checkpoint(shared: Path) -> Path:
    return shared / "parity/albef/pretrain/checkpoint.pth"


@pytest.fixture
def state(checkpoint: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["model"]
    return loaded


@pytest.fixture
def run(checkpoint: Path, tmp_path: Path) -> Path:
    convert_albef(checkpoint, tmp_path / "run")
    return tmp_path / "run"


def other_size(run: Path, size: int) -> ALBEFConfig:
    config = model_config(run)
    return replace(config, image=replace(config.image, image_size=(size, size)))


def embed(model: ALBEF) -> torch.Tensor:
    text = Text(torch.tensor([[101, 7, 8, 9]]), torch.ones(1, 4).bool())
    images = torch.arange(3 * 64 * 64).reshape(1, 3, 64, 64).remainder(256).to(torch.uint8)
    with torch.no_grad():
        return torch.cat([model.embed_image(model.encode_image(images)), model.embed_text(model.encode_text(text))])


def test_run_directory(checkpoint: Path, run: Path, no_sockets: None) -> None:
    config = model_config(run)
    assert (config.image.heads, config.text.heads) == HEADS  # from the config.json beside the checkpoint
    assert (config.text.layers, config.text.fusion_layers, config.embed_dim) == (2, 2, 24)
    model = ALBEF(config).eval()
    model.load_state_dict(load_file(run / "model.safetensors"))
    assert torch.equal(embed(model), embed(albef.build(albef.read(checkpoint)).model))
    preprocessing = Preprocessing.load(run / "preprocessing.json")
    assert preprocessing.image_size == (64, 64)
    assert (preprocessing.text.end_token, preprocessing.text.clean) == (False, "albef")
    assert not (run / "tokenizer.json").exists()


def test_nothing_is_left_over(checkpoint: Path) -> None:
    """Every tensor has its place; buffers such as position_ids and the second names of tied weights are no news."""
    report = albef.build(albef.read(checkpoint)).report
    assert len(report.lines()) == 1
    assert not report.new and not report.missing and not report.unexpected and not report.left_out


def test_image_ids_of_the_queue(shared: Path) -> None:
    """The retrieval layout has them; -100 there is an id that is not known, of an entry that counts."""
    queue = albef.build(albef.read(shared / "parity/albef/retrieval/checkpoint.pth")).queue
    assert queue is not None
    assert queue.image_ids[:14].tolist() == [6, 1, 10, 3, 6, 1, 11, 3, 4, 6, 1, 6, -1, -1]
    assert queue.filled.all() and queue.pointer == 12 and (queue.caption_ids == -1).all()


def test_two_conversions_are_equal(shared: Path, tmp_path: Path) -> None:
    """Also where a part is new, as the vocabulary head of the retrieval layout."""
    for name in ("one", "two"):
        torch.manual_seed(hash(name) % 1000)
        report = convert_albef(shared / "parity/albef/retrieval/checkpoint.pth", tmp_path / name)
    assert {name.split(".")[0] for name in report.new} == {"mask_head"} and not report.missing
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_vocabulary_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(206)]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    convert_albef(checkpoint, tmp_path / "run", vocab=tmp_path / "vocab.txt")
    assert Tokenizer.from_file(tmp_path / "run").vocab_size == 211
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "added"]) + "\n")
    with pytest.raises(UserError, match="212 words, but the checkpoint was trained with 211"):
        convert_albef(checkpoint, tmp_path / "other", vocab=tmp_path / "vocab.txt")
    assert not (tmp_path / "other").exists()


def test_a_run_at_another_resolution_and_queue_size(run: Path, state: dict[str, torch.Tensor]) -> None:
    model = ALBEF(other_size(run, 96))
    report = init_from(model, whole=run)
    assert report.resized == {"image_encoder.positions": "from 4 x 4 to 6 x 6 places"}
    assert not report.new and not report.missing and not report.unexpected
    system = ALBEFSystem(model, ALBEFTraining(queue_size=12), mask_id=103)
    beside = load_training(system, run, keep_queue=True)
    assert system.teacher.model.image_encoder.positions.shape == (1, 37, 36)
    torch.testing.assert_close(system.teacher.model.text_projection.linear.weight, state["text_proj_m.weight"])
    # Of 32 columns the pointer stands at 16: the newest twelve end at 15.
    assert beside.resized["queue"] == "from 32 to 12 places, the newest 12 kept"
    torch.testing.assert_close(system.queue.images, state["image_queue"].T[4:16])
    torch.testing.assert_close(system.queue.texts, state["text_queue"].T[4:16])
    assert system.queue.filled.all() and (system.queue.image_ids == -1).all() and system.queue.pointer == 0


def test_a_larger_queue_is_filled_in_part(run: Path, state: dict[str, torch.Tensor]) -> None:
    system = ALBEFSystem(ALBEF(model_config(run)), ALBEFTraining(queue_size=40), mask_id=103)
    load_training(system, run, keep_queue=True)
    assert system.queue.filled.tolist() == [True] * 32 + [False] * 8 and system.queue.pointer == 32
    torch.testing.assert_close(system.queue.images[:16], state["image_queue"].T[16:])


def test_without_asking_the_queue_starts_empty(run: Path) -> None:
    system = ALBEFSystem(ALBEF(model_config(run)), ALBEFTraining(queue_size=32), mask_id=103)
    report = load_training(system, run)
    assert not system.queue.filled.any() and "the queue starts empty" in report.notices


def test_a_directory_without_teacher(run: Path) -> None:
    (run / "training.safetensors").unlink()
    model = ALBEF(model_config(run))
    system = ALBEFSystem(model, ALBEFTraining(queue_size=32), mask_id=103)
    init_from(model, whole=run)
    report = load_training(system, run)
    assert "the teacher starts from the model" in str(report)
    assert torch.equal(system.teacher.model.text_projection.linear.weight, model.text_projection.linear.weight)


def test_renamed_text_weights_are_an_error(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    renamed = {name.replace("text_encoder.", "language."): value for name, value in weights.items()}
    save_file(renamed, run / "model.safetensors")
    model = ALBEF(model_config(run))
    with pytest.raises(UserError, match=r"should hold text_encoder.* and does not; it holds language"):
        init_from(model, whole=run)
    assert init_from(model, whole=run, allow_missing=True).unexpected[0].startswith("language.")


def test_renamed_official_text_weights_are_an_error(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    renamed = {name.replace("text_encoder.", "language."): value for name, value in state.items()}
    torch.save({"model": renamed}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=r"looks like an ALBEF checkpoint, but holds no text_encoder\."):
        albef.read(tmp_path / "x.pth", heads=HEADS)


def test_one_lost_tensor_is_an_error(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    del state["text_encoder.bert.encoder.layer.3.crossattention.self.key.weight"]
    torch.save({"model": state}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=r"should hold fusion_encoder\.blocks and does not") as caught:
        albef.build(albef.read(tmp_path / "x.pth", heads=HEADS))
    assert "--" not in str(caught.value)  # converting has no option that allows it


def test_parts_of_a_checkpoint_as_starting_weights(checkpoint: Path, state: dict[str, torch.Tensor]) -> None:
    defaults = ALBEFConfig()
    text, image = text_config(checkpoint, defaults.text), image_config(checkpoint, defaults.image, image_size=(80, 48))
    model = ALBEF(ALBEFConfig(image=image, text=text, embed_dim=5))
    report = init_from(model, text=checkpoint, image=checkpoint)
    assert report.resized == {"image_encoder.positions": "from 4 x 4 to 5 x 3 places"}
    assert {name.split(".")[0] for name in report.new} == {
        "temperature", "image_projection", "text_projection", "match_head",
    }  # fmt: skip
    assert torch.equal(model.fusion_encoder.blocks[1].cross.query.weight,
                       state["text_encoder.bert.encoder.layer.3.crossattention.self.query.weight"])  # fmt: skip


def test_sizes_of_a_whole_start(checkpoint: Path, run: Path) -> None:
    """An official file and the directory that was made of it bring the same sizes; the image size may be another."""
    sizes = whole_config(checkpoint)
    assert sizes == whole_config(run) == model_config(run)
    model = ALBEF(replace(sizes, image=replace(sizes.image, image_size=(96, 32))))
    assert init_from(model, whole=checkpoint).resized["image_encoder.positions"] == "from 4 x 4 to 6 x 2 places"


def test_a_file_without_momentum_copies(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    kept = {name: value for name, value in state.items() if "_m." not in name and "queue" not in name}
    torch.save({"model": kept}, tmp_path / "x.pth")
    converted = albef.build(albef.read(tmp_path / "x.pth", heads=HEADS))
    assert converted.queue is None and "teacher starts from the model" in str(converted.report)
    weight = converted.teacher.model.image_projection.linear.weight
    assert torch.equal(weight, state["vision_proj.weight"])


def test_half_precision_trains(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """Weights become float32: with Adam's eps of 1e-8 half precision gives NaN at the first step."""
    halved = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    torch.save({"model": halved}, tmp_path / "x.pth")
    model = albef.build(albef.read(tmp_path / "x.pth", heads=HEADS)).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text = Text(torch.tensor([[101, 7, 8, 9]]), torch.ones(1, 4).bool())
    for _ in range(3):
        memory = model.remember(model.encode_image(torch.randn(1, 3, 64, 64)))
        loss = model.match(model.fuse(model.encode_text(text), memory)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_official_files_with_their_whole_training_state(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """As the official script saves: optimizer, schedule and config beside the model, DDP's prefix on the names."""
    content = {
        "model": {f"module.{name}": value for name, value in state.items()},
        "optimizer": {"state": {}, "param_groups": [{"lr": 1e-4}]},
        "config": {"image_res": 256},
        "epoch": 29,
    }
    torch.save(content, tmp_path / "plain.pth")
    assert albef.read(tmp_path / "plain.pth", heads=HEADS).config.text.vocab_size == 211
    torch.save({**content, "args": argparse.Namespace(seed=1)}, tmp_path / "args.pth")
    with pytest.raises(UserError, match="--trust"):
        convert_albef(tmp_path / "args.pth", tmp_path / "out", heads=HEADS)
    convert_albef(tmp_path / "args.pth", tmp_path / "out", heads=HEADS, trust=True)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_heads_that_do_not_fit(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the image encoder is 36 wide, which 5 heads do not divide"):
        albef.read(checkpoint, heads=(5, 4))


def test_heads_of_the_published_width(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """Nothing states them: one per 64 channels, and the report says so."""
    torch.save({"model": state}, tmp_path / "x.pth")
    converted = albef.build(albef.read(tmp_path / "x.pth"))
    assert converted.model.config.image.heads == 1
    assert "image encoder: attention heads not stated in the source, 1 taken" in converted.report.notices


def test_a_filled_directory_is_not_overwritten(checkpoint: Path, run: Path) -> None:
    with pytest.raises(
        UserError, match="not empty: choose another folder, or replace the model there with --overwrite"
    ):
        convert_albef(checkpoint, run)
    convert_albef(checkpoint, run, overwrite=True)


def test_a_run_without_its_config_names_the_file(run: Path) -> None:
    model = ALBEF(model_config(run))
    (run / "config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json: it is missing"):
        init_from(model, whole=run)


def test_the_report_is_short(run: Path) -> None:
    """A file without the encoder that was not trained is one line, not a hundred."""
    weights = load_file(run / "model.safetensors")
    partial = {name: value for name, value in weights.items() if not name.startswith("image_encoder.")}
    save_file(partial, run / "model.safetensors")
    report = init_from(ALBEF(model_config(run)), whole=run, allow_missing=True)
    lines = str(report).splitlines()
    assert len(lines) == 2 and len(report.missing) > 40
    assert lines[1].startswith("  missing in the source: image_encoder.blocks (36 tensors)")


def test_json_of_the_config(run: Path) -> None:
    assert json.loads((run / "config.json").read_text())["system"] == "albef"
