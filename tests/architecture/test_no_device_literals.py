"""One module knows what accelerators are called; the rest takes a device as an argument and so runs on any."""

import ast
import re

import pytest

from tests.architecture.source import Module, docstring_lines, modules, parse

DEVICE_MODULES = {"training/distributed.py"}
NAMES = re.compile(r"(cuda|mps|xpu)(:\d+)?|nccl")


def literals(module: Module) -> list[str]:
    """Device names as literals, and calls such as `x.cuda()`."""
    silent = docstring_lines(module.tree)
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = bool(NAMES.fullmatch(node.value)) and node.lineno not in silent
        else:
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
        if named:
            found.append(f"{module.path}:{node.lineno} {ast.unparse(node)}")
    return found


def test_no_device_is_hard_coded() -> None:
    others = [module for module in modules() if module.path not in DEVICE_MODULES]
    assert [line for module in others for line in literals(module)] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("x.to('cuda')", 1),
        ("d = 'cuda:0' if ok else 'cpu'", 1),
        ("x = x.cuda()", 1),
        ("init(backend='nccl')", 1),
        ("'''cuda'''\nx.to(device)", 0),
        ("x.to('cpu')", 0),
        ("help = 'a device such as cuda:1'", 0),
    ],
)
def test_literals_are_seen(code: str, count: int) -> None:
    assert len(literals(parse(code, "api.py"))) == count
