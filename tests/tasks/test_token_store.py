"""Encoded texts kept without padding, in memory and in a scratch file."""

from pathlib import Path

import pytest
import torch

from alignfuse.blocks.tokens import Text
from alignfuse.tasks.token_store import TextStoreWriter


def encoded(lengths: list[int], dtype: torch.dtype) -> Text:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    states = torch.randn(*mask.shape, 6).to(dtype).masked_fill(~mask[..., None], 0.0)
    return Text(torch.randint(1, 99, mask.shape) * mask, mask, states)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("in_file", [False, True])
def test_texts_come_back_padded_to_the_longest_asked_for(tmp_path: Path, dtype: torch.dtype, in_file: bool) -> None:
    writer = TextStoreWriter(tmp_path if in_file else None)
    first, second = encoded([3, 1, 7], dtype), encoded([2, 4], dtype)
    writer.add(first)
    writer.add(second)
    store = writer.finish()
    assert len(list(tmp_path.iterdir())) == in_file
    assert store.lengths.tolist() == [3, 1, 7, 2, 4]
    assert store.ids.shape == (17,)  # no padding is kept

    taken = store.take(torch.tensor([4, 0, 1]), "cpu")
    assert taken.states is not None and first.states is not None and second.states is not None
    assert taken.mask.sum(dim=1).tolist() == [4, 3, 1] and taken.ids.shape == (3, 4)
    assert torch.equal(taken.ids[0], second.ids[1]) and torch.equal(taken.ids[1], first.ids[0, :4])
    assert taken.states.dtype == dtype
    assert torch.equal(taken.states[0], second.states[1]) and torch.equal(taken.states[1], first.states[0, :4])
    assert torch.equal(taken.states[2, 1:], torch.zeros(3, 6, dtype=dtype))

    del store, writer
    assert list(tmp_path.iterdir()) == []
