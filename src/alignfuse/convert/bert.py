"""BERT in the Hugging Face layout: its names, and how its layers are shared out to text and fusion encoder."""

from alignfuse.convert.layout import Sources, module


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
    """The cross-attention of a layer that has one (ALBEF's and BLIP's extension of the layout)."""
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
