"""The demo: from nothing to a searchable model on generated scenes, by the path that a user's own pairs take.

OUT/world           the scenes as pictures with captions, in a format of pairs
OUT/config.json ... OUT is a run directory
OUT/index           embeddings of the held-out scenes, to search in
OUT/report.html     what came of it
OUT/demo.json       the settings of the demo, for resuming
"""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from alignfuse.api import load
from alignfuse.config import from_dict, to_dict
from alignfuse.errors import UserError, reading
from alignfuse.files import replace_file, require_empty
from alignfuse.recipes import albef, budget
from alignfuse.recipes.demo_config import DemoConfig
from alignfuse.recipes.demo_evaluation import Findings, HeldOut, find
from alignfuse.recipes.demo_report import document
from alignfuse.recipes.pretrain import Corpus, DataConfig, PretrainRun, collect, execute, read_splits, stored
from alignfuse.search.index import Hit
from alignfuse.training import checkpoint
from alignfuse.training.progress import duration
from alignfuse.wording import counted
from alignfuse.world.export import export
from alignfuse.world.sampling import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """What the demo found on held-out scenes, and where it lies."""

    out: Path
    run: PretrainRun
    found: Findings
    searches: dict[str, list[Hit]]  # phrase -> best images
    seconds: dict[str, float]  # of each stage

    def to_dict(self) -> dict[str, object]:
        """For machines."""
        return {
            "report": str(self.out / "report.html"),
            "steps": self.run.training.steps,
            "retrieval": self.found.retrieval.to_dict(),
            "understanding": self.found.understanding.to_dict(),
            "search": {phrase: [hit.to_dict() for hit in hits] for phrase, hits in self.searches.items()},
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        """For people."""
        stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.seconds.items())
        lines = [
            self.found.retrieval.table(),
            "",
            "understanding, share that is right",
            self.found.understanding.table(),
        ]
        for phrase, hits in self.searches.items():
            lines += ["", f"search '{phrase}'"]
            lines += [f"  {hit.record['id']}  {_first_caption(hit)}" for hit in hits]
        steps = f"{counted(self.run.training.steps or 0, 'step')} in {duration(sum(self.seconds.values()))}: {stages}"
        report = f"report: {self.out / 'report.html'}"
        more = f'search on: alignfuse search "a small blue cross" --model {self.out} --in {self.out / "index"}'
        return "\n".join([*lines, "", steps, report, more])


def _first_caption(hit: Hit) -> str:
    captions = hit.record["captions"]
    return str(captions[0]) if isinstance(captions, list) else ""


class Stages:
    """Says which stage runs, and keeps how long each took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        logger.info("%s ...", name)
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began
        logger.info("%s: %s", name, duration(self.seconds[name]))


def demo(
    out: Path,
    config: DemoConfig | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
) -> DemoResult:
    """Everything from painting to the report. `resume` goes on, with the stored settings, where a demo was stopped."""
    config = prepare(out, config or DemoConfig(), resume=resume, overwrite=overwrite)
    stage, world = Stages(), World(seed=config.seed, things=config.things)
    with stage("painting"):
        paint_world(out / "world", config, world)
    with stage("training"):
        run = train(out, config, device)
    with stage("evaluation"):
        splits = read_splits(run.data)
        held_out = HeldOut.of(splits["test"], world.samples("test", config.test), captions_each=config.captions)
        found = find(load(out, device=device), held_out, config)
        found.index.save(out / "index")
        searches = {phrase: found.pipe.search(phrase, found.index, k=3) for phrase in config.phrases}
    with stage("report"):
        page = document(out, run, splits, found, phrases=config.phrases, seconds=stage.seconds)
        replace_file(out / "report.html", lambda path: path.write_text(page, encoding="utf-8"))
    return DemoResult(out=out, run=run, found=found, searches=searches, seconds=stage.seconds)


def prepare(out: Path, config: DemoConfig, *, resume: bool, overwrite: bool) -> DemoConfig:
    """Make the folder and write the settings into it, or read them from it. Overwriting removes what a demo leaves."""
    stored_config = out / "demo.json"
    ours = stored_config.is_file()
    if ours and not (resume or overwrite):
        raise UserError(f"{out} holds a demo: go on with --resume, or replace it with --overwrite")
    if not ours and not resume:
        remedy = "choose another --out, or replace a run there with --overwrite"
        require_empty(out, remedy=remedy, overwrite=overwrite)
    checkpoint.prepare(out, resume=resume, overwrite=overwrite)
    if resume:
        if not ours:
            raise UserError(f"{out}: no demo.json there; nothing to resume")
        with reading(stored_config):
            return from_dict(DemoConfig, json.loads(stored_config.read_text(encoding="utf-8")))
    if ours:
        for folder in ("world", "index"):
            shutil.rmtree(out / folder, ignore_errors=True)
    elif (out / "world").exists():
        raise UserError(f"{out / 'world'} is in the way: choose another folder for the demo")
    checkpoint.write_json(stored_config, to_dict(config))
    return config


def paint_world(folder: Path, config: DemoConfig, world: World) -> None:
    """Write the scenes, unless they stand there already; a folder half written does not count."""
    if folder.exists():
        return
    partial = folder.with_name("world.partial")
    shutil.rmtree(partial, ignore_errors=True)
    sizes = {"train": config.train, "val": config.val, "test": config.test}
    export(partial, sizes, world=world, image_size=max(config.model.image.image_size))
    partial.rename(folder)
    logger.info("%s scenes in %s", ", ".join(f"{count:,} {split}" for split, count in sizes.items()), folder)


def train(out: Path, config: DemoConfig, device: str) -> PretrainRun:
    """Pretrain in `out` for about the minutes that are given, or go on with the run that is there."""
    resume = (out / "config.json").is_file()
    planned = plan(out / "world" / "pairs.jsonl", config)
    if resume:
        run = replace(stored(out), data=planned.data)
        result = execute(run, out, resume=True, device=device)
    else:
        corpus = collect(planned)
        run = within_budget(planned, corpus, config, device)
        result = execute(run, out, overwrite=True, device=device, corpus=corpus)
    if not result.finished:
        raise UserError(f"the demo was stopped after step {result.step}; alignfuse demo --out {out} --resume goes on")
    return run


def plan(pairs: Path, config: DemoConfig) -> PretrainRun:
    """The toy ALBEF on these pairs. Captions say where things stand and how large they are: nothing is augmented."""
    run = albef.pretrain(DataConfig(paths=(str(pairs),)), size="toy")
    return replace(
        run,
        model=config.model,
        objective=config.objective,
        training=config.training,
        validation=config.validation,
        augment=None,
    )


def within_budget(run: PretrainRun, corpus: Corpus, config: DemoConfig, device: str) -> PretrainRun:
    """The run with as many steps as fit into the minutes, by the time that a few steps take here."""
    pace = budget.measure(run, corpus, steps=config.measured_steps, device=device)
    steps = min(config.most_steps, max(config.fewest_steps, pace.steps(60 * config.minutes)))
    logger.info(
        "%s: %.3f s a step, %.1f s a validation after each %d, %g minutes to use (%d to %d steps)",
        counted(steps, "step"), pace.step, pace.validation, pace.updates, config.minutes, config.fewest_steps,
        config.most_steps,
    )  # fmt: skip
    log_steps = max(1, steps // config.log_lines)
    return replace(run, training=replace(run.training, steps=steps, log_steps=log_steps))
