"""Write the Tux Paint stamps as image-text pairs: OUT/pairs.jsonl, with the split train or test.

    python examples/stamps/prepare.py --out stamps
    python examples/stamps/prepare.py --out stamps --source DIR --extra DIR

DIR of `--source` is a tree of stamps, as the Debian package tuxpaint-stamps-default installs it (the default): drawings
as SVG or PNG, each beside a text file whose first line is an English description. A stamp is cut to what is not
transparent. SVG drawings need rsvg-convert (Debian: librsvg2-bin); without it they are left out. DIR may also be a
folder with captions.jsonl: rows with image, caption, split.

A tenth of the stamps is for validation and a tenth for testing, by a hash of the name. Nothing is chosen by validation
here, so both are held out as test. `--extra`: a folder with captions.jsonl whose images are all trained on; what
DIR/near_duplicates*.json of `--source` says is nearly a stamp (its key "oca") is left out.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TypedDict

from PIL import Image

STAMPS = Path("/usr/share/tuxpaint/stamps")
RENDERED = 448  # longest side of a drawing in pixels
VARIANTS = ("_mirror", "_flip")  # the same stamp again, turned over


class Row(TypedDict):
    """One line of pairs.jsonl."""

    image: str
    caption: str
    split: str


def from_tree(source: Path, out: Path) -> Iterator[Row]:
    """The stamps of a tree, written as PNG under OUT/images."""
    render = shutil.which("rsvg-convert")
    skipped = 0
    for text in sorted(source.rglob("*.txt")):
        lines = text.read_text(encoding="utf-8").splitlines()
        drawing, pixels = text.with_suffix(".svg"), text.with_suffix(".png")
        if not lines or not lines[0].strip() or text.stem.endswith(VARIANTS):
            continue
        if drawing.is_file() and render:
            size = ["--width", str(RENDERED), "--height", str(RENDERED), "--keep-aspect-ratio"]
            found = Image.open(
                BytesIO(subprocess.run([render, *size, drawing], check=True, capture_output=True).stdout)
            )
        elif pixels.is_file():
            found = Image.open(pixels)
        else:
            skipped += drawing.is_file()
            continue
        name = text.relative_to(source).with_suffix("").as_posix()
        file = out / "images" / f"{name.replace('/', '_')}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        stamp = found.convert("RGBA")
        stamp.crop(stamp.getchannel("A").getbbox()).save(file)
        yield Row(image=f"images/{file.name}", caption=lines[0].strip(), split="test" if held_out(name) else "train")
    if skipped:
        print(f"left out {skipped} SVG drawings: there is no rsvg-convert (Debian: librsvg2-bin)")


def held_out(name: str) -> bool:
    """A fifth of the stamps, by name."""
    return int(hashlib.sha1(name.encode()).hexdigest(), 16) % 100 < 20


def from_folder(source: Path) -> Iterator[Row]:
    """The rows of a captions.jsonl."""
    for line in (source / "captions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        split = "train" if row["split"] == "train" else "test"
        yield Row(image=str((source / row["image"]).resolve()), caption=row["caption"], split=split)


def from_extra(extra: Path, source: Path) -> Iterator[Row]:
    """The rows of another folder, all for training, but what is nearly a stamp."""
    lists = source.glob("near_duplicates*.json")
    near = {str((extra / pair["oca"]).resolve()) for file in lists for pair in json.loads(file.read_text("utf-8"))}
    for row in from_folder(extra):
        if row["image"] not in near:
            yield Row(image=row["image"], caption=row["caption"], split="train")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write OUT/pairs.jsonl and say how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", type=Path, default=STAMPS)
    parser.add_argument("--extra", type=Path, action="append", default=[])
    options = parser.parse_args(arguments)
    for folder in (options.source, *options.extra):
        if not folder.is_dir():
            parser.error(f"{folder}: no such folder")
    options.out.mkdir(parents=True, exist_ok=True)
    is_folder = (options.source / "captions.jsonl").is_file()
    rows = list(from_folder(options.source) if is_folder else from_tree(options.source, options.out))
    if not rows:
        parser.error(f"{options.source}: neither captions.jsonl nor stamps with a text file beside them")
    for extra in options.extra:
        rows += from_extra(extra, options.source)
    file = options.out / "pairs.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    counts = Counter(row["split"] for row in rows)
    print(f"{file}: {len(rows)} images, {counts['train']} for training, {counts['test']} held out")


if __name__ == "__main__":
    main()
