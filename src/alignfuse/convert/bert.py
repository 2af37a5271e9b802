"""BERT in the Hugging Face layout, also with the cross-attention that ALBEF adds to it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from alignfuse.blocks.text import TextConfig
from alignfuse.convert.files import read_settings, tied
from alignfuse.convert.layout import Sources, count_layers, module
from alignfuse.convert.source import TEXT_PARTS, Source, guess_heads
from alignfuse.errors import UserError

HEAD = "cls"  # the vocabulary head, whatever stands before the encoder's names
LEFT_OUT = (
    "pooler.",
    "encoder.layer.",
    "embeddings.",
)  # behind the prefix; layers = those that a shallower model drops
OTHER_HEADS = ("cls.seq_relationship.", "classifier.", "qa_outputs.")


def embeddings(ours: str, theirs: str) -> Sources:
    """Word, position and type tables and their LayerNorm."""
    tables = {"word": "word_embeddings", "position": "position_embeddings", "token_type": "token_type_embeddings"}
    sources: Sources = {f"{ours}.{own}.weight": (f"{theirs}.{name}.weight",) for own, name in tables.items()}
    return sources | module(f"{ours}.norm", f"{theirs}.LayerNorm")


def layer(ours: str, theirs: str) -> Sources:
    """One layer without cross-attention."""
    attention = f"{theirs}.attention.self"
    return {
        **module(f"{ours}.attention.query_key_value", f"{attention}.query", f"{attention}.key", f"{attention}.value"),
        **module(f"{ours}.attention.out", f"{theirs}.attention.output.dense"),
        **module(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
        **module(f"{ours}.up", f"{theirs}.intermediate.dense"),
        **module(f"{ours}.down", f"{theirs}.output.dense"),
        **module(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm"),
    }


def cross_attention(ours: str, theirs: str) -> Sources:
    """The cross-attention of a layer that has one."""
    attention = f"{theirs}.crossattention.self"
    return {
        **module(f"{ours}.cross.query", f"{attention}.query"),
        **module(f"{ours}.cross.key_value", f"{attention}.key", f"{attention}.value"),
        **module(f"{ours}.cross.out", f"{theirs}.crossattention.output.dense"),
        **module(f"{ours}.cross_norm", f"{theirs}.crossattention.output.LayerNorm"),
    }


def masked_language_head(ours: str, theirs: str) -> Sources:
    """The vocabulary head; its output matrix is the word table."""
    return {
        **module(f"{ours}.dense", f"{theirs}.predictions.transform.dense"),
        **module(f"{ours}.norm", f"{theirs}.predictions.transform.LayerNorm"),
        f"{ours}.bias": (f"{theirs}.predictions.bias",),
    }


def names(config: TextConfig, prefix: str, head: str) -> Sources:
    """Text encoder, fusion encoder and vocabulary head: the first layers are the text encoder's, the next fuse."""
    found = embeddings("text_encoder.embeddings", f"{prefix}embeddings")
    for index in range(config.layers):
        found |= layer(f"text_encoder.blocks.{index}", f"{prefix}encoder.layer.{index}")
    for index in range(config.fusion_layers):
        ours, theirs = f"fusion_encoder.blocks.{index}", f"{prefix}encoder.layer.{config.layers + index}"
        found |= layer(ours, theirs) | cross_attention(ours, theirs)
    return found | masked_language_head("mask_head", head)


def sizes(state: Mapping[str, Tensor], prefix: str) -> TextConfig:
    """The config that the shapes tell; fusion layers are those with cross-attention; the heads are a guess."""
    words = state[f"{prefix}embeddings.word_embeddings.weight"]
    layers = count_layers(state, f"{prefix}encoder.layer")
    crossed = [f"{prefix}encoder.layer.{index}.crossattention.self.query.weight" for index in range(layers)]
    fusion_layers = sum(name in state for name in crossed)
    return TextConfig(
        vocab_size=words.shape[0],
        width=words.shape[1],
        layers=layers - fusion_layers,
        fusion_layers=fusion_layers,
        heads=guess_heads(words.shape[1]),
        hidden=state[f"{prefix}encoder.layer.0.intermediate.dense.weight"].shape[0],
        positions=state[f"{prefix}embeddings.position_embeddings.weight"].shape[0],
    )


def recognise(path: Path, state: dict[str, Tensor]) -> Source | None:
    """BERT with the names of `BertModel`, or of a model that holds it as `bert`; None where it is something else.

    Its config gives half of the layers to the fusion encoder, as ALBEF does; cross-attention is new there.
    """
    state = {_modern(name): value for name, value in state.items()}
    prefix = next((p for p in ("", "bert.") if f"{p}embeddings.word_embeddings.weight" in state), None)
    if prefix is None:
        return None
    settings = read_settings(path)
    _check_family(path, settings)
    for name, twin in (
        (f"{HEAD}.predictions.decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        (f"{HEAD}.predictions.decoder.bias", f"{HEAD}.predictions.bias"),
    ):
        if tied(state, name, twin):
            del state[name]
    headless = f"{HEAD}.predictions.bias" not in state
    config = sizes(state, prefix)
    return Source(
        path=path,
        state=state,
        text=replace(
            config,
            layers=config.layers - config.layers // 2,
            fusion_layers=config.layers // 2,
            heads=settings.get("num_attention_heads", config.heads),
            eps=settings.get("layer_norm_eps", config.eps),
        ),
        names=lambda config: names(config.text, prefix, HEAD),
        parts=TEXT_PARTS,
        lacks=lambda name: ".cross" in name or (headless and name.startswith("mask_head.")),
        left_out=tuple(prefix + name for name in LEFT_OUT) + OTHER_HEADS,
        heads="stated" if "num_attention_heads" in settings else "guessed",
    )


def _modern(name: str) -> str:
    """LayerNorm's parameters were called gamma and beta in the first BERT files."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _check_family(path: Path, settings: dict[str, Any]) -> None:
    """Refuse relatives whose tensors have the same names and mean something else."""
    family = settings.get("model_type", "bert")
    activation = settings.get("hidden_act", "gelu")
    positions = settings.get("position_embedding_type", "absolute")
    if family != "bert" or activation != "gelu" or positions != "absolute":
        raise UserError(
            f"{path}: config.json says {family}, {activation}, {positions} positions; text encoders are read from BERT "
            "with gelu and absolute positions"
        )
