"""How much a model has understood of generated scenes, by kind of word: guessed words and judged captions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alignfuse.api import Pipeline
from alignfuse.recipes.probing import READINGS, Reading, guess_words, judge_pairs, paint
from alignfuse.world.probes import masked_words, one_word_pairs
from alignfuse.world.scenes import Scene


class Tally(NamedTuple):
    """How many were right."""

    right: int
    of: int

    @property
    def percent(self) -> float:
        """The share that was right."""
        return 100 * self.right / self.of


Tallies = dict[str, Tally]  # by kind


@dataclass(frozen=True, kw_only=True)
class Understanding:
    """Masked words that only the picture decides, in every reading, and one-word pairs."""

    masked: dict[Reading, Tallies]
    pairs: Tallies  # captions and foils judged one by one, no threshold tuned: chance is 50%

    def masked_percent(self, reading: Reading) -> float:
        """Masked words that were right, of all kinds."""
        return total(self.masked[reading]).percent

    @property
    def pairs_percent(self) -> float:
        """Captions and foils that were judged right, of all kinds."""
        return total(self.pairs).percent

    def to_dict(self) -> dict[str, object]:
        """For machines."""
        return {
            "unit": "percent",
            "masked_words": {reading: _figures(tallies) for reading, tallies in self.masked.items()},
            "one_word_pairs": _figures(self.pairs),
        }

    def table(self) -> str:
        """For people."""
        rows = [*((f"masked words, {reading}", tallies) for reading, tallies in self.masked.items())]
        kinds = list(self.masked["image"])
        lines = [f"{'':26}{'all':>8}" + "".join(f"{kind:>10}" for kind in kinds)]
        for name, tallies in (*rows, ("one-word pairs", self.pairs)):
            cells = [f"{tallies[kind].percent:.1f} %" if kind in tallies else "-" for kind in kinds]
            lines.append(f"{name:26}{total(tallies).percent:6.1f} %" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines)


def understanding(
    pipe: Pipeline, scenes: Sequence[Scene], *, per_scene: int = 2, pairs: int = 2000, seed: int = 0
) -> Understanding:
    """Ask for `per_scene` masked words of each scene, and for `pairs` one-word pairs, equally many of each kind."""
    pixels = paint(pipe, scenes)
    words, foils = masked_words(scenes, per_scene=per_scene, seed=seed), one_word_pairs(scenes, pairs, seed=seed)
    masked: dict[Reading, Tallies] = {}
    for reading in READINGS:
        guesses = guess_words(pipe, pixels, words, reading)
        masked[reading] = tallied((word.kind, guess.right) for word, guess in zip(words, guesses, strict=True))
    verdicts = zip(foils, judge_pairs(pipe, pixels, foils), strict=True)
    return Understanding(masked=masked, pairs=tallied((foil.kind, right) for foil, both in verdicts for right in both))


def tallied(answers: Iterable[tuple[str, bool]]) -> Tallies:
    """Right answers by kind, in the order of names."""
    tallies: Tallies = {}
    for kind, right in answers:
        before = tallies.get(kind, Tally(0, 0))
        tallies[kind] = Tally(before.right + right, before.of + 1)
    return dict(sorted(tallies.items()))


def total(tallies: Tallies) -> Tally:
    """All kinds together."""
    return Tally(sum(tally.right for tally in tallies.values()), sum(tally.of for tally in tallies.values()))


def _figures(tallies: Tallies) -> dict[str, object]:
    kinds = {kind: {"right": tally.percent, "count": tally.of} for kind, tally in tallies.items()}
    return {"right": total(tallies).percent, "count": total(tallies).of, "kinds": kinds}
