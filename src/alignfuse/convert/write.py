"""An official ALBEF checkpoint written as one of our run directories."""

from dataclasses import replace
from pathlib import Path

from alignfuse.config import to_dict
from alignfuse.convert import albef
from alignfuse.convert.report import LoadReport
from alignfuse.convert.run import TRAINING_FILE
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.tokenizer import Tokenizer, TokenizerConfig
from alignfuse.errors import UserError
from alignfuse.files import require_empty
from alignfuse.training.checkpoint import export, prepare, write_json, write_tensors

OFFICIAL_TEXT = TokenizerConfig(max_tokens=30, end_token=False, clean="albef")  # 30: its retrieval evaluation


def convert_albef(
    path: Path,
    out: Path,
    *,
    vocab: Path | None = None,
    heads: tuple[int, int] | None = None,
    image_size: tuple[int, int] | None = None,
    trust: bool = False,
    overwrite: bool = False,
) -> LoadReport:
    """Write the model of an official checkpoint to `out`, with teacher and queue beside it.

    vocab: the vocab.txt of bert-base-uncased (official files hold none); without it one beside the checkpoint is taken,
    and where there is none the directory reads no texts, only token ids. heads: see `albef.recognise`.
    """
    remedy = "choose another folder, or replace the model there with --overwrite"
    require_empty(out, remedy=remedy, overwrite=overwrite)
    checkpoint = albef.read(path, heads=heads, trust=trust)
    config = checkpoint.config
    if image_size is not None:
        config = replace(config, image=replace(config.image, image_size=image_size))
    text = replace(OFFICIAL_TEXT, max_tokens=min(OFFICIAL_TEXT.max_tokens, config.text.positions))
    tokenizer = _tokenizer(vocab, path.parent / "vocab.txt", text, config.text.vocab_size)
    converted = albef.build(checkpoint, config)

    prepare(out, overwrite=overwrite)
    write_json(out / "config.json", {"system": "albef", "model": to_dict(config)})
    Preprocessing(image_size=config.image.image_size, text=text).save(out / "preprocessing.json")
    if tokenizer is not None:
        tokenizer.save(out / "tokenizer.json")
    else:
        converted.report.notices.append(f"{out / 'tokenizer.json'} is missing: give vocab, the vocab.txt of BERT")
    beside = {f"teacher.{name}": value for name, value in converted.teacher.state_dict().items()}
    if converted.queue is not None:
        beside |= {f"queue.{name}": value for name, value in converted.queue.state_dict().items()}
    write_tensors(out / TRAINING_FILE, beside)
    export(converted.model, out)
    return converted.report


def _tokenizer(vocab: Path | None, default: Path, config: TokenizerConfig, size: int) -> Tokenizer | None:
    """The tokenizer of the vocabulary, checked against the number of words of the model."""
    if vocab is None and not default.is_file():
        return None
    tokenizer = Tokenizer.from_vocab(vocab or default, config)
    if tokenizer.vocab_size != size:
        raise UserError(
            f"{vocab or default}: {tokenizer.vocab_size} words, but the checkpoint was trained with {size}; "
            "give the vocab.txt that it was trained with"
        )
    return tokenizer
