"""What became of each weight when one model's file was loaded into another model."""

from collections import Counter
from dataclasses import dataclass, field

from alignfuse.errors import UserError
from alignfuse.wording import counted

Shape = tuple[int, ...]


@dataclass(kw_only=True)
class LoadReport:
    """Names are ours, but for `left_out` and `unexpected`, which are those of the source."""

    source: str
    loaded: list[str] = field(default_factory=list)
    resized: dict[str, str] = field(default_factory=dict)  # loaded after a change of size: name -> what was done
    new: list[str] = field(default_factory=list)  # parts that the source cannot have: they keep their initial values
    missing: list[str] = field(default_factory=list)  # the source should have held these and does not
    mismatched: dict[str, tuple[Shape, Shape]] = field(default_factory=dict)  # name -> shape there, shape here
    left_out: list[str] = field(default_factory=list)  # parts of the source that this model does not have, as known
    unexpected: list[str] = field(default_factory=list)  # names of the source that mean nothing to us
    notices: list[str] = field(default_factory=list)

    def __add__(self, other: "LoadReport") -> "LoadReport":
        """Both reports as one: what one source brings is neither new nor missing for having no place in the other."""
        brought = {*self.loaded, *other.loaded}
        return LoadReport(
            source=f"{self.source} and {other.source}",
            loaded=list(dict.fromkeys([*self.loaded, *other.loaded])),
            resized=self.resized | other.resized,
            new=[name for name in dict.fromkeys([*self.new, *other.new]) if name not in brought],
            missing=[name for name in dict.fromkeys([*self.missing, *other.missing]) if name not in brought],
            mismatched=self.mismatched | other.mismatched,
            left_out=[*self.left_out, *other.left_out],
            unexpected=[*self.unexpected, *other.unexpected],
            notices=[*self.notices, *other.notices],
        )

    def lines(self) -> list[str]:
        """A few lines for the user, whatever the number of tensors."""
        lines = [f"{self.source}: {counted(len(self.loaded), 'tensor')} loaded"]
        lines += [f"  resized: {name} {what}" for name, what in self.resized.items()]
        for title, names in (
            ("new, not in the source", self.new),
            ("missing in the source", self.missing),
            ("of another shape", list(self.mismatched)),
            ("in the source, not used here", self.left_out),
            ("in the source, not understood", self.unexpected),
        ):
            if names:
                lines.append(f"  {title}: {summary(names)}")
        return lines + [f"  {notice}" for notice in self.notices]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def check(self, *, allow_missing: bool | None = None) -> None:
        """Refuse a load that leaves a used part at its initial values, or whose shapes do not fit.

        allow_missing: None where the user has no say, so that the message offers none.
        """
        for name, (there, here) in self.mismatched.items():
            raise UserError(f"{self.source}: {name} is {_shape(there)} there but {_shape(here)} here{_hint(name)}")
        if not self.loaded:
            raise UserError(f"{self.source}: no tensor has a name that is known here, as {summary(self.unexpected)}")
        if self.missing and not allow_missing:
            remedy = ". To start these parts from scratch, allow it with --allow-missing (allow_missing=True)"
            raise UserError(
                f"{self.source}: should hold {summary(self.missing)} and does not; it holds "
                f"{summary(self.unexpected) if self.unexpected else 'nothing else'}"
                f"{'' if allow_missing is None else remedy}"
            )


def summary(names: list[str], most: int = 6) -> str:
    """Names by the part they belong to: 'text_encoder.blocks (36 tensors), match_head (2 tensors)'."""
    parts = Counter(".".join(name.split(".")[:2]) if name.count(".") > 1 else name.split(".")[0] for name in names)
    shown = [part if count == 1 else f"{part} ({count} tensors)" for part, count in parts.most_common(most)]
    return ", ".join(shown) + (f" and {len(parts) - most} more parts" if len(parts) > most else "")


def _shape(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _hint(name: str) -> str:
    if name.endswith(("embeddings.word.weight", "mask_head.bias")):
        return (
            ": the vocabularies differ, as after tokens were added. Use the vocabulary that the source was trained "
            "with, or start the text encoder from scratch"
        )
    if name.endswith("embeddings.position.weight"):
        return ": a longer table of positions cannot be made from a shorter one"
    return ": give this model the sizes of the source"
