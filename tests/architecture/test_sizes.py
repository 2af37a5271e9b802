"""No file holds two ideas: sizes in lines of code, without docstrings, comments and blank lines."""

from tests.architecture.source import code_lines, functions, modules, parse

FILES = {"systems": 200, "objectives": 120, "blocks": 150}
FUNCTION = 50


def test_files_hold_one_idea() -> None:
    sizes = {module.path: len(code_lines(module)) for module in modules()}
    limits = {path: FILES[path.split("/")[0]] for path in sizes if path.split("/")[0] in FILES}
    assert limits
    too_long = {path: (sizes[path], limit) for path, limit in limits.items() if sizes[path] > limit}
    assert not too_long, f"(lines of code, limit): {too_long}"


def test_functions_fit_on_a_page() -> None:
    sizes = {f"{module.path}:{node.lineno} {node.name}": n for module in modules() for node, n in functions(module)}
    assert sizes
    assert {where: n for where, n in sizes.items() if n > FUNCTION} == {}


def test_only_code_counts() -> None:
    text = '''"""Docstring

of three lines."""

import os  # 1


# a comment
@decorator  # 2
def f(
    a: int,
) -> str:
    """One line."""
    text = """
    not a docstring
    """

    def inner() -> None:  # 9
        pass

    return text
'''
    module = parse(text, "blocks/some.py")
    assert len(code_lines(module)) == 11
    assert {node.name: n for node, n in functions(module)} == {"f": 10, "inner": 2}
