"""Vision-language models on a user's own image-text pairs: pretrain, adapt, measure and serve."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignfuse.api import Pipeline, load

__all__ = ["Pipeline", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`load` and `Pipeline` bring torch with them: imported on first use."""
    if name in __all__:
        from alignfuse import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
