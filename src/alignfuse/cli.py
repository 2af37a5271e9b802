"""The command line: parse, call, print.

Results go to stdout, messages and progress to stderr. What a command needs is imported when it runs, so that `--help`
answers at once.
"""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from alignfuse import __version__
from alignfuse.console import Messages, progress, show
from alignfuse.errors import UserError

logger = logging.getLogger("alignfuse")

SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="alignfuse",
    help="Pretrain, measure and use vision-language models on your own image-text pairs.",
    epilog="Start with: alignfuse demo",
    context_settings=SETTINGS,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_group = typer.Typer(help="Look at image-text pairs before training on them.", no_args_is_help=True)
world_group = typer.Typer(help="Generated scenes with exact captions: data to try things on.", no_args_is_help=True)
app.add_typer(data_group, name="data")
app.add_typer(world_group, name="world")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Pairs = Annotated[
    list[Path], typer.Argument(help="Files or folders: CSV, TSV, JSON, JSONL, parquet, tar, or a folder of images.")
]
Root = Annotated[Path | None, typer.Option(help="Folder that image paths are relative to; by default the file's own.")]
ImageField = Annotated[str | None, typer.Option(help="Column or field of the image path.")]
CaptionField = Annotated[str | None, typer.Option(help="Column or field of the caption, such as captions.de.")]
IdField = Annotated[str | None, typer.Option(help="Column or field of the image id.")]
SplitField = Annotated[str | None, typer.Option(help="Column or field that says train, val or test.")]


@app.callback()
def start(
    debug: Annotated[
        bool, typer.Option("--debug", "-v", help="More messages, and tracebacks for every error.")
    ] = False,
) -> None:
    """Settings of all commands."""
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


@app.command(epilog="Example: alignfuse version --json")
def version(as_json: Json = False) -> None:
    """Versions of AlignFuse and of what it runs on."""
    import platform

    import torch

    versions = {"alignfuse": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    show(versions, "\n".join(f"{name} {number}" for name, number in versions.items()), as_json)


@data_group.command("check", epilog="Example: alignfuse data check pairs.csv --root images --caption-field title")
def data_check(
    paths: Pairs,
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    split_field: SplitField = None,
    all_images: Annotated[bool, typer.Option("--all-images", help="Open every image instead of a sample.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End with exit code 1 if there is any problem.")] = False,
    as_json: Json = False,
) -> None:
    """What is understood of your image-text pairs, and what is wrong with which row."""
    from alignfuse.data.check import check

    with progress("opening images", "images") as advance:
        report = check(
            paths,
            root=root,
            image_field=image_field,
            caption_field=caption_field,
            id_field=id_field,
            split_field=split_field,
            all_images=all_images,
            progress=advance,
        )
    show(report.to_dict(), str(report), as_json)
    if strict and report.problems:
        raise typer.Exit(1)


@world_group.command("export", epilog="Example: alignfuse world export scenes --count 1000 --format karpathy")
def world_export(
    out: Annotated[Path, typer.Argument(help="New or empty folder to write into.")],
    count: Annotated[int, typer.Option(min=1, help="Scenes for training; val and test get a tenth each.")] = 10_000,
    image_size: Annotated[int, typer.Option(min=16, help="Height and width of the pictures in pixels.")] = 32,
    layout: Annotated[str, typer.Option("--format", help="jsonl, karpathy, coco or albef.")] = "jsonl",
    seed: Annotated[int, typer.Option(help="Another seed gives another world.")] = 0,
    as_json: Json = False,
) -> None:
    """Write generated scenes as pictures and captions, in the file formats of real data sets."""
    from alignfuse.world.export import export, split_sizes
    from alignfuse.world.sampling import World

    with progress("painting", "images") as advance:
        files = export(
            out, split_sizes(count), world=World(seed=seed), image_size=image_size, format=layout, progress=advance
        )
    names = [str(file) for file in files]
    show({"files": names, "images": split_sizes(count)}, "\n".join(names), as_json)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit code 2 and one line for what the user can mend, 130 after Ctrl-C."""
    handler = Messages()
    logger.addHandler(handler)
    try:
        app(arguments)
    except (UserError, OSError) as error:
        if logger.isEnabledFor(logging.DEBUG) or (isinstance(error, OSError) and error.filename is None):
            raise
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
