"""What a user installs: a light import, a core that needs no extra, pins that are complete."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
OPTIONAL = ["transformers", "pyarrow", "simplejpeg", "tensorboard", "beartype", "pytest"]
BUILD_OF_TORCH = ("nvidia-", "cuda-", "triton")  # follow from the version of torch, differ between its builds


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    prefix = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
    result = subprocess.run([sys.executable, "-c", prefix + code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["alignfuse", "alignfuse.cli"])
def test_import_is_quick_and_light(name: str) -> None:
    code = f"import time, {name}; print(time.process_time(), 'torch' in sys.modules)"
    seconds, heavy = python(code).split()
    assert float(seconds) < 3  # of processor time, so that a busy machine changes nothing
    assert heavy == "False"


def test_no_module_needs_an_extra_to_be_imported() -> None:
    code = f"""
import importlib, json
asked = []
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {OPTIONAL!r}:
            asked.append(name)
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
for name in {[module.name for module in modules()]!r}:
    importlib.import_module(name)
print(json.dumps(asked))
"""
    assert json.loads(python(code)) == []


def closure() -> dict[str, tuple[str, list[Requirement]]]:
    """Every package that the core and all extras bring here: its version, and what is asked of it."""
    asked = [Requirement(line) for line in PROJECT["dependencies"]]
    asked += [Requirement(line) for name, lines in EXTRAS.items() if name != "all" for line in lines]
    found: dict[str, tuple[str, list[Requirement]]] = {}
    seen: set[tuple[str, str]] = set()
    while asked:
        requirement = asked.pop()
        name = canonicalize_name(requirement.name)
        if name.startswith(BUILD_OF_TORCH):
            continue
        installed = distribution(requirement.name)
        found.setdefault(name, (installed.version, []))[1].append(requirement)
        for extra in ["", *requirement.extras]:
            if (name, extra) not in seen:
                seen.add((name, extra))
                below = [Requirement(line) for line in installed.requires or []]
                asked += [r for r in below if (r.marker.evaluate({"extra": extra}) if r.marker else not extra)]
    return found


def test_pins_are_complete_and_fit() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    packages = closure()
    assert pins.keys() == packages.keys()
    unfit = [
        str(asked)
        for name, (_, all_asked) in packages.items()
        for asked in all_asked
        if pins[name] not in asked.specifier
    ]
    assert unfit == []


def test_all_means_every_extra_a_user_may_want() -> None:
    wanted = set(EXTRAS) - {"all", "parity", "dev"}
    assert set(Requirement(EXTRAS["all"][0]).extras) == wanted


def test_the_command_exists() -> None:
    entry = PROJECT["scripts"]["alignfuse"]
    module, _, name = entry.partition(":")
    assert python(f"import {module}; print(callable({module}.{name}))").strip() == "True"
