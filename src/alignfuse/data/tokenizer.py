"""Texts to token ids, one path for training, evaluation and search.

Shapes: B texts, L tokens.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import tokenizers
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.data.cleaning import MAX_WORDS, clean_albef
from alignfuse.data.vocabulary import SPECIALS, read_tokenizer, read_vocabulary, train_vocabulary
from alignfuse.errors import UserError
from alignfuse.files import replace_file
from alignfuse.wording import counted

logger = logging.getLogger(__name__)

_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")  # Thai, Lao, Burmese, Khmer, kana


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What is done to a text beside splitting it."""

    max_tokens: int = 40  # [CLS] and [SEP] included
    end_token: bool = True  # [SEP] at the end; the official ALBEF has none
    clean: Literal["none", "albef"] = "none"
    lower: bool | None = None  # of a vocabulary: None = as a vocab.txt was made, and yes for a new one
    strict: bool = False  # a text that does not fit is an error, not cut

    def __post_init__(self) -> None:
        if self.max_tokens < 3:
            raise ValueError(f"max_tokens must leave room for a word between [CLS] and [SEP], not be {self.max_tokens}")

    def cleaned(self, text: str) -> tuple[str, bool]:
        """The text as it is split, and whether cleaning cut words off."""
        return clean_albef(text) if self.clean == "albef" else (text, False)


DEFAULT = TokenizerConfig()


class Encoded(NamedTuple):
    """Texts padded to the longest of them."""

    text: Text
    maskable: Bool[Tensor, "B L"]  # True = a piece of the text, known to the vocabulary
    words: Int[Tensor, "B L"]  # index of the word that a token belongs to; -1 = special or padding
    cut: int  # number of texts that did not fit


class Tokenizer:
    """Splits, numbers and cuts texts. Pickles, so that spawned workers can hold it.

    Nothing that a user writes becomes a special token: "[MASK]" in a caption is two brackets and a word.
    """

    def __init__(self, core: tokenizers.Tokenizer, config: TokenizerConfig) -> None:
        core.no_truncation()
        core.no_padding()
        core.encode_special_tokens = True  # that is, read them as plain text
        self.core = core
        self.config = config
        vocabulary = core.get_vocab(with_added_tokens=True)
        self.special_ids = tuple(vocabulary[token] for token in SPECIALS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.vocab_size = 1 + max(vocabulary.values())
        self._warned = False

    @classmethod
    def from_file(cls, path: Path, config: TokenizerConfig | None = None) -> "Tokenizer":
        """From a tokenizer.json (which says itself what is lowered), a vocab.txt, or a directory with one of them."""
        if path.is_dir():
            found = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
            if not found:
                raise UserError(f"{path}: holds neither tokenizer.json nor vocab.txt; name one with --vocab")
            path = found[0]
        return cls.from_vocab(path, config) if path.suffix == ".txt" else cls(read_tokenizer(path), config or DEFAULT)

    @classmethod
    def from_vocab(cls, path: Path, config: TokenizerConfig | None = None) -> "Tokenizer":
        """BERT's tokenizer over a vocab.txt."""
        config = config or DEFAULT
        return cls(read_vocabulary(path, lower=config.lower), config)

    @classmethod
    def train(
        cls, captions: Iterable[str], vocab_size: int = 10_000, config: TokenizerConfig | None = None
    ) -> "Tokenizer":
        """At most `vocab_size` word pieces learned from captions; the same captions give the same ids."""
        config = config or DEFAULT
        texts = (config.cleaned(caption)[0] for caption in captions)
        return cls(train_vocabulary(texts, vocab_size=vocab_size, lower=config.lower is not False), config)

    def save(self, path: Path) -> None:
        """As a tokenizer.json; the config belongs to the preprocessing."""
        replace_file(path, lambda partial: partial.write_text(self.core.to_str(pretty=True), encoding="utf-8"))

    def __call__(self, texts: Sequence[str], *, rows: Sequence[str] | None = None) -> Encoded:
        """Ids, masks and words of the texts; an empty text is [CLS] [SEP].

        A text that does not fit keeps its beginning and its end token, is counted, and reported once per tokenizer; if
        the config is strict it is a `UserError` that names its entry in `rows`.
        """
        pieces = [self._split(text) for text in texts]
        cut = self._report(pieces, rows)
        length = max((len(piece.ids) for piece in pieces), default=0)
        ids = _table([piece.ids for piece in pieces], length, self.pad_id)
        mask = _table([[1] * len(piece.ids) for piece in pieces], length, 0).bool()
        words = _table([piece.words for piece in pieces], length, -1)
        return Encoded(Text(ids, mask), mask & ~torch.isin(ids, torch.tensor(self.special_ids)), words, cut)

    def count_long(self, texts: Iterable[str], *, rows: Sequence[str] | None = None) -> int:
        """How many texts do not fit, reported as by a call: over a whole data set before training."""
        return self._report([self._split(text) for text in texts], rows)

    def decode(self, ids: Iterable[int] | Int[Tensor, " L"]) -> str:
        """The text of a row of ids, without [PAD], [CLS] and [SEP]."""
        numbers = ids.tolist() if isinstance(ids, Tensor) else ids
        silent = (self.pad_id, self.cls_id, self.sep_id)
        return self.core.decode([number for number in numbers if number not in silent], skip_special_tokens=False)

    def _split(self, text: str) -> "_Pieces":
        config = self.config
        cleaned, cut = config.cleaned(text)
        encoding = self.core.encode(cleaned.encode(errors="ignore").decode(), add_special_tokens=False)
        room = config.max_tokens - 1 - config.end_token
        end = [self.sep_id] if config.end_token else []
        ids = [self.unk_id if number in self.special_ids else number for number in encoding.ids[:room]]
        words = _words(encoding.word_ids[:room], encoding.tokens[:room])
        return _Pieces([self.cls_id, *ids, *end], [-1, *words, *(-1 for _ in end)], cut or len(encoding.ids) > room)

    def _report(self, pieces: Sequence["_Pieces"], rows: Sequence[str] | None) -> int:
        """The number of texts that were cut; says so on the first call that has one."""
        places = [i for i, piece in enumerate(pieces) if piece.cut]
        if not places or (self._warned and not self.config.strict):
            return len(places)
        first = rows[places[0]] if rows else f"text {places[0] + 1}"
        limit = f"{self.config.max_tokens} tokens" + (f" or {MAX_WORDS} words" if self.config.clean == "albef" else "")
        if self.config.strict:
            raise UserError(f"{first}: the text is longer than {limit}; shorten it, raise max_tokens, or unset strict")
        self._warned = True
        logger.warning(
            "texts that are longer than %s lose their end: %d of %s, the first in %s; raise max_tokens to keep more",
            limit, len(places), counted(len(pieces), "text"), first,
        )  # fmt: skip
        return len(places)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.core.encode_special_tokens = True  # the one setting that the library does not pickle


class _Pieces(NamedTuple):
    ids: list[int]
    words: list[int]
    cut: bool


def _words(word_ids: Sequence[int | None], pieces: Sequence[str]) -> list[int]:
    """Words numbered from 0; where a script sets no spaces, each piece counts as one."""
    words: list[int] = []
    for i, (word, piece) in enumerate(zip(word_ids, pieces, strict=True)):
        starts = i == 0 or word != word_ids[i - 1] or _UNSPACED.search(piece) is not None
        words.append((words[-1] if words else -1) + starts)
    return words


def _table(rows: Sequence[Sequence[int]], length: int, filler: int) -> Int[Tensor, "B L"]:
    padded = [[*row, *[filler] * (length - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), length)
