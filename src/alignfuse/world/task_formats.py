"""Annotations of questions, two-image statements, entailment and referring expressions in the official layouts.

Each comes twice where ALBEF has a list of its own for the task: as the data set publishes it, and as that list.
"""

import itertools
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from alignfuse.world.entailment import hypotheses
from alignfuse.world.files import image_path, of_split, write_json, write_lines
from alignfuse.world.questions import Question, possible_answers, questions
from alignfuse.world.referring import Reference, references
from alignfuse.world.sampling import Sample
from alignfuse.world.scenes import SHAPES
from alignfuse.world.statements import statements

PUBLISHED_SPLIT = {
    "nlvr2": {"train": "train", "val": "dev", "test": "test1"},
    "snli-ve": {"train": "train", "val": "dev", "test": "test"},
    "refcoco": {"train": "train", "val": "val", "test": "testA"},
}


def vqa(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """VQA v2: questions and annotations of each split; question rows also name their image. ALBEF: vqa_SPLIT.json."""
    written = [write_json(out / "answer_list.json", possible_answers())]
    for split, members in of_split(samples).items():
        asked, annotated, albef = [], [], []
        for sample in members:
            for number, question in enumerate(questions(sample.scene)):
                key = {"question_id": sample.index * 1000 + number}
                asked.append({**key, "image_id": sample.index, "question": question.text, "image": image_path(sample)})
                annotated.append({**key, "image_id": sample.index, **_annotation(question)})
                row = {**key, "question": question.text, "image": image_path(sample), "dataset": "vqa"}
                albef.append(row if split == "test" else {**row, "answer": question.answers})
        head = {"info": {}, "license": {}, "data_type": "world", "data_subtype": split}
        written += [
            write_json(out / f"questions_{split}.json", {**head, "task_type": "Open-Ended", "questions": asked}),
            write_json(out / f"annotations_{split}.json", {**head, "annotations": annotated}),
            write_json(out / f"vqa_{split}.json", albef),
        ]
    return written


def _annotation(question: Question) -> dict[str, object]:
    return {
        "question_type": " ".join(question.text.split()[:2]),
        "answer_type": question.kind if question.kind in ("number", "yes/no") else "other",
        "multiple_choice_answer": question.answer,
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": place}
            for place, answer in enumerate(question.answers, start=1)
        ],
    }


def nlvr2(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """NLVR2: SPLIT.json (a JSON object a line) with images named by it under nlvr2_images. ALBEF: nlvr_SPLIT.json."""
    written = []
    for split, members in of_split(samples).items():
        name = PUBLISHED_SPLIT["nlvr2"][split]
        folder = out / "nlvr2_images" / name
        folder.mkdir(parents=True)
        rows, albef = [], []
        for number, said in enumerate(statements([sample.scene for sample in members])):
            for pair, label in enumerate(said.labels):
                stem = f"{name}-{number}-{pair}"
                sides = members[4 * number + 2 * pair :][:2]
                for side, sample in enumerate(sides):
                    shutil.copyfile(out / image_path(sample), folder / f"{stem}-img{side}.png")
                rows.append({"identifier": f"{stem}-0", "sentence": said.sentence, "label": str(label)})
                images = [image_path(sample) for sample in sides]
                albef.append({"sentence": said.sentence, "label": str(label), "images": images})
        written += [write_lines(out / f"{name}.json", rows), write_json(out / f"nlvr_{split}.json", albef)]
    return written


def snli_ve(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """SNLI-VE: snli_ve_SPLIT.jsonl, Flickr30K_ID being the image's name without suffix. ALBEF: ve_SPLIT.json."""
    written = []
    for split, members in of_split(samples).items():
        rows, albef = [], []
        for sample in members:
            for hypothesis in hypotheses(sample.scene):
                rows.append(
                    {
                        "Flickr30K_ID": sample.id,
                        "captionID": f"{sample.id}.png#0",
                        "pairID": f"{sample.id}.png#0{hypothesis.label[0]}",
                        "annotator_labels": [hypothesis.label],
                        "gold_label": hypothesis.label,
                        "sentence1": hypothesis.premise,
                        "sentence2": hypothesis.sentence,
                    }
                )
                albef.append({"image": sample.id, "sentence": hypothesis.sentence, "label": hypothesis.label})
        name = PUBLISHED_SPLIT["snli-ve"][split]
        written += [write_lines(out / f"snli_ve_{name}.jsonl", rows), write_json(out / f"ve_{split}.json", albef)]
    return written


def refcoco(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """RefCOCO: refs(unc).p and instances.json, all splits in one. ALBEF: refcoco_train.json."""
    found = [(sample, reference) for sample in samples for reference in references(sample.scene)]
    sentence_ids = itertools.count()
    refs = [_ref(number, sample, reference, sentence_ids) for number, (sample, reference) in enumerate(found)]
    boxes = [_instance(number, sample, reference, image_size) for number, (sample, reference) in enumerate(found)]
    images = [
        {"id": sample.index, "file_name": image_path(sample), "height": image_size, "width": image_size}
        for sample in samples
    ]
    categories = [{"id": place, "name": shape, "supercategory": "shape"} for place, shape in enumerate(SHAPES, start=1)]
    instances = {"info": {}, "licenses": [], "images": images, "annotations": boxes, "categories": categories}
    albef = [
        {"image": image_path(sample), "text": text, "ref_id": number}
        for number, (sample, reference) in enumerate(found)
        if sample.split == "train"
        for text in reference.sentences
    ]
    refs_file = out / "refs(unc).p"
    refs_file.write_bytes(pickle.dumps(refs, protocol=2))
    return [refs_file, write_json(out / "instances.json", instances), write_json(out / "refcoco_train.json", albef)]


def _ref(number: int, sample: Sample, reference: Reference, sentence_ids: Iterator[int]) -> dict[str, object]:
    sentences = [
        {"tokens": text.split(), "raw": text, "sent": text, "sent_id": next(sentence_ids)}
        for text in reference.sentences
    ]
    return {
        "ref_id": number,
        "ann_id": number,
        "image_id": sample.index,
        "category_id": _category(sample, reference),
        "split": PUBLISHED_SPLIT["refcoco"][sample.split],
        "file_name": image_path(sample),
        "sent_ids": [sentence["sent_id"] for sentence in sentences],
        "sentences": sentences,
    }


def _instance(number: int, sample: Sample, reference: Reference, image_size: int) -> dict[str, object]:
    left, top, right, bottom = (edge * image_size for edge in reference.box)
    return {
        "id": number,
        "image_id": sample.index,
        "category_id": _category(sample, reference),
        "bbox": [left, top, right - left, bottom - top],
        "area": (right - left) * (bottom - top),
        "iscrowd": 0,
    }


def _category(sample: Sample, reference: Reference) -> int:
    return SHAPES.index(sample.scene.things[reference.thing].shape) + 1
