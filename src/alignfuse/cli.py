"""The command line: parse, call, print.

Results go to stdout, messages and progress to stderr. What a command needs is imported when it runs, so that `--help`
answers at once.
"""

import io
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from alignfuse import __version__
from alignfuse.console import Messages, progress, show, speaks
from alignfuse.errors import UserError
from alignfuse.wording import counted

if TYPE_CHECKING:
    from alignfuse.recipes.pretrain import DataConfig

logger = logging.getLogger("alignfuse")

app = typer.Typer(
    name="alignfuse",
    help="Pretrain, measure and use vision-language models on your own image-text pairs.",
    epilog="Start with: alignfuse demo",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_group = typer.Typer(help="Look at image-text pairs before training on them.", no_args_is_help=True)
evaluate_group = typer.Typer(help="Measure a trained model.", no_args_is_help=True)
convert_group = typer.Typer(help="Make a model directory from a foreign checkpoint.", no_args_is_help=True)
world_group = typer.Typer(help="Generated scenes with exact captions: data to try things on.", no_args_is_help=True)

# --- options that several commands share ------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option(help="auto, cpu, or an accelerator by its name in torch.")]
Model = Annotated[Path, typer.Option(help="Directory of a run, or its best/.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left there.")]
Trust = Annotated[bool, typer.Option("--trust", help="Open pickles that hold more than tensors: they can run code.")]
Score = Annotated[
    Literal["itm", "itc+itm", "itc"], typer.Option(help="Order by the match score, by both, or without re-ranking.")
]
KINDS = "CSV, TSV, JSON, JSONL, parquet, tar, or a folder with one of them"
Pairs = Annotated[list[Path], typer.Argument(help=f"Image-text pairs: {KINDS}; several are put together.")]
Data = Annotated[list[Path], typer.Option("--data", help=f"Image-text pairs: {KINDS}; can be given again.")]
Root = Annotated[Path | None, typer.Option(help="Folder that image paths are relative to; else that of the file.")]
ImageField = Annotated[str | None, typer.Option(help="Column or field of the image path.")]
CaptionField = Annotated[str | None, typer.Option(help="Column or field of the caption, such as captions.de.")]
IdField = Annotated[str | None, typer.Option(help="Column or field of the image id.")]
SplitField = Annotated[str | None, typer.Option(help="Column or field that says train, val or test.")]


@app.callback()
def start(
    debug: Annotated[bool, typer.Option("--debug", "-v", help="More messages; tracebacks for all errors.")] = False,
) -> None:
    """Settings of all commands."""
    logger.setLevel(logging.DEBUG if debug else logging.INFO if speaks() else logging.ERROR)


# --- training ---------------------------------------------------------------------------------------------------------


@app.command(epilog="Example: alignfuse demo --out runs/demo --quick")
def demo(
    out: Annotated[Path, typer.Option(help="Directory of the run and its report.html.")] = Path("runs/demo"),
    quick: Annotated[bool, typer.Option("--quick", help="The same path in few steps.")] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Train for so long, 7 if not given; not with --quick or --resume.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a demo in --out was stopped.")] = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The whole path on generated scenes: pretrain, evaluate, search, and a report to look at."""
    from alignfuse.recipes import demo as recipe
    from alignfuse.recipes.demo_config import DemoConfig
    from alignfuse.recipes.demo_config import quick as quick_config

    if minutes is not None and (quick or resume):
        raise UserError("--minutes decides how long a new demo trains: leave out --quick and --resume")
    config = quick_config() if quick else DemoConfig() if minutes is None else DemoConfig(minutes=minutes)
    result = recipe.demo(out, config, resume=resume, overwrite=overwrite, device=device)
    show(result.to_dict(), str(result), as_json)


@app.command(epilog="Example: alignfuse pretrain albef --data pairs.csv --out runs/mine --size small --set epochs=10")
def pretrain(
    system: Annotated[Literal["albef"] | None, typer.Argument(help="What to pretrain.")] = None,
    data: Annotated[list[Path] | None, typer.Option(help=f"Image-text pairs: {KINDS}; can be given again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run.")] = None,
    size: Annotated[Literal["toy", "small", "base"] | None, typer.Option(help="small if not given.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="A setting: optimizer.lr=1e-4; repeat.")] = None,
    init: Annotated[Path | None, typer.Option(help="Start from a run or an official checkpoint.")] = None,
    init_text: Annotated[Path | None, typer.Option(help="Start the text side from a BERT.")] = None,
    init_image: Annotated[Path | None, typer.Option(help="Start the image side from a ViT or EfficientNet.")] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Parts a source lacks start anew.")] = False,
    trust: Trust = False,
    vocab: Annotated[Path | None, typer.Option(help="vocab.txt or tokenizer.json; else one is trained.")] = None,
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    split_field: SplitField = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run, by its own settings.")] = None,
    overwrite: Overwrite = False,
    yes: Annotated[bool, typer.Option("--yes", help="Train a large model on a CPU.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Pretrain on your image-text pairs, or go on where a run stopped."""
    from alignfuse.config import override
    from alignfuse.recipes import albef
    from alignfuse.recipes.pretrain import StartConfig, execute, stored

    if resume is not None:
        places = (system, data, out, root, image_field, caption_field, id_field, split_field)
        if any((*places, size, changes, init, init_text, init_image, vocab, allow_missing, trust, overwrite)):
            raise UserError("--resume takes all from the run: nothing but --yes, --device and --json goes with it")
        run, out = stored(resume), resume
    elif system and data and out:
        pairs = _data_config(data, root, image_field, caption_field, id_field, split_field)
        whole, text, image, words = (_absolute(path) for path in (init, init_text, init_image, vocab))
        begin = StartConfig(
            run=whole, text=text, image=image, vocabulary=words, allow_missing=allow_missing, trust=trust
        )
        run = override(albef.pretrain(pairs, size=size or "small", start=begin), changes or [])
    else:
        raise UserError("give a system, --data and --out: alignfuse pretrain albef --data pairs.csv --out runs/mine")
    result = execute(run, out, resume=resume is not None, overwrite=overwrite, yes=yes, device=device)
    best = "" if result.best is None else f", best mean recall {result.best:.1f} %"
    show({"out": str(out), **result._asdict()}, f"{out}: {counted(result.step, 'step')}{best}", as_json)
    if not result.finished:
        logger.info("go on with: alignfuse pretrain --resume %s", out)
        raise typer.Exit(130)


@convert_group.command("albef", epilog="Example: alignfuse convert albef ALBEF.pth runs/albef --vocab vocab.txt")
def convert_albef(
    file: Annotated[Path, typer.Argument(help="Official checkpoint, of pretraining or retrieval.")],
    out: Annotated[Path, typer.Argument(help="Directory to write, which alignfuse.load opens.")],
    vocab: Annotated[Path | None, typer.Option(help="vocab.txt of bert-base-uncased; not in the file.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Height and width in pixels; else its own.")] = None,
    trust: Trust = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a model directory from an official ALBEF checkpoint, with its teacher and queue."""
    from dataclasses import asdict

    from alignfuse.convert.write import convert_albef as convert

    size = None if image_size is None else (image_size, image_size)
    report = convert(file, out, vocab=vocab, image_size=size, trust=trust, overwrite=overwrite)
    show(asdict(report), str(report), as_json)


# --- data -------------------------------------------------------------------------------------------------------------


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

    with progress() as bar:
        report = check(
            paths,
            root=root,
            image_field=image_field,
            caption_field=caption_field,
            id_field=id_field,
            split_field=split_field,
            all_images=all_images,
            progress=lambda done, total: bar("opening images", "images", done, total),
        )
    show(report.to_dict(), str(report), as_json)
    if strict and report.problems:
        raise typer.Exit(1)


@app.command(epilog="Example: alignfuse vocab pairs.csv --out tokenizer.json --size 8000")
def vocab(
    paths: Pairs,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("tokenizer.json"),
    size: Annotated[int, typer.Option(min=100, help="Word pieces at most.")] = 10_000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Tell capitals from small letters.")] = False,
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    split_field: SplitField = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a WordPiece tokenizer on your training captions, in any script."""
    from alignfuse.data.tokenizer import Tokenizer, TokenizerConfig
    from alignfuse.files import require_new
    from alignfuse.recipes.pretrain import read_splits

    require_new(out, remedy="choose another --out, or replace it with --overwrite", overwrite=overwrite)
    data = _data_config(paths, root, image_field, caption_field, id_field, split_field)
    captions = [caption for record in read_splits(data).get("train", []) for caption in record.captions]
    tokenizer = Tokenizer.train(captions, size, TokenizerConfig(lower=not keep_case))
    tokenizer.save(out)
    result = {"file": str(out), "vocab_size": tokenizer.vocab_size, "captions": len(captions)}
    show(
        result,
        f"{out}: {counted(tokenizer.vocab_size, 'word piece')} from {counted(len(captions), 'caption')}",
        as_json,
    )


@world_group.command("export", epilog="Example: alignfuse world export scenes --count 1000 --format karpathy")
def world_export(
    out: Annotated[Path, typer.Argument(help="New or empty folder to write into.")],
    count: Annotated[int, typer.Option(min=1, help="Scenes for training; val and test get a tenth each.")] = 10_000,
    image_size: Annotated[int, typer.Option(min=16, help="Height and width of the pictures in pixels.")] = 32,
    layout: Annotated[str, typer.Option("--format", help="jsonl, csv, or the layout of a known data set.")] = "jsonl",
    seed: Annotated[int, typer.Option(help="Another seed gives another world.")] = 0,
    as_json: Json = False,
) -> None:
    """Write generated scenes as pictures and captions, in the file formats of real data sets."""
    from alignfuse.world.export import export, split_sizes
    from alignfuse.world.sampling import World

    with progress() as bar:
        files = export(
            out,
            split_sizes(count),
            world=World(seed=seed),
            image_size=image_size,
            format=layout,
            progress=lambda done, total: bar("painting", "images", done, total),
        )
    names = [str(file) for file in files]
    show({"files": names, "images": split_sizes(count)}, "\n".join(names), as_json)


# --- using a model ----------------------------------------------------------------------------------------------------


@evaluate_group.command(
    "retrieval", epilog="Example: alignfuse evaluate retrieval --model runs/mine --data pairs.csv --split val --k 128"
)
def evaluate_retrieval(
    model: Model,
    data: Data,
    split: Annotated[str | None, typer.Option(help="As the data names it, or all; else test, or val.")] = None,
    k: Annotated[int, typer.Option(min=1, help="Candidates of a query that are re-ranked.")] = 128,
    score: Score = "itm",
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    split_field: SplitField = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Recall of image-to-text and text-to-image retrieval, by ITC alone and re-ranked by ITM.

    Data without a split column: val and train are the parts that the pretraining of the model made of it.
    """
    from alignfuse.api import load
    from alignfuse.data.readers import read_pairs
    from alignfuse.data.splits import choose_split
    from alignfuse.recipes.pretrain import held_out_share
    from alignfuse.tasks.retrieval import RetrievalConfig

    pairs = read_pairs(
        data,
        root=root,
        image_field=image_field,
        caption_field=caption_field,
        id_field=id_field,
        split_field=split_field,
    )
    name, records = choose_split(pairs.records, split, held_out=held_out_share(model))
    config = RetrievalConfig(k=k, score=score)
    pipe = load(model, device=device)
    with progress() as bar:
        report = pipe.evaluate_retrieval(records, split=name, config=config, progress=lambda now: bar(*now[:4]))
    show(report.to_dict(), report.table(), as_json)


@app.command(epilog="Example: alignfuse embed photos --model runs/mine --out photos.index")
def embed(
    source: Annotated[Path, typer.Argument(help=f"A folder of images, or image-text pairs: {KINDS}.")],
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for embeddings.safetensors and ids.jsonl.")],
    texts: Annotated[bool, typer.Option("--texts", help="Embed the captions, not the images.")] = False,
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Unit vectors of images or captions, to search in."""
    from alignfuse.api import load
    from alignfuse.files import require_empty
    from alignfuse.search.sources import sources

    require_empty(out, remedy="choose another --out, or replace what is there with --overwrite", overwrite=overwrite)
    pipe = load(model, device=device)
    with progress() as bar:
        found = sources(
            source,
            texts=texts,
            root=root,
            image_field=image_field,
            caption_field=caption_field,
            id_field=id_field,
        )
        index = pipe.embed(found, progress=lambda now: bar(*now[:4]))
    index.save(out)
    count, width = index.vectors.shape
    result = {"out": str(out), "kind": index.kind, "count": count, "width": width, "model": index.model}
    show(result, f"{out}: {counted(count, f'{index.kind} embedding')}, {width} wide", as_json)


@app.command(epilog='Example: alignfuse search "a red boat" --model runs/mine --in photos.index')
def search(
    model: Model,
    place: Annotated[Path, typer.Option("--in", help="What embed wrote, a folder of images, or image-text pairs.")],
    text: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    image: Annotated[Path | None, typer.Option(help="Look for this image instead of a text.")] = None,
    texts: Annotated[bool, typer.Option("--texts", help="Search the captions of pairs, not their images.")] = False,
    k: Annotated[int, typer.Option(min=1, help="Results to show.")] = 10,
    score: Score = "itm",
    shortlist: Annotated[int, typer.Option(min=1, help="Best by ITC that are re-ranked.")] = 64,
    root: Root = None,
    image_field: ImageField = None,
    caption_field: CaptionField = None,
    id_field: IdField = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find images or texts: exact search, then re-ranking of the best."""
    from alignfuse.api import load, require_texts
    from alignfuse.search.sources import sources

    if (text is None) == (image is None):
        raise UserError('give one text or one --image to look for, as in: alignfuse search "a red boat" ...')
    if text is not None:
        require_texts([text])
    pipe = load(model, device=device)
    with progress() as bar:
        if (place / "ids.jsonl").is_file():
            index = pipe.open_index(place)
        else:
            found = sources(
                place,
                texts=texts,
                root=root,
                image_field=image_field,
                caption_field=caption_field,
                id_field=id_field,
            )
            index = pipe.embed(found, progress=lambda now: bar(*now[:4]))
        hits = pipe.search(text or image or "", index, k=k, score=score, shortlist=shortlist)
    lines = [
        f"{rank:>3}  {'' if hit.itm is None else f'itm {hit.itm:7.3f}  '}itc {hit.itc:6.3f}  "
        f"{hit.record.get('caption') or hit.record['image']}"
        for rank, hit in enumerate(hits, start=1)
    ]
    show([hit.to_dict() for hit in hits], "\n".join(lines), as_json)


@app.command(epilog='Example: alignfuse match boat.jpg "a red boat" "a green boat" --model runs/mine')
def match(
    image: Annotated[Path, typer.Argument(help="An image file.")],
    texts: Annotated[list[str], typer.Argument(help="Texts to compare it with.")],
    model: Model,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """How well texts fit an image: cosine, match score (logit), and the probability of a match."""
    from alignfuse.api import load, require_texts

    require_texts(texts)
    found = load(model, device=device).match([image], texts)
    rows = [{"text": text, **fit._asdict()} for text, fit in zip(texts, found, strict=True)]
    lines = [
        f"itc {fit.itc:6.3f}  itm {fit.itm:7.3f}  match {100 * fit.probability:5.1f} %  {text}"
        for text, fit in zip(texts, found, strict=True)
    ]
    show(rows, "\n".join(lines), as_json)


@app.command(epilog="Example: alignfuse version --json")
def version(as_json: Json = False) -> None:
    """Versions of AlignFuse and of what it runs on."""
    import platform

    import torch

    versions = {"alignfuse": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    show(versions, "\n".join(f"{name} {number}" for name, number in versions.items()), as_json)


# Groups are listed in the help after the commands of their own.
app.add_typer(evaluate_group, name="evaluate")
app.add_typer(data_group, name="data")
app.add_typer(convert_group, name="convert")
app.add_typer(world_group, name="world")


# --- inside -----------------------------------------------------------------------------------------------------------


def _data_config(
    paths: list[Path],
    root: Path | None,
    image_field: str | None,
    caption_field: str | None,
    id_field: str | None,
    split_field: str | None,
) -> "DataConfig":
    """Where the pairs are, independent of the folder that the command ran in: a run can be resumed from any."""
    from alignfuse.recipes.pretrain import DataConfig

    return DataConfig(
        paths=tuple(str(path.absolute()) for path in paths),
        root=_absolute(root),
        image_field=image_field,
        caption_field=caption_field,
        id_field=id_field,
        split_field=split_field,
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit code 2 and one line for what the user can mend, 130 after Ctrl-C."""
    handler = Messages()
    logger.addHandler(handler)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack a caption's letters, a file name be no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(arguments)
    except (UserError, OSError) as error:
        if logger.isEnabledFor(logging.DEBUG) or (isinstance(error, OSError) and error.strerror is None):
            raise
        text = error if isinstance(error, UserError) else error.strerror  # of a full disk no file is named
        if isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {text}"
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
