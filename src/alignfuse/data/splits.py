"""Which records train, and which are held out."""

import hashlib
import logging
from collections.abc import Iterable, Sequence

from alignfuse.data.records import Record
from alignfuse.errors import UserError
from alignfuse.wording import counted

# Spellings of the usual splits. `restval` is the part of COCO's validation images that Karpathy's split trains on.
SPELLINGS = {
    "train": "train",
    "training": "train",
    "restval": "train",
    "val": "val",
    "validation": "val",
    "valid": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


logger = logging.getLogger(__name__)

HELD_OUT = 0.05  # share of the images that are kept for validation where the data has no splits


def split_records(records: Iterable[Record], *, held_out: float = HELD_OUT) -> dict[str, list[Record]]:
    """Records by split, in data order: "train", "val", "test" and whatever else the data names.

    A split column is honoured as it stands; a record without a value then belongs to "train". Where no record has a
    split, the share `held_out` (0 to 1) becomes "val" by a hash of the id: the same images whatever else the data
    holds, at least one of several, and files of one id always together.
    """
    records = list(records)
    if any(record.split is not None for record in records):
        names = [_canonical(record.split) for record in records]
    else:
        held = _held_out({record.id for record in records}, held_out)
        names = ["val" if record.id in held else "train" for record in records]
    splits: dict[str, list[Record]] = {}
    for name, record in zip(names, records, strict=True):
        splits.setdefault(name, []).append(record)
    return splits


def choose_split(
    records: Sequence[Record], name: str | None = None, *, held_out: float = HELD_OUT
) -> tuple[str, list[Record]]:
    """One split and what it is called: the one named, "all" of them, or without a name test, else val.

    Data without splits has the parts that `split_records` makes of it: a model is measured with the share `held_out`
    that it was trained with. A file without splits may be a test set: "test" is then all of it, which is said. Raises
    UserError for a split that is not there.
    """
    if name == "all":
        return name, list(records)
    splits = split_records(records, held_out=held_out)
    chosen = _canonical(name) if name is not None else next((s for s in ("test", "val") if s in splits), "test")
    divided = any(record.split is not None for record in records)
    if name is not None and chosen == "test" and not divided:
        logger.warning("the data has no split column: all %s are taken as test", counted(len(records), "image"))
        return chosen, list(records)
    if chosen not in splits:
        found = ", ".join(f"{split} ({counted(len(members), 'image')})" for split, members in splits.items())
        raise UserError(
            f"no split {chosen!r} in the data{'' if divided else ', which has no split column'}; it holds {found}, and "
            "all"
        )
    return chosen, splits[chosen]


def _canonical(split: str | None) -> str:
    return "train" if split is None else SPELLINGS.get(split.lower(), split)


def _held_out(ids: set[str], share: float) -> set[str]:
    if share == 0 or len(ids) < 2:
        return set()
    places = {identity: _place(identity) for identity in ids}
    return {identity for identity, place in places.items() if place < share} or {min(ids, key=places.__getitem__)}


def _place(identity: str) -> float:
    """A number in [0, 1) that depends on the id alone."""
    return int.from_bytes(hashlib.sha256(identity.encode(errors="surrogatepass")).digest()[:6]) / 2**48
