"""Reads the package as text: its modules, what they import, how long they are. Nothing is executed."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/alignfuse"

Function = ast.FunctionDef | ast.AsyncFunctionDef
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Module(NamedTuple):
    """One source file: dotted name, path inside the package, text and syntax tree."""

    name: str
    path: str
    text: str
    tree: ast.Module


class Import(NamedTuple):
    """One imported name: `module` as written in full, with the name taken from it where the name is a module or not."""

    target: str
    line: int


def parse(text: str, path: str) -> Module:
    """The module that stands at `path` inside the package."""
    parts = Path(path).with_suffix("").parts
    name = ".".join(("alignfuse", *(parts[:-1] if parts[-1] == "__init__" else parts)))
    return Module(name, path, text, ast.parse(text))


def modules() -> list[Module]:
    """Every module of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [parse(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE).as_posix()) for file in files]


def imports(module: Module) -> Iterator[Import]:
    """All imports of a module wherever they stand, `from a import b` as `a.b`, relative ones resolved."""
    package = module.name if module.path.endswith("__init__.py") else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            argument = node.args[0]
            target = argument.value if isinstance(argument, ast.Constant) else "(computed)"
            yield Import(str(target), node.lineno)


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of the lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    return lines


def code_lines(module: Module) -> set[int]:
    """Numbers of the lines that hold code: no docstrings, comments or blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(module.tree)


def functions(module: Module) -> Iterator[tuple[Function, int]]:
    """Every function, nested ones too, with its lines of code."""
    lines = code_lines(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node, len(lines & set(range(first, (node.end_lineno or first) + 1)))
