"""Who is whose positive: running numbers of images and captions. Shapes: N records, P pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from alignfuse.data.records import Record

KEY_BASE = 2**32


@dataclass(frozen=True, kw_only=True)
class Identities:
    """Image and caption are positive where they stand in one record, or in records of one id, or in `shared`."""

    image_ids: Int64[Tensor, " N"]  # of each record; records of one id have one number
    caption_ids: list[
        list[int]
    ]  # of each record's captions; captions that differ in case or spaces alone have one number
    shared: Int64[
        Tensor, " P"
    ]  # sorted keys image id * 2**32 + caption id, of captions that stand under several images

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Identities":
        """Numbers in order of first appearance, from 0: no id of the user's can be mistaken for an unknown one."""
        images: dict[str, int] = {}
        captions: dict[str, int] = {}
        image_ids = torch.tensor([images.setdefault(record.id, len(images)) for record in records], dtype=torch.int64)
        caption_ids = [
            [captions.setdefault(normalised(caption), len(captions)) for caption in record.captions]
            for record in records
        ]
        counts = torch.tensor([len(numbers) for numbers in caption_ids], dtype=torch.int64)
        flat = torch.tensor([number for numbers in caption_ids for number in numbers], dtype=torch.int64)
        keys = torch.unique(image_ids.repeat_interleave(counts) * KEY_BASE + flat)
        images_of_caption = torch.bincount(keys % KEY_BASE, minlength=len(captions))
        return cls(image_ids=image_ids, caption_ids=caption_ids, shared=keys[images_of_caption[keys % KEY_BASE] > 1])


def normalised(caption: str) -> str:
    """What makes two captions one: letter case and white space are ignored."""
    return " ".join(caption.casefold().split())
