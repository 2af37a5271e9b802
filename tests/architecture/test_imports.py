"""Imports go one way, from parts to wholes; imports inside functions count."""

import sys

import pytest

from tests.architecture.source import Module, imports, modules, parse

# Who may import what of this package; a prefix covers what lies below it. The longest key that fits a module counts.
INSIDE = {
    "alignfuse": {"api"},
    "alignfuse.__main__": {"cli"},
    "alignfuse.errors": set(),
    "alignfuse.config": {"errors"},
    "alignfuse.files": {"errors"},
    "alignfuse.wording": set(),
    "alignfuse.console": set(),
    "alignfuse.blocks": {"blocks"},
    "alignfuse.objectives": {"objectives", "blocks.tokens"},
    "alignfuse.state": {"state", "blocks.tokens"},
    "alignfuse.models": {"models", "blocks"},
    "alignfuse.metrics": {"metrics", "errors"},
    "alignfuse.systems": {
        "systems", "models", "blocks", "objectives", "state", "data.batch", "errors",
        "training.distributed.gather", "training.distributed.first_row",
    },
    "alignfuse.systems.protocols": {"blocks.tokens", "objectives", "data.batch"},
    "alignfuse.data": {"data", "blocks.tokens", "config", "files", "errors", "wording"},
    "alignfuse.data.batch": {"blocks.tokens"},
    "alignfuse.tasks": {
        "tasks", "blocks", "state", "systems.protocols", "data.batch", "objectives", "metrics", "errors", "wording",
    },
    "alignfuse.training": {
        "training", "systems.protocols", "systems.draws", "data", "blocks.tokens", "config", "files", "errors",
        "wording",
    },
    "alignfuse.search": {
        "search", "tasks", "metrics", "systems.protocols", "blocks.tokens", "data", "config", "files", "errors",
        "wording",
    },
    "alignfuse.convert": {
        "convert", "models", "systems", "blocks", "state", "data", "training.checkpoint", "config", "files", "errors",
        "wording",
    },
    "alignfuse.world": {"world", "files", "errors"},
    "alignfuse.report": {"report", "data", "tasks", "metrics", "errors"},
    "alignfuse.recipes": {""},
    "alignfuse.api": {""},
    "alignfuse.cli": {""},
}  # fmt: skip
WHOLES = ("alignfuse", "recipes", "api", "cli", "__main__")  # no part imports one of these

# Who may import nothing beyond these, the standard library aside.
OUTSIDE = {
    "alignfuse.errors": set(),
    "alignfuse.blocks": {"torch", "jaxtyping"},
    "alignfuse.objectives": {"torch", "jaxtyping"},
    "alignfuse.state": {"torch", "jaxtyping"},
    "alignfuse.models": {"torch", "jaxtyping"},
    "alignfuse.systems": {"torch", "jaxtyping"},
    "alignfuse.tasks": {"torch", "jaxtyping", "numpy"},
    "alignfuse.metrics": {"torch", "jaxtyping", "numpy"},
}


def rule(name: str, table: dict[str, set[str]]) -> set[str] | None:
    """The entry of the longest key that is the module or stands above it."""
    keys = [key for key in table if f"{name}.".startswith(f"{key}.") and (key != "alignfuse" or name == key)]
    return table[max(keys, key=len)] if keys else None


def violations(module: Module) -> list[str]:
    """Imports that the rules do not allow, each with its line."""
    inside, outside = rule(module.name, INSIDE), rule(module.name, OUTSIDE)
    found = []
    for target, line in imports(module):
        where = f"{module.path}:{line} imports {target}"
        top, _, below = target.partition(".")
        if top == "alignfuse":
            if inside is None or not any(below == part or below.startswith(f"{part}.") or not part for part in inside):
                found.append(where)
        elif outside is not None and top not in outside | sys.stdlib_module_names:
            found.append(where)
    return found


def test_the_package_keeps_the_directions() -> None:
    everything = modules()
    assert len(everything) > 15
    assert [line for module in everything for line in violations(module)] == []


def test_every_module_has_a_rule() -> None:
    assert [module.path for module in modules() if rule(module.name, INSIDE) is None] == []


def test_no_part_may_know_a_whole() -> None:
    allowed = {key: parts for key, parts in INSIDE.items() if not key.endswith(WHOLES)}
    assert [key for key, parts in allowed.items() if parts & {"", *WHOLES}] == []


@pytest.mark.parametrize(
    ("path", "code", "allowed"),
    [
        ("blocks/a.py", "from alignfuse.blocks.tokens import Text", True),
        ("blocks/a.py", "def f():\n    import numpy", False),
        ("blocks/a.py", "from alignfuse.objectives import contrastive", False),
        ("blocks/a.py", "import math, torch.nn.functional", True),
        ("objectives/a.py", "from ..state.queue import FeatureQueue", False),
        ("objectives/a.py", "from .contrastive import itc", True),
        ("systems/a.py", "from alignfuse.training.distributed import gather", True),
        ("systems/a.py", "from alignfuse.training.distributed import rank", False),
        ("systems/a.py", "from alignfuse.training import distributed", False),
        ("systems/a.py", "from alignfuse.data.batch import Batch", True),
        ("systems/a.py", "from alignfuse.data.tokenizer import Tokenizer", False),
        ("systems/a.py", "if TYPE_CHECKING:\n    import alignfuse.tasks.retrieval", False),
        ("tasks/a.py", "from alignfuse.systems.protocols import Embeds", True),
        ("tasks/a.py", "from alignfuse.systems.albef import ALBEF", False),
        ("training/loop.py", "from alignfuse.systems.protocols import Step", True),
        ("training/loop.py", "import importlib\nimportlib.import_module('alignfuse.systems.albef')", False),
        ("data/a.py", "from alignfuse import api", False),
        ("data/a.py", "import pyarrow", True),
        ("cli.py", "from alignfuse.systems.albef import ALBEF", True),
    ],
)
def test_the_rules_see_what_they_should(path: str, code: str, allowed: bool) -> None:
    assert (violations(parse(code, path)) == []) is allowed
