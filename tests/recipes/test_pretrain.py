"""From pairs to a run: what it starts from, what it refuses, and that a crashed run goes on as if it had not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import alignfuse
from alignfuse.config import override
from alignfuse.data.tokenizer import Tokenizer, TokenizerConfig
from alignfuse.errors import UserError
from alignfuse.recipes import albef
from alignfuse.recipes.budget import measure
from alignfuse.recipes.pretrain import (
    DataConfig,
    PretrainRun,
    StartConfig,
    build,
    collect,
    execute,
    fitting_queue,
    fitting_sizes,
    freeze_unused,
    read_splits,
    readable,
    stored,
)
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import Updater
from alignfuse.world.export import export
from tests.contract import setups
from tests.contract.setups import subsets
from tests.shape_checks import no_shape_checks

IMAGES = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    """Generated pairs: 24 images for training, 2 for validation, five captions each."""
    folder = tmp_path_factory.mktemp("data") / "scenes"
    export(folder, {"train": IMAGES, "val": 2}, image_size=32)
    return DataConfig(paths=(str(folder / "pairs.jsonl"),))


@pytest.fixture(scope="module")
def earlier(data: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step with settings of its own."""
    out = tmp_path_factory.mktemp("runs") / "earlier"
    run = albef.debug(data)
    model = replace(run.model, image=replace(run.model.image, image_size=(24, 40)))
    text = TokenizerConfig(max_tokens=12, end_token=False, clean="albef")
    execute(replace(run, model=model, text=text, training=replace(run.training, steps=1)), out, device="cpu")
    return out


def log(out: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "samples_per_second"} for line in lines]


@no_shape_checks()  # for speed
def test_a_run_that_crashed_in_an_epoch_gives_the_losses_of_one_that_did_not(
    data: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """ALBEF itself with dropout, augmentation, mining, masks, a queue; three steps an epoch, the crash in the fifth.

    With two threads, which would add up the gradients of gathered rows in any order.
    """
    torch.set_num_threads(2)
    request.addfinalizer(lambda: torch.set_num_threads(1))
    run = albef.debug(data)
    run = replace(
        run,
        model=replace(
            run.model,
            image=replace(run.model.image, layers=1),
            text=replace(run.model.text, layers=1, fusion_layers=1, dropout=0.1),
        ),
        training=replace(run.training, steps=6, checkpoint_steps=2),
    )
    execute(run, tmp_path / "whole", device="cpu")

    update, steps = Updater.update, iter(range(1, 6))

    def crash(self: Updater, *arguments: object) -> object:
        if next(steps) == 5:
            raise RuntimeError("the power is off")
        return update(self, *arguments)  # type: ignore[arg-type]

    out = tmp_path / "crashed"
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "update", crash)
        with pytest.raises(RuntimeError, match="the power is off"):
            execute(run, out, device="cpu")
    result = execute(stored(out), out, resume=True, device="cpu")
    assert (result.step, result.finished) == (6, True)
    assert log(out) == log(tmp_path / "whole")
    expected = load_file(tmp_path / "whole" / "training.safetensors")
    found = load_file(out / "training.safetensors")
    assert expected["queue.filled"].all() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_run_that_starts_from_another_goes_on_with_its_sizes_and_texts(
    data: DataConfig, earlier: Path, tmp_path: Path
) -> None:
    run = albef.pretrain(data, size="small", start=StartConfig(run=str(earlier)))
    assert run.model == stored(earlier).model
    assert run.text == TokenizerConfig(max_tokens=12, end_token=False, clean="albef")
    still = replace(run.training.optimizer, lr=0.0)
    training = replace(run.training, steps=1, batch_size=8, workers=0, optimizer=still)
    execute(replace(run, training=training), tmp_path / "later", device="cpu")
    before, after = (load_file(out / "model.safetensors") for out in (earlier, tmp_path / "later"))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    pipe = alignfuse.load(tmp_path / "later")
    assert pipe.tokenizer.core.get_vocab() == Tokenizer.from_file(earlier).core.get_vocab()
    assert pipe.preprocessing.image_size == (24, 40)


