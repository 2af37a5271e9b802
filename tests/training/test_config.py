"""Configs: what a user may write, and what a mistake says."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from alignfuse.config import from_dict, override, to_dict
from alignfuse.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Patches:
    kind: Literal["patches"] = "patches"
    size: tuple[int, int] = (16, 16)


@dataclass(frozen=True, kw_only=True)
class Grid:
    kind: Literal["grid"] = "grid"
    channels: int = 1280


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    lr: float = 1e-4
    betas: tuple[float, ...] = (0.9, 0.999)
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr must be above 0, not {self.lr}")


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    steps: int = 10
    warmup: int | float = 4
    precision: Literal["fp32", "bf16"] = "fp32"
    shuffle: bool = True
    folder: Path | None = None
    image: Patches | Grid = field(default_factory=Patches)
    optimizer: Optimizer = field(default_factory=Optimizer)
    weights: dict[str, float] = field(default_factory=dict)

    @property
    def doubled(self) -> int:
        return 2 * self.steps


RUN = Run(
    name="5",
    warmup=0.5,
    folder=Path("a b/c"),
    image=Grid(channels=3),
    optimizer=Optimizer(clip=1.0),
    weights={"itm": 2},
)


def test_round_trip_through_plain_values() -> None:
    data = to_dict(RUN)
    assert data["image"] == {"kind": "grid", "channels": 3}
    assert data["folder"] == "a b/c"
    assert data["optimizer"]["betas"] == [0.9, 0.999]
    assert "doubled" not in data
    assert from_dict(Run, data) == RUN


def test_defaults_fill_what_is_not_given() -> None:
    assert from_dict(Run, {"name": "x", "optimizer": {"lr": 1}}) == Run(name="x", optimizer=Optimizer(lr=1.0))
    assert isinstance(from_dict(Run, {"name": "x", "optimizer": {"lr": 1}}).optimizer.lr, float)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("optimizer.lr=1e-3", lambda run: run.optimizer.lr == 1e-3),
        ("optimizer.clip=none", lambda run: run.optimizer.clip is None),
        ("optimizer.clip=2", lambda run: run.optimizer.clip == 2.0),
        ("optimizer.betas=0.5,0.6,0.7", lambda run: run.optimizer.betas == (0.5, 0.6, 0.7)),
        ("image.channels=7", lambda run: run.image == Grid(channels=7)),
        ("name=17", lambda run: run.name == "17"),
        ("name=a=b", lambda run: run.name == "a=b"),
        ("shuffle=False", lambda run: run.shuffle is False),
        ("warmup=100", lambda run: run.warmup == 100 and isinstance(run.warmup, int)),
        ("warmup=0.1", lambda run: run.warmup == 0.1),
        ("weights.itc=0.5", lambda run: run.weights == {"itm": 2, "itc": 0.5}),
        ("folder=D:\\a b", lambda run: run.folder == Path("D:\\a b")),
    ],
)
def test_a_change_from_the_command_line(change: str, read) -> None:
    assert read(override(RUN, [change]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.lrr=1", r"unknown setting 'optimizer\.lrr'; did you mean 'optimizer\.lr'\?"),
        ("zzz=1", r"unknown setting 'zzz'; known: folder, image, name"),
        ("doubled=3", "unknown setting 'doubled'"),
        ("optimizer.lr=fast", r'optimizer\.lr must be a number, not "fast"'),
        ("steps=1.5", "steps must be a whole number, not 1.5"),
        ("steps=true", "steps must be a whole number, not true"),
        ("shuffle=1", "shuffle must be true or false, not 1"),
        ("precision=fp8", 'precision must be one of fp32, bf16, not "fp8"'),
        ("optimizer.clip=much", r'optimizer\.clip must be a number or none, not "much"'),
        ("optimizer.betas=0.5,x", r'optimizer\.betas\[1\] must be a number, not "x"'),
        ("image=vit", r"'image' is a group of settings: set one of image\.kind, image\.channels"),
        ("optimizer.lr.x=1", r"'optimizer\.lr' has no settings inside"),
        ("optimizer.lr=-1", r"lr must be above 0, not -1"),
        ("optimizer.lr=NaN", r"optimizer\.lr must be a finite number, not NaN"),
        ("optimizer.betas=0.5,Infinity,0", r"optimizer\.betas\[1\] must be a finite number, not Infinity"),
        ("steps", "'steps' is no setting: write name=value"),
    ],
)
def test_a_mistake_names_the_setting(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(RUN, [change])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "x", "optimiser": {}}, "unknown setting 'optimiser'; did you mean 'optimizer'"),
        (
            {"name": "x", "optimizer": {"beta": 1}},
            r"unknown setting 'optimizer\.beta'; did you mean 'optimizer\.betas'",
        ),
        ({"name": "x", "image": {"kind": "grid", "size": [1, 1]}}, r"unknown setting 'image\.size'"),
        ({"name": "x", "image": {"size": [1, 2, 3]}}, r"image\.size must be 2 values, not 3"),
        ({"name": "x", "optimizer": 3}, "optimizer must be a group of settings, not 3"),
        ({}, "setting 'name' is missing"),
    ],
)
def test_a_mistake_in_a_file_names_the_setting(data: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(Run, data)


def test_a_group_of_settings_that_is_optional_can_be_cleared() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Augment:
        flip: float = 0.5

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        augment: Augment | None = Augment()
        always: Augment = Augment()

    assert override(Outer(), ["augment=none"]).augment is None
    with pytest.raises(UserError, match="'always' is a group of settings"):
        override(Outer(), ["always=none"])


def test_the_end_of_a_path_names_a_setting() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Inner:
        lr: float = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        optimizer: Inner = Inner()
        other: Inner = Inner()

    @dataclass(frozen=True, kw_only=True)
    class Run:
        training: Outer = Outer()

    assert override(Run(), ["optimizer.lr=0.5"]).training == Outer(optimizer=Inner(lr=0.5))
    with pytest.raises(UserError, match=r"training\.optimizer\.lr or training\.other\.lr"):
        override(Run(), ["lr=0.5"])
    with pytest.raises(UserError, match="unknown setting 'rate'"):
        override(Run(), ["rate=0.5"])
    for misspelt in ("optimiser.lr", "trainning.optimizer.lr"):
        with pytest.raises(UserError, match=r"did you mean 'training\.optimizer\.lr'"):
            override(Run(), [f"{misspelt}=0.5"])
