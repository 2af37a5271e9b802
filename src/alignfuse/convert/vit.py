"""ViT and DeiT in the timm and in the Hugging Face layout."""

from alignfuse.convert.layout import Sources, module


def timm(ours: str, theirs: str, layers: int) -> Sources:
    """Names of timm's VisionTransformer, which official ALBEF, BLIP and DeiT share."""
    sources: Sources = {f"{ours}.cls_token": (f"{theirs}cls_token",), f"{ours}.positions": (f"{theirs}pos_embed",)}
    sources |= module(f"{ours}.stem", f"{theirs}patch_embed.proj")
    for index in range(layers):
        own, block = f"{ours}.blocks.{index}", f"{theirs}blocks.{index}"
        sources |= {
            **module(f"{own}.attention_norm", f"{block}.norm1"),
            **module(f"{own}.attention.query_key_value", f"{block}.attn.qkv"),
            **module(f"{own}.attention.out", f"{block}.attn.proj"),
            **module(f"{own}.feed_forward_norm", f"{block}.norm2"),
            **module(f"{own}.up", f"{block}.mlp.fc1"),
            **module(f"{own}.down", f"{block}.mlp.fc2"),
        }
    return sources | module(f"{ours}.norm", f"{theirs}norm")
