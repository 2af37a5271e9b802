"""How far the toy model gets on the generated world with more time than the demo has, with mined and random negatives.

The model, the data path and the objectives are the demo's; the world is larger and training longer. After each epoch
the probes are asked on 1,000 held-out scenes with distinct facts, so the run leaves a curve in OUT/metrics.jsonl.

    python benchmarks/world_long.py runs/mined --negatives mined [--steps 2400] [--threads 1]
    python benchmarks/world_long.py runs/random --negatives random
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from alignfuse.api import Pipeline
from alignfuse.config import to_dict
from alignfuse.recipes.demo import plan
from alignfuse.recipes.demo_config import DemoConfig
from alignfuse.recipes.pretrain import DataConfig, PretrainRun, build, read_splits
from alignfuse.recipes.understanding import understanding
from alignfuse.tasks.retrieval import RetrievalConfig
from alignfuse.training import checkpoint
from alignfuse.training.loop import Validation, fit
from alignfuse.world.export import export
from alignfuse.world.sampling import World

WORLD = World(seed=0, things=(0.35, 0.65))
TRAIN, TEST, PAIRS = 30_000, 1_000, 2_000


def recipe(pairs: Path, steps: int, negatives: str) -> PretrainRun:
    """The demo's run, longer, and in larger batches: in small ones the gradient of relations drowns in noise."""
    run = plan(pairs, DemoConfig())
    return replace(
        run,
        objective=replace(run.objective, negatives=negatives),
        training=replace(run.training, batch_size=128, steps=steps, log_steps=25),
    )


def scores(pipe: Pipeline, data: DataConfig) -> Validation:
    """Probes and retrieval on held-out scenes; the score is the mean of words and pairs."""
    found = understanding(pipe, [sample.scene for sample in WORLD.samples("test", TEST)], pairs=PAIRS)
    records = [replace(record, captions=record.captions[:1]) for record in read_splits(data)["test"]]
    report = pipe.evaluate_retrieval(records, split="test", config=RetrievalConfig(k=16))
    metrics = {
        "masked words": found.masked_percent("image"),
        "masked words, text alone": found.masked_percent("text alone"),
        "one-word pairs": found.pairs_percent,
    }
    for score, both in report.recalls.items():
        metrics |= {f"{score} image to text R@1": both.image_to_text.at[1]}
        metrics |= {f"{score} text to image R@1": both.text_to_image.at[1]}
    return Validation((metrics["masked words"] + metrics["one-word pairs"]) / 2, metrics)


def main() -> None:
    """Export the world beside the runs if it is not there, train, print the last scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--negatives", choices=("mined", "random"), default="mined")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    world = arguments.out.parent / "world_long"
    if not (world / "pairs.jsonl").is_file():
        export(world, {"train": TRAIN, "val": 0, "test": TEST}, world=WORLD)
    run, parts = build(recipe(world / "pairs.jsonl", arguments.steps, arguments.negatives))
    checkpoint.prepare(arguments.out)
    checkpoint.write_json(arguments.out / "config.json", to_dict(run))
    parts.tokenizer.save(arguments.out / "tokenizer.json")
    parts.preprocessing.save(arguments.out / "preprocessing.json")
    device = torch.device("cpu")
    pipe = Pipeline(parts.system.model, parts.tokenizer, parts.preprocessing, str(arguments.out), device)
    began = time.monotonic()
    fit(
        parts.system,
        parts.loader,
        run.training,
        arguments.out,
        device=device,
        validate=lambda: scores(pipe, run.data),
    )
    print(json.dumps({"minutes": (time.monotonic() - began) / 60, **scores(pipe, run.data).metrics}, indent=2))


if __name__ == "__main__":
    main()
