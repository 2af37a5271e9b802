"""Words for people."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 row, 2,000 rows."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
