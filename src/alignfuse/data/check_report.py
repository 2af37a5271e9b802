"""What `alignfuse data check` tells: as text for people, as a dictionary for machines."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

from alignfuse.data.records import Problem, ProblemKind
from alignfuse.wording import counted

LISTED = 10  # problems of one kind that the text shows; the dictionary holds all
INDENT = " " * 16


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """One split."""

    images: int
    captions: int


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was understood of a data set, and what is wrong with which row."""

    path: str
    format: str
    rows: int
    fields: Mapping[str, str]  # image, caption, id, split -> the column that served
    columns: list[str]
    languages: Mapping[str, int]  # "captions.de" -> rows
    images: int
    captions: int
    fewest_captions: int  # of one image
    most_captions: int
    distinct_captions: int  # letter case and white space ignored
    shared_captions: int  # distinct captions that stand under several images
    splits: Mapping[str, SplitSize]
    split_by: str  # "column" or "hash of the id"
    opened: int  # images decoded
    problems: list[Problem]
    notes: list[str]

    @property
    def problems_by_kind(self) -> dict[ProblemKind, list[Problem]]:
        """The same problems, sorted into kinds in order of appearance."""
        kinds: dict[ProblemKind, list[Problem]] = defaultdict(list)
        for problem in self.problems:
            kinds[problem.kind].append(problem)
        return dict(kinds)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        counts = {kind: len(problems) for kind, problems in self.problems_by_kind.items()}
        return asdict(self) | {"problem_count": len(self.problems), "problem_counts": counts}

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.format}, {counted(self.rows, 'row')}"]
        lines += [line for name, value in self._facts().items() if value for line in _entry(name, value)]
        lines += ["", f"problems: {len(self.problems):,}" if self.problems else "no problems found"]
        for kind, problems in self.problems_by_kind.items():
            lines += [f"  {kind}: {len(problems):,}"]
            lines += [f"    {problem.row}: {problem.detail}" for problem in problems[:LISTED]]
            lines += [f"    and {len(problems) - LISTED:,} more (all with --json)"] if len(problems) > LISTED else []
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _facts(self) -> dict[str, str]:
        spread = f"{self.captions / self.images:.2f} per image, {self.fewest_captions} to {self.most_captions}"
        texts = f"{self.distinct_captions:,} distinct, {self.shared_captions:,} shared by several images"
        sizes = [
            f"{name} {counted(size.images, 'image')}, {counted(size.captions, 'caption')}"
            for name, size in self.splits.items()
        ]
        mapped = [f"{role} from {column}" for role, column in self.fields.items()]
        return {
            "images": f"{self.images:,} ({self.opened:,} opened)",
            "captions": f"{self.captions:,} ({spread}; {texts})",
            "splits": f"{'; '.join(sizes)} (by {self.split_by})",
            "fields": f"{', '.join(mapped)}; others with --image-field, --caption-field, --id-field, --split-field",
            "columns": ", ".join(self.columns),
            "languages": ", ".join(f"{name} {count:,}" for name, count in self.languages.items()),
        }


def _entry(name: str, value: str) -> list[str]:
    return wrap(value, 120, initial_indent=f"  {name:<12}  ", subsequent_indent=INDENT, break_on_hyphens=False)
