"""The demo's report.html: what its sections say."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from alignfuse import __version__
from alignfuse.data.records import Record
from alignfuse.recipes.demo_evaluation import Findings
from alignfuse.recipes.demo_examples import caption_queries, confusions, guessed_words, phrase_queries
from alignfuse.recipes.pretrain import PretrainRun
from alignfuse.recipes.probing import Reading
from alignfuse.recipes.understanding import Tallies, total
from alignfuse.report.confusions import confusion_section
from alignfuse.report.gallery import gallery_section
from alignfuse.report.lines import Reference
from alignfuse.report.markup import join, tag
from alignfuse.report.page import Figure, Section, page
from alignfuse.report.retrieval import retrieval_section
from alignfuse.report.search import search_section
from alignfuse.report.settings import settings_section
from alignfuse.report.training import read_log, training_section
from alignfuse.report.understanding import guesses_section, understanding_section
from alignfuse.training.progress import duration
from alignfuse.wording import counted

SCENES_SHOWN = 6
NAMES: dict[str, Reading] = {
    "with the picture": "image",
    "with another picture": "wrong image",
    "from the text alone": "text alone",
}
# One image with its own text against two mined negatives: what a constant answer costs.
ALWAYS_NO = Reference("the same answer to every pair", 0.6365)


def document(
    out: Path,
    run: PretrainRun,
    splits: Mapping[str, Sequence[Record]],
    found: Findings,
    *,
    phrases: Sequence[str],
    seconds: Mapping[str, float],
) -> str:
    """The whole page."""
    size = sum(parameter.numel() for parameter in found.pipe.model.parameters()) / 1e6
    lead = (
        f"An ALBEF of {size:.1f} million parameters learned pictures and words from scratch, on generated scenes whose "
        f"captions are exact. All that follows was measured on {len(found.held_out.scenes):,} scenes that it never "
        "saw, no two of which say the same. It took the path that your own image-text pairs take."
    )
    sections = [
        _data(splits),
        _training(out),
        _understanding(found),
        _guesses(found),
        _retrieval(found),
        _search(found, phrases),
        _confusions(found),
        _settings(run, found, seconds),
    ]
    return page(
        "From nothing to re-ranked retrieval",
        eyebrow=f"AlignFuse {__version__} demo",
        lead=lead,
        figures=_figures(run, found, seconds),
        sections=sections,
    )


def _figures(run: PretrainRun, found: Findings, seconds: Mapping[str, float]) -> list[Figure]:
    understood = found.understanding
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = counted(cores or 1, "core") if found.pipe.device.type == "cpu" else found.pipe.device.type
    return [
        Figure(
            "Masked words",
            f"{understood.masked_percent('image'):.0f}%",
            f"right with the picture, {understood.masked_percent('text alone'):.0f}% from the text alone",
        ),
        Figure("One-word pairs", f"{understood.pairs_percent:.0f}%", "of captions and their foils judged right by ITM"),
        _recall_figure(found, "Text to image, R@1"),
        _recall_figure(found, "Image to text, R@1"),
        Figure("Training", duration(seconds["training"]), f"{counted(run.training.steps or 0, 'step')}, {device}"),
    ]


def _recall_figure(found: Findings, name: str) -> Figure:
    """The final recall, beside the one before re-ranking."""
    recalls = found.retrieval.recalls
    if name.startswith("Text"):
        before, after = recalls["itc"].text_to_image, found.retrieval.final.text_to_image
    else:
        before, after = recalls["itc"].image_to_text, found.retrieval.final.image_to_text
    return Figure(name, f"{after.at[1]:.1f}%", f"re-ranked; {before.at[1]:.1f}% by ITC")


def _data(splits: Mapping[str, Sequence[Record]]) -> Section:
    counts = ", ".join(f"{len(records):,} {split}" for split, records in splits.items())
    lead = (
        f"Scenes of one or two things on grey: {counts}. Five captions of each say size, colour, texture "
        "and shape, and where things stand. The first of the training scenes, with one caption:"
    )
    shown = splits["train"][:SCENES_SHOWN]
    return gallery_section("Data", [(record.image, record.captions[0]) for record in shown], lead=lead)


def _training(out: Path) -> Section:
    lead = (
        "ITC draws a picture and its caption together in one space, ITM tells a pair from a mined near miss with the "
        "fusion encoder, MLM fills in masked words with the picture in view. Faint lines are the log, strong ones its "
        "running mean. Validation is retrieval among a few other scenes, after each epoch."
    )
    return training_section(read_log(out), lead=lead, references={"itm": ALWAYS_NO})


def _understanding(found: Findings) -> Section:
    masked = found.understanding.masked
    shown = {name: _percents(masked[reading]) for name, reading in NAMES.items()}
    rows = {kind: {name: percents[kind] for name, percents in shown.items()} for kind in shown["with the picture"]}
    pairs = {kind: {"ITM": percent} for kind, percent in _percents(found.understanding.pairs).items()}
    words, foils = total(masked["image"]).of, total(found.understanding.pairs).of // 2
    lead = (
        f"Left: {words:,} words are masked that only the picture decides; a true synonym is right. The text alone can "
        f"guess well where there are few words to choose from. Right: {foils:,} captions and the same with one word "
        "changed so that they are false, each judged by itself, in equal parts of four kinds. Percent right."
    )
    return understanding_section(rows, pairs, lead=lead)


def _percents(tallies: Tallies) -> dict[str, float]:
    return {"all": total(tallies).percent} | {kind: tally.percent for kind, tally in tallies.items()}


def _guesses(found: Findings) -> Section:
    lead = (
        "The first masked word of each kind among the held-out scenes, then the first that the model gets wrong. "
        "Words that make the caption true are green; bars are probabilities in percent."
    )
    return guesses_section(guessed_words(found), lead=lead)


def _retrieval(found: Findings) -> Section:
    lead = (
        "Every caption looks for its picture among all pictures, and every picture for its caption among all captions. "
        "ITC compares two vectors; the fusion encoder then reads each of the best together and orders them anew."
    )
    return retrieval_section(found.retrieval, lead=lead)


def _search(found: Findings, phrases: Sequence[str]) -> Section:
    lead = (
        "Captions of held-out scenes as queries: first some drawn at regular places, then those that re-ranking lifted "
        "furthest, then some that it still gets wrong; at the end phrases shorter than any caption. Numbers are "
        "cosines by ITC and match logits after re-ranking."
    )
    return search_section([*caption_queries(found), *phrase_queries(found, phrases)], lead=lead)


def _confusions(found: Findings) -> Section:
    lead = (
        "Held-out pictures for which the fusion encoder prefers a false caption to the best of their own, the widest "
        "margins first. Bars are probabilities of a match; the words that differ are marked."
    )
    return confusion_section(confusions(found), lead=lead)


def _settings(run: PretrainRun, found: Findings, seconds: Mapping[str, float]) -> Section:
    training, text = run.training, found.pipe.model.config.text
    rows, columns = found.pipe.preprocessing.image_size
    model = {
        "model": f"ALBEF, {sum(parameter.numel() for parameter in found.pipe.model.parameters()):,} parameters",
        "pictures": f"{rows} x {columns} pixels",
        "text": f"{text.layers} layers and {text.fusion_layers} of fusion, {text.width} wide",
        "vocabulary": f"{text.vocab_size:,} word pieces, trained on the captions",
        "steps": f"{training.steps:,} of {training.batch_size} pairs",
        "learning rate": f"{training.optimizer.lr:g}",
        "masked": f"{100 * run.objective.mask_probability:g}% of the words",
        "negatives": run.objective.negatives,
    }
    times = {name: duration(taken) for name, taken in seconds.items()}
    lead = join("The whole configuration is in ", tag("code", "config.json"), " beside this page.")
    return settings_section({"Run": model, "Time": times}, lead=lead)
