"""Rows become records: fields are found, paths resolved, captions cleaned, rows of one image merged."""

import os
import posixpath
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from alignfuse.data.readers.fields import USUAL_NAMES, Fields, Role
from alignfuse.data.readers.paths import is_web_address, local_path, place_under
from alignfuse.data.readers.rows import Row, lookup
from alignfuse.data.records import PairSet, Problem, ProblemKind, Record, TarMember
from alignfuse.errors import UserError
from alignfuse.wording import counted

LONGEST_LIST = 100  # names in one message


Named = str | TarMember  # an image as it is merged by: a path as text is cheaper than a Path


@dataclass(slots=True)
class _Draft:
    """A record that may still gain captions."""

    image: Named
    captions: list[str]
    id: str
    split: str | None
    row: str

    def record(self) -> Record:
        image = Path(self.image) if isinstance(self.image, str) else self.image
        return Record(image, tuple(self.captions), self.id, self.split, self.row)


class Assembler:
    """Takes rows one by one; `finish` gives the data set. Raises UserError where nothing can be understood."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.problems: list[Problem] = []
        self._rows = 0
        self._columns: dict[str, object] = {}  # each with its first value
        self._used: dict[Role, Counter[str]] = {
            "image": Counter(),
            "caption": Counter(),
            "id": Counter(),
            "split": Counter(),
        }
        self._languages: Counter[str] = Counter()
        self._drafts: dict[Named, _Draft] = {}
        self._owners: dict[str, Named] = {}  # id -> the first image that has it
        self._repeated_ids: dict[str, None] = {}

    def add(self, item: Row | Problem, base: Path) -> None:
        """Reads one row; image paths are relative to `base`."""
        self._rows += 1
        if isinstance(item, Problem):
            self.problems.append(item)
            return
        for column, value in item.values.items():
            self._columns.setdefault(column, value)
            if isinstance(value, dict) and column in USUAL_NAMES["caption"]:
                self._languages.update(f"{column}.{language}" for language in value)
        image = self._image(item, base)
        captions = self._captions(item)
        if image is None or not captions:
            return
        split = self._text("split", item)
        draft = self._drafts.get(image)
        if draft is None:
            self._drafts[image] = _Draft(image, captions, self._id(item, image, base), split, item.place)
            return
        draft.captions += captions
        draft.split = draft.split or split
        if split is not None and split != draft.split:
            self._report(item, "two splits", f"{split!r} here, {draft.split!r} in {draft.row}, which counts")

    def finish(self, path: Path, formats: list[str]) -> PairSet:
        """The data set. Raises UserError where no record came out, naming the columns or the first problem."""
        if not self._drafts:
            self._explain_nothing(path)
        for role in self._used:
            if (choice := self.fields.choice(role)) and not self._used[role]:
                raise UserError(f"{path}: no row has the field {choice!r} (--{role}-field); {self._columns_found()}")
        return PairSet(
            records=[draft.record() for draft in self._drafts.values()],
            format=", ".join(dict.fromkeys(formats)),
            path=path,
            problems=self.problems,
            rows=self._rows,
            columns=list(self._columns),
            fields={role: ", ".join(used) for role, used in self._used.items() if used},
            languages=dict(self._languages),
            repeated_ids=list(self._repeated_ids),
        )

    def _report(self, row: Row, kind: ProblemKind, detail: str) -> None:
        self.problems.append(Problem(row.place, kind, detail))

    def _value(self, role: Role, row: Row) -> object:
        name, value = self.fields.value(role, row.values)
        if name is not None:
            self._used[role][name] += 1
        return value

    def _text(self, role: Role, row: Row) -> str | None:
        value = self._value(role, row)
        return None if value is None else str(value).strip() or None

    def _image(self, row: Row, base: Path) -> Named | None:
        value = self._value("image", row)
        if isinstance(value, TarMember):
            return value
        if value is not None and not isinstance(value, str):
            found = "the image itself" if isinstance(value, bytes) else repr(value)[:80]
            self._report(row, "no image", f"not a path but {found}; write images to files or to webdataset tars")
            return None
        if value is None or not value.strip():
            self._report(row, "no image", "no file is named")
            return None
        if is_web_address(value):
            self._report(row, "web address", f"{value}: images are read from local files; download them first")
            return None
        return place_under(base, local_path(value.strip()))

    def _captions(self, row: Row) -> list[str]:
        names = self.fields.names("caption", tuple(row.values))
        value = self._value("caption", row)
        if value is None:
            self._refuse_languages(row, names)
        texts = value if isinstance(value, list) else [value]
        if any(text is not None and not isinstance(text, str) for text in texts):
            self._report(row, "no caption", f"not a text or a list of texts but {value!r:.80}")
            return []
        captions = [cleaned for text in texts if isinstance(text, str) and (cleaned := _cleaned(text))]
        if value is None and not any(name in row.values for name in names):
            self._report(row, "no caption", f"no field {names[0]!r}" if names else "no field with a usual name")
        elif len(captions) < len(texts):
            self._report(row, "empty caption", f"{len(texts) - len(captions)} of {len(texts)}")
        return captions

    def _refuse_languages(self, row: Row, names: list[str]) -> None:
        for name in names:
            if isinstance(languages := lookup(row.values, name), dict) and languages:
                raise UserError(
                    f"{row.place}: {name!r} holds captions in several languages ({_listed(list(languages))}); "
                    f"choose one, such as --caption-field {name}.{next(iter(languages))}"
                )

    def _id(self, row: Row, image: Named, base: Path) -> str:
        """The id that the data gives, which images may share; else one made of the path or member name, unique."""
        given = self._text("id", row)
        identity = given or _default_id(image, base)
        if self._owners.setdefault(identity, image) != image:
            if given is None:
                identity = str(image)
            else:
                self._repeated_ids[identity] = None
        return identity

    def _explain_nothing(self, path: Path) -> NoReturn:
        roles: tuple[Role, ...] = ("image", "caption")
        for role in roles:
            choice, names = self.fields.choice(role), self.fields.names(role, tuple(self._columns))
            if self._columns and not self._used[role] and not any(name in self._columns for name in names):
                sought = f"no column {choice!r}" if choice else f"no column with the {role}s"
                raise UserError(f"{path}: {sought}; {self._columns_found()}; name it with --{role}-field")
        reason = f"; the first problem: {self.problems[0]}" if self.problems else ""
        raise UserError(f"{path}: no image-text pair in {counted(self._rows, 'row')}{reason}")

    def _columns_found(self) -> str:
        shown = [
            f"{column}.{{{_listed(list(value))}}}" if isinstance(value, dict) else f"{column!s:.60}"
            for column, value in self._columns.items()
        ]
        return f"found: {_listed(shown)}"


def _cleaned(text: str) -> str:
    """White space collapsed; halves of surrogate pairs, as an emoji that was cut leaves in JSON, are dropped."""
    return " ".join(text.encode(errors="ignore").decode().split())


def _default_id(image: Named, base: Path) -> str:
    if isinstance(image, TarMember):
        folder, name = posixpath.split(posixpath.normpath(image.name))
        return posixpath.join(image.path.stem, folder, name.partition(".")[0])
    return image.removeprefix(f"{base}{os.sep}").replace(os.sep, "/")


def _listed(names: list[str]) -> str:
    more = len(names) - LONGEST_LIST
    return ", ".join(names[:LONGEST_LIST]) + (f" and {more} more" if more > 0 else "")
