"""Words for people."""

from alignfuse.wording import counted


def test_one_is_singular_and_thousands_are_told_apart() -> None:
    assert [counted(count, "row") for count in (0, 1, 2, 1000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]
    assert (counted(1, "entry", "entries"), counted(3, "entry", "entries")) == ("1 entry", "3 entries")
