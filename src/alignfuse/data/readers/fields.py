"""Which column holds what: named by the user, or found under one of the usual names."""

from dataclasses import dataclass, field
from typing import Literal

from alignfuse.data.readers.rows import lookup

Role = Literal["image", "caption", "id", "split"]

# A list of captions comes before a single one: where both stand in a row, the list holds the caption too.
USUAL_NAMES: dict[Role, tuple[str, ...]] = {
    "image": (
        *("image", "image_path", "image_file", "image_name", "img", "img_path"),
        *("file", "file_name", "filename", "filepath", "file_path", "path"),
    ),
    "caption": ("captions", "caption", "texts", "text", "txt"),
    "id": ("image_id", "id"),
    "split": ("split",),
}


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The user's choice of columns; a role that is None is found by its usual names, in their order."""

    image: str | None = None
    caption: str | None = None
    id: str | None = None
    split: str | None = None
    _found: dict[tuple[Role, tuple[str, ...]], list[str]] = field(default_factory=dict, repr=False, compare=False)

    def choice(self, role: Role) -> str | None:
        """What the user named for this role."""
        return {"image": self.image, "caption": self.caption, "id": self.id, "split": self.split}[role]

    def names(self, role: Role, columns: tuple[str, ...]) -> list[str]:
        """The columns that may fill a role, best first; letter case and outer spaces of the usual names are free."""
        choice = self.choice(role)
        if choice is not None:
            return [choice]
        key = (role, columns)
        if key not in self._found:
            spelled = {column.strip().lower(): column for column in reversed(columns)}
            self._found[key] = [spelled[name] for name in USUAL_NAMES[role] if name in spelled]
        return self._found[key]

    def value(self, role: Role, values: dict[str, object]) -> tuple[str | None, object]:
        """The first column of a role that holds more than null, an empty list or an object, and its value."""
        for name in self.names(role, tuple(values)):
            value = lookup(values, name)
            if value is not None and value != [] and not isinstance(value, dict):
                return name, value
        return None, None
