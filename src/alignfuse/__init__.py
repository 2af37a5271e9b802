"""Vision-language models on a user's own image-text pairs: pretrain, adapt, measure and serve."""

__version__ = "0.1.0"