def test_a_run_can_be_resumed_when_its_start_is_gone(data: DataConfig, earlier: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(earlier, start)
    run = albef.pretrain(data, size="toy", start=StartConfig(run=str(start)))
    run = replace(run, training=replace(run.training, steps=1, batch_size=8, workers=0))
    execute(run, tmp_path / "run", device="cpu")
    shutil.rmtree(start)
    longer = stored(tmp_path / "run")
    longer = replace(longer, training=replace(longer.training, steps=2))
    assert execute(longer, tmp_path / "run", resume=True, device="cpu").step == 2


def test_overwriting_waits_until_the_new_run_is_in_order(data: DataConfig, earlier: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(earlier, out)
    with pytest.raises(UserError, match="no such file"):
        execute(albef.debug(replace(data, paths=("moved.jsonl",))), out, overwrite=True, device="cpu")
    with pytest.raises(UserError, match="--yes"):
        execute(albef.pretrain(data, size="base"), out, overwrite=True, device="cpu")
    assert (out / "model.safetensors").read_bytes() == (earlier / "model.safetensors").read_bytes()


def test_a_run_that_was_measured_begins_as_one_that_was_not(data: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shares with the measurement was made once: its pairs and its tokenizer."""
    run = albef.debug(data)
    expected = build(run)[1]
    corpus = collect(run)
    for slow in ("read_pairs", "choose_tokenizer"):
        monkeypatch.setattr(f"alignfuse.recipes.pretrain.{slow}", None)
    measure(run, corpus, steps=1, device="cpu")
    found = build(run, corpus=corpus)[1]
    for name, tensor in expected.system.state_dict().items():
        assert torch.equal(found.system.state_dict()[name], tensor), name
    one, other = (next(parts.loader.groups(0, 1))[0].batch for parts in (expected, found))
    assert torch.equal(one.images, other.images) and torch.equal(one.text.ids, other.text.ids)
    assert found.held_out == expected.held_out


def test_data_without_anything_to_train_on_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("image,caption,split\na.png,a boat,test\nb.png,a tree,val\n", encoding="utf-8")
    run = albef.debug(DataConfig(paths=(str(tmp_path / "pairs.csv"),)))
    with pytest.raises(UserError, match=r"pairs\.csv: no record is marked train; found test, val"):
        execute(run, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_caption_that_does_not_fit_is_named_by_its_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "image,caption,split\na.png,a b,train\nb.png,b,train\nb.png,a b a b,train\n"
    (tmp_path / "pairs.csv").write_text(rows, encoding="utf-8")
    run = albef.debug(DataConfig(paths=(str(tmp_path / "pairs.csv"),)))
    with caplog.at_level("WARNING"):
        build(replace(run, text=TokenizerConfig(max_tokens=5)))
    assert (
        "texts that are longer than 5 tokens lose their end: 1 of 3 texts, the first in pairs.csv, row 3" in caplog.text
    )
    with pytest.raises(UserError, match=r"pairs\.csv, row 3: the text is longer than 5 tokens"):
        build(replace(run, text=TokenizerConfig(max_tokens=5, strict=True)))


def test_the_queue_is_at_most_a_quarter_of_the_images() -> None:
    assert [fitting_queue(1000, images) for images in (3, 24, 4000, 10**6)] == [0, 6, 1000, 1000]


@pytest.mark.parametrize("objectives", subsets("albef"), ids="+".join)
def test_what_is_trained_gets_a_gradient_and_nothing_else_does(objectives: tuple[str, ...]) -> None:
    system = setups.build("albef", objectives=objectives)
    freeze_unused(system.model, objectives)
    setups.objective(setups.step(system, setups.pairs(6))).backward()
    for name, parameter in system.model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_texts_must_fit_the_positions(data: DataConfig) -> None:
    run: PretrainRun = replace(albef.debug(data), text=TokenizerConfig(max_tokens=65))
    with pytest.raises(UserError, match=r"text\.max_tokens is 65, but the model has 64 positions"):
        fitting_sizes(run, Tokenizer.train(["a boat"] * 2, vocab_size=50))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lr=-1", r"training\.optimizer\.lr: lr and weight_decay must not be negative, not -1"),
        ("betas=[1,1]", r"betas must be at least 0 and below 1"),
        ("optimizer.eps=0", "eps must be above 0"),
        ("schedule.end=-1", "start and end are shares of the peak rate"),
        ("workers=-1", "workers must not be negative"),
        ("clip_norm=0", "clip_norm must be above 0, or none"),
        ("max_bad_share=2", "max_bad_share lies between 0 and 1"),
        ("training.weights.itc=-1", "weights must not be negative"),
        ("training.seed=-1", "seed must be at least 0"),
        ("queue_size=-1", "queue_size and ramp_epochs must not be negative"),
        ("mask_probability=2", "mask_probability lies between 0 and 1, not 2"),
        ("objectives=[]", "objectives must be one or more"),
        ("temperature_range=[0.5,0.1]", "temperature_range must be two positive numbers in order"),
        ("held_out=1", "held_out must be at least 0 and below 1"),
        ("validation.k=0", "k and images must be at least 1"),
        ("embed_dim=0", "embed_dim and temperature must be above 0"),
        ("fusion_layers=0", r"text\.fusion_layers must be at least 1"),
        ("model.image.heads=0", "heads must be at least 1, not 0"),
        ("model.text.dropout=1", "dropout must be at least 0 and below 1"),
        ("model.image.std=[0,1,1]", "std must be above 0"),
        ("model.text.layers=-1", "layers must be at least 0, not -1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(data: DataConfig, change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(albef.debug(data), [change])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.image.image_size=[33,32]", r"image_size is 33 x 32 pixels.* a multiple of model\.image\.patch_size=8"),
        ("model.text.heads=3", "model: width 128 is not divisible by 3 heads"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(data: DataConfig, change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(override(albef.debug(data), [change]))


def test_a_broken_image_for_validation_does_not_end_a_run(data: DataConfig, tmp_path: Path) -> None:
    records = read_splits(data)["val"]
    broken = tmp_path / "broken.png"
    broken.write_text("no picture", encoding="utf-8")
    bad = replace(records[0], image=broken, row="pairs.csv, row 7")
    assert readable([records[0], bad], tmp_path, TrainingConfig()) == [records[0]]
    (line,) = (tmp_path / "bad_samples.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["row"] == "pairs.csv, row 7"
    with pytest.raises(UserError, match=r"broken\.png \(pairs\.csv, row 7\): not an image"):
        readable([bad], tmp_path, TrainingConfig(on_bad="raise"))
