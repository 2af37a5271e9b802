"""What holds for all pages: commands that parse, settings and links that exist, tables that match the code."""

import re
from pathlib import Path

import pytest

from alignfuse.config import override
from alignfuse.recipes.albef import pretrain
from alignfuse.recipes.pretrain import DataConfig
from alignfuse.systems import protocols
from tests.architecture.source import PACKAGE
from tests.command_tree import COMMANDS
from tests.docs.markdown import PAGES, ROOT, commands, section, table

SHOWN = [(page, words) for page in PAGES for words in commands(page)]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SETTING = re.compile(r"(?:--set '?|`)([a-z_]+(?:\.[a-z_]+)*=[^'`\s]+)")


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=lambda value: getattr(value, "name", None) or " ".join(value))
def test_a_command_parses(page: Path, words: list[str]) -> None:
    arguments = [word for word in words[1:] if word not in ("--debug", "...")]
    if arguments in ([], ["--help"]):
        return
    path = next((path for path in COMMANDS if tuple(arguments[: len(path)]) == path), None)
    assert path is not None, f"{page.name}: no such command: {' '.join(words)}"
    COMMANDS[path].make_context(path[-1], arguments[len(path) :])  # raises for unknown or missing options


def test_commands_were_found() -> None:
    assert {page.name for page, _ in SHOWN} >= {"guide.md", "training.md", "starting-weights.md", "README.md"}
    assert len(SHOWN) > 20


def test_the_readme_lists_the_commands() -> None:
    rows = table(section(ROOT / "README.md", "Commands"))
    assert sorted(rows) == sorted(f"alignfuse {' '.join(path)}" for path in COMMANDS)


def anchor(heading: str) -> str:
    """The name by which a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, place in LINK.findall(page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}, which is not there"
        if place:
            headings = [anchor(heading) for heading in HEADING.findall(file.read_text(encoding="utf-8"))]
            assert place in headings, f"{page.name} links to {target}#{place}; there are {headings}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            links = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if target]
            waiting += [(page.parent / target).resolve() for target in links]
    assert [page.name for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_exist(page: Path) -> None:
    run = pretrain(DataConfig(paths=("pairs.csv",)), size="toy")
    for change in SETTING.findall(page.read_text(encoding="utf-8")):
        if not change.startswith(("name=", "training.weights.name=", "batchsize=")):  # a placeholder; a mistake shown
            override(run, [change])


def test_the_verbs_of_the_architecture() -> None:
    rows = table(section(ROOT / "docs/architecture.md", "Verbs"))
    for name, cells in rows.items():
        own = {verb for verb in vars(getattr(protocols, name)) if not verb.startswith("_")}
        assert set(re.findall(r"`(\w+)`", cells[0])) == own, name


def test_the_calls_of_a_step() -> None:
    rows = table(section(ROOT / "docs/architecture.md", "One step"))
    assert set(rows) == {call for call in vars(protocols.System) if not call.startswith("_")} - {"model"}


def test_the_map_holds_every_package() -> None:
    rows = table(section(ROOT / "docs/architecture.md", "The map"))
    named = {name.strip("` ") for row in rows for name in row.split(", ")}
    folders = {folder.name for folder in PACKAGE.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
    assert named == folders | {"api", "cli"}
