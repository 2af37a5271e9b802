"""WordPiece tokenizers of the `tokenizers` library: BERT's from a vocab.txt, or trained on captions of any script."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from alignfuse.errors import UserError

UNK = "[UNK]"
SPECIALS = ("[PAD]", UNK, "[CLS]", "[SEP]", "[MASK]")

# BERT gives up on longer words. A sentence in a script without spaces is one word, so ours may be longer.
_BERT_WORD, _OWN_WORD = 100, 500


def read_vocabulary(path: Path, *, lower: bool | None) -> Tokenizer:
    """The tokenizer of BERT for a vocab.txt, one piece a line; ids are line numbers.

    `lower` None: lower case (and no accents, as BERT has it) unless more than one piece in a hundred has capitals.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary: {error}") from error
    vocabulary = {piece: index for index, piece in enumerate(lines)}
    if lower is None:
        capitals = sum(piece != piece.lower() for piece in vocabulary if not piece.startswith("["))
        lower = capitals <= len(vocabulary) / 100
    missing = [token for token in SPECIALS if token not in vocabulary]
    if missing:
        raise UserError(f"{path}: the vocabulary lacks {', '.join(missing)}; add a line for each")
    steps = [normalizers.NFC(), normalizers.BertNormalizer(lowercase=lower)]
    return _assemble(vocabulary, normalizers.Sequence(steps), _BERT_WORD)


def train_vocabulary(
    captions: Iterable[str], *, vocab_size: int, lower: bool = True, min_frequency: int = 2
) -> Tokenizer:
    """A tokenizer of at most `vocab_size` pieces, a function of the captions alone (their order does not matter).

    Accents and vowel signs stay: most scripts cannot do without them. Every character that finds room stands in the
    vocabulary both at the beginning and inside of words, so that new words of known characters are never unknown.
    """
    captions = list(captions)
    normalizer = _normalizer(lower)
    counts = Counter(char for caption in captions for char in normalizer.normalize_str(caption) if not char.isspace())
    if not counts:
        raise UserError("no vocabulary can be trained: the captions hold no text")
    room = (vocab_size - len(SPECIALS)) // 2
    if room < 1:
        raise UserError(f"a vocabulary of {vocab_size} has no room for characters: take 1000 or more")
    alphabet = sorted(sorted(counts, key=lambda char: (-counts[char], char))[:room])
    # As special tokens the characters get their ids in this order; the trainer's own order changes from run to run,
    # and with it which of two equally frequent pairs is merged.
    fixed = [*SPECIALS, *alphabet, *(f"##{char}" for char in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=fixed,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token=UNK))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(captions, trainer)
    return _assemble(learner.get_vocab(with_added_tokens=False), normalizer, _OWN_WORD)


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json of the `tokenizers` library, whatever made it."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises the bare class
        raise UserError(f"{path}: cannot be read as a tokenizer: {error}") from error
    missing = [token for token in SPECIALS if tokenizer.token_to_id(token) is None]
    if missing:
        raise UserError(f"{path}: the tokenizer lacks {', '.join(missing)}, which the models here need")
    return tokenizer


def _assemble(vocabulary: dict[str, int], normalizer: normalizers.Normalizer, longest: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNK, max_input_chars_per_word=longest))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens([token for token in SPECIALS if token in vocabulary])
    return tokenizer


def _normalizer(lower: bool) -> normalizers.Normalizer:
    """Composed characters, spaces around ideographs, no control characters.

    The joiners U+200C and U+200D stay, since they change letters; the zero-width space ends a word where Thai and Khmer
    writers set it.
    """
    steps: Sequence[normalizers.Normalizer] = [
        normalizers.NFC(),
        normalizers.Replace("\u200b", " "),
        normalizers.Replace(Regex(r"(?![\s\u200c\u200d])[\p{Cc}\p{Cf}]"), ""),
        normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=lower),
    ]
    return normalizers.Sequence(list(steps))
