"""The examples in the demo's report: drawn by fixed rules from held-out scenes, failures among them."""

from collections.abc import Iterator, Sequence

from alignfuse.data.records import Record
from alignfuse.recipes.demo_evaluation import Findings, HeldOut
from alignfuse.recipes.probing import Reading, guess_words, paint
from alignfuse.report.confusions import Confusion
from alignfuse.report.picture import Mark
from alignfuse.report.search import Found, Query
from alignfuse.report.understanding import GuessedWord
from alignfuse.search.index import Hit
from alignfuse.search.sources import image_at
from alignfuse.tasks.ranking import Ranking
from alignfuse.world.captions import ATTRIBUTES, VALUE, Caption, Word
from alignfuse.world.probes import MASKED_KINDS, MaskedWord, masked_words
from alignfuse.world.truth import true_of

SHOWN = 8  # images of a query
READ: dict[str, Reading] = {"with the picture": "image", "from the text alone": "text alone"}


def caption_queries(found: Findings, *, each: int = 2) -> list[Query]:
    """Captions of held-out scenes: some at regular places, some that re-ranking mended most, some that still fail."""
    way = found.ranking.text_to_image
    before, after = way.ranks("itc").tolist(), way.ranks(found.ranking.score).tolist()
    count = len(before)
    drawn = list(range(count // 7, count, max(1, count // each)))[:each]
    mended = [text for text in range(count) if after[text] == 0 < before[text]]
    failed = [text for text in range(count) if after[text] > 0]
    chosen = dict.fromkeys([*drawn, *sorted(mended, key=lambda text: -before[text])[:each], *failed[:each]])
    return [
        _query(
            found,
            found.held_out.said[text],
            own=found.held_out.records[int(found.held_out.image_of[text])],
            note=f"Its image is number {before[text] + 1} by ITC and number {after[text] + 1} after re-ranking.",
        )
        for text in chosen
    ]


def phrase_queries(found: Findings, phrases: Sequence[str]) -> list[Query]:
    """Queries in a user's own words, which may fit many scenes."""
    queries = []
    for phrase in phrases:
        said = _attributes(phrase)
        fitting = sum(true_of(said, scene) for scene in found.held_out.scenes)
        note = f"A phrase shorter than any caption; it is true of {fitting} of {len(found.held_out.scenes):,} images."
        queries.append(_query(found, said, own=None, note=note))
    return queries


def confusions(found: Findings, *, count: int = 6) -> list[Confusion]:
    """The images whose match logit for a false caption exceeds that of their own best by most."""
    shown = []
    for _, image, own, other in sorted(_confusions(found.held_out, found.ranking), reverse=True)[:count]:
        source, texts = found.held_out.records[image].image, [found.held_out.texts[text] for text in (own, other)]
        mine, wrong = found.pipe.match([source], texts)
        shown.append(Confusion(source, texts[0], mine.probability, texts[1], wrong.probability))
    return shown


def guessed_words(found: Findings, *, wrong: int = 1) -> list[GuessedWord]:
    """The first masked word of each kind, and the first that are guessed wrong."""
    pixels, probes = paint(found.pipe, found.held_out.scenes), masked_words(found.held_out.scenes)
    guesses = {name: guess_words(found.pipe, pixels, probes, reading) for name, reading in READ.items()}
    first = {probe.kind: number for number, probe in reversed(list(enumerate(probes)))}
    failed = [number for number, guess in enumerate(guesses["with the picture"]) if not guess.right]
    chosen = dict.fromkeys([*(first[kind] for kind in MASKED_KINDS if kind in first), *failed[:wrong]])
    return [
        _guessed(found.held_out, probes[number], {name: made[number].words for name, made in guesses.items()})
        for number in chosen
    ]


def _guessed(held_out: HeldOut, probe: MaskedWord, guesses: dict[str, list[tuple[str, float]]]) -> GuessedWord:
    image = held_out.records[probe.scene].image
    return GuessedWord(image, probe.text.split(), probe.position, probe.answers, guesses)


def _confusions(held_out: HeldOut, ranking: Ranking) -> Iterator[tuple[float, int, int, int]]:
    """(margin, image, its best own caption, false caption) where a false one stands before all own ones."""
    way = ranking.image_to_text
    logits = way.scores("itm").tolist()
    for image, texts in enumerate(way.shortlist.tolist()):
        ordered = sorted(zip(logits[image], texts, strict=True), reverse=True)
        own = [(logit, text) for logit, text in ordered if int(held_out.image_of[text]) == image]
        if not own:
            continue
        for logit, text in ordered:
            if logit > own[0][0] and not true_of(held_out.said[text], held_out.scenes[image]):
                yield logit - own[0][0], image, own[0][1], text
                break


def _query(found: Findings, said: Caption, *, own: Record | None, note: str) -> Query:
    """The best images in both orders; those that the text is true of are marked."""
    scene_of = {record.id: scene for record, scene in zip(found.held_out.records, found.held_out.scenes, strict=True)}

    def shown(hit: Hit, score: float) -> Found:
        name = str(hit.record["id"])
        mark: Mark = "own" if own is not None and name == own.id else "fits" if true_of(said, scene_of[name]) else ""
        return Found(image_at(hit.record), f"{score:.2f}", mark)

    k = found.ranking.text_to_image.shortlist.shape[1]
    by_itc = found.pipe.search(said.text, found.index, k=SHOWN, score="itc")
    reranked = found.pipe.search(said.text, found.index, k=SHOWN, shortlist=k)
    orders = {
        "by ITC": [shown(hit, hit.itc) for hit in by_itc],
        "re-ranked": [shown(hit, hit.itm or 0.0) for hit in reranked],
    }
    return Query(said.text, note, orders, None if own is None else own.image)


def _attributes(phrase: str) -> Caption:
    """What a phrase about one thing claims."""
    return Caption(
        tuple(Word(word, next((kind for kind in ATTRIBUTES if (kind, word) in VALUE), "")) for word in phrase.split())
    )
