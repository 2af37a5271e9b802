"""The caption cleaning of the official ALBEF code."""

import re

_TABLE = str.maketrans({**dict.fromkeys(",.'!?\"()*#:;~"), "-": " ", "/": " "})
MAX_WORDS = 30


def clean_albef(caption: str) -> tuple[str, bool]:
    """The caption in lower case without punctuation, at most 30 words, and whether words were cut off."""
    text = caption.lower().translate(_TABLE).replace("<person>", "person")
    text = re.sub(r"\s{2,}", " ", text).rstrip("\n").strip(" ")
    words = text.split(" ")
    return " ".join(words[:MAX_WORDS]), len(words) > MAX_WORDS
