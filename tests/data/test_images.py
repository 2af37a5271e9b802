"""Every kind of image file comes out as a viewer shows it; what cannot be shown says why."""

import math
import os
import pickle
import random
import struct
import zlib
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from torch import Tensor

from alignfuse.data import colour, images
from alignfuse.data.images import ImageError, from_pillow, load_image, resize
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.records import TarMember
from alignfuse.data.tokenizer import TokenizerConfig
from alignfuse.errors import UserError

RED, GREEN, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (255, 255, 255), (0, 0, 0)


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, format, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def pixel(image: Tensor, row: int = 0, column: int = 0) -> tuple[int, ...]:
    return tuple(image[:, row, column].tolist())


def grey(values: list[list[float]], dtype: str, format: str = "TIFF") -> list[list[int]]:
    """What becomes of an image with these values: its three equal channels as one."""
    image = load_image(encoded(Image.fromarray(np.array(values, dtype=dtype)), format))
    assert torch.equal(image[0], image[1]) and torch.equal(image[1], image[2])
    return image[0].tolist()


def photo(height: int = 120, width: int = 160) -> Image.Image:
    """Smooth, colourful, with some texture."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin(rows / 9 + k) * np.cos(columns / (7 + k)) for k in range(3)]
    noise = np.random.default_rng(0).normal(0, 6, (height, width, 3))
    return Image.fromarray(np.clip(128 + 100 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8))


def rgb_profile(primaries: list[tuple[float, float, float]]) -> bytes:
    """A minimal ICC profile for a display with linear light and these XYZ primaries."""

    def xyz(value: tuple[float, float, float]) -> bytes:
        return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(v * 65536) for v in value))

    text = b"desc" + bytes(4) + struct.pack(">I", 7) + b"swapped" + bytes(4 + 4 + 2 + 1 + 67)
    curve = b"curv" + bytes(4) + struct.pack(">I", 0)
    tags = {b"desc": text, b"cprt": b"text" + bytes(4) + b"none\0", b"wtpt": xyz((0.9642, 1.0, 0.8249))}
    tags |= {name + b"XYZ": xyz(value) for name, value in zip((b"r", b"g", b"b"), primaries, strict=True)}
    tags |= {name + b"TRC": curve for name in (b"r", b"g", b"b")}
    table, body, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, data in tags.items():
        table += name + struct.pack(">II", start + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    size = start + len(body)
    head = struct.pack(">I4sI4s4s4s12s4s", size, b"test", 0x02400000, b"mntr", b"RGB ", b"XYZ ", bytes(12), b"acsp")
    head += bytes(28) + struct.pack(">3i", *(round(v * 65536) for v in (0.9642, 1.0, 0.8249))) + bytes(48)
    return head + table + body


SRGB_PRIMARIES = [(0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)]
SWAPPED = rgb_profile([SRGB_PRIMARIES[1], SRGB_PRIMARIES[0], SRGB_PRIMARIES[2]])  # what it calls red is green


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "value", "shown"),
    [
        ("1", 1, WHITE),
        ("1", 0, BLACK),
        ("L", 200, (200, 200, 200)),
        ("LA", (200, 255), (200, 200, 200)),
        ("LA", (0, 0), WHITE),
        ("LA", (0, 51), (204, 204, 204)),  # a fifth of black on white
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("RGBA", (255, 0, 0, 255), RED),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (255, 0, 0, 102), (255, 153, 153)),
    ],
)
def test_png_modes(mode: str, value: int | tuple[int, ...], shown: tuple[int, ...]) -> None:
    image = load_image(encoded(Image.new(mode, (3, 2), value)))
    assert image.shape == (3, 2, 3) and image.dtype == torch.uint8
    assert pixel(image, 1, 2) == shown


@pytest.mark.parametrize(
    ("mode", "value", "shown"),
    [
        ("CMYK", (0, 255, 255, 0), RED),
        ("CMYK", (0, 0, 0, 255), BLACK),
        ("YCbCr", (255, 128, 128), WHITE),
        ("LAB", (255, 128, 128), WHITE),
        ("HSV", (0, 255, 255), RED),
        ("RGBX", (255, 0, 0, 7), RED),
        ("RGBa", (0, 0, 0, 51), (204, 204, 204)),  # colours already multiplied by the coverage
        ("La", (0, 51), (204, 204, 204)),
        ("PA", (0, 0), WHITE),
    ],
)
def test_modes_that_pillow_opens_or_programs_make(mode: str, value: tuple[int, ...], shown: tuple[int, ...]) -> None:
    image = from_pillow(Image.new(mode, (2, 2), value))
    assert max(abs(a - b) for a, b in zip(pixel(image), shown, strict=True)) <= 1


def test_palette_with_a_transparent_entry() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    assert [pixel(load_image(encoded(image)), 0, c) for c in (0, 1)] == [RED, (0, 0, 255)]
    for format in ("PNG", "GIF"):
        shown = load_image(encoded(image, format, transparency=1))
        assert [pixel(shown, 0, c) for c in (0, 1)] == [RED, WHITE]
    partly = load_image(encoded(image, transparency=bytes([255, 51])))
    assert pixel(partly, 0, 1) == (204, 204, 255)


def test_one_transparent_colour_in_grey_and_rgb() -> None:
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), (9, 8, 7))
    assert pixel(load_image(encoded(image, transparency=(9, 8, 7))), 0, 1) == WHITE
    assert pixel(load_image(encoded(image, transparency=(9, 8, 7))), 0, 0) == RED
    image = Image.new("L", (2, 1), 40)
    assert pixel(load_image(encoded(image, transparency=40))) == WHITE
    assert pixel(load_image(encoded(image, transparency=41))) == (40, 40, 40)
    assert pixel(load_image(encoded(Image.new("1", (2, 1), 0), transparency=0))) == WHITE


def test_16_bit_grey_is_scaled_not_clipped() -> None:
    values = [[0, 256, 32768, 65535]]
    for format in ("PNG", "TIFF", "PPM"):
        assert grey(values, "uint16", format) == [[0, 1, 128, 255]]
    assert grey([[40000, 40000]], "uint16", "PNG") == [[156, 156]]  # no stretching: 40000 / 257 = 155.6


def test_16_bit_rgb_is_scaled_not_clipped() -> None:
    """Written by hand: Pillow does not write it."""
    rows = b"\0" + struct.pack(">6H", 65535, 256, 0, 32768, 0, 65535)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">2I5B", 2, 1, 16, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    image = load_image(png)
    assert pixel(image) == (255, 1, 0)
    assert pixel(image, 0, 1) == (128, 0, 255)


def test_wide_integers_and_floats() -> None:
    assert grey([[0, 100, 255]], "int32") == [[0, 100, 255]]
    assert grey([[0, 257, 65535]], "int32") == [[0, 1, 255]]
    assert grey([[-1000, 0, 3000]], "int32") == [[0, 64, 255]]  # tomography: from minimum to maximum
    assert grey([[0, 50000, 100000]], "int32") == [[0, 128, 255]]
    assert grey([[0.0, 0.2, 1.0]], "float32") == [[0, 51, 255]]
    assert grey([[0.0, 100.4, 255.0]], "float32") == [[0, 100, 255]]
    assert grey([[-1.0, 0.0, 1.0]], "float32") == [[0, 128, 255]]
    assert grey([[math.nan, 0.2, math.inf]], "float32") == [[51, 51, 51]]
    assert grey([[-5.0, -5.0]], "float32") == [[0, 0]]


def test_12_bits_in_16_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    colour._warn_of_dim_images.cache_clear()
    for _ in range(3):
        assert grey([[0, 4095]], "uint16", "PNG") == [[0, 16]]
    assert ["12-bit" in record.message for record in caplog.records] == [True]


# --- JPEG, inks, profiles, orientation ------------------------------------------------------------------------------


def without_segment(jpeg: bytes, marker: int) -> bytes:
    """The JPEG without its segments of one kind."""
    out, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        length = 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        if jpeg[at + 1] != marker:
            out += jpeg[at : at + length]
        at += length
    return out + jpeg[at:]


def test_cmyk_jpeg_with_and_without_the_mark_of_adobe() -> None:
    ink = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    marked = encoded(ink, "JPEG", quality=100)  # Pillow writes inverted values and Adobe's mark
    assert b"Adobe" in marked
    inverted = Image.new("CMYK", (8, 8), (255, 0, 0, 255))
    plain = without_segment(encoded(inverted, "JPEG", quality=100), 0xEE)
    assert b"Adobe" not in plain
    for data in (marked, plain):
        assert max(abs(a - b) for a, b in zip(pixel(load_image(data), 4, 4), RED, strict=True)) <= 4


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_profile_is_converted_to_srgb(format: str) -> None:
    options = {"quality": 100} if format == "JPEG" else {"lossless": True} if format == "WEBP" else {}
    data = encoded(Image.new("RGB", (16, 16), RED), format, icc_profile=SWAPPED, **options)
    assert max(abs(a - b) for a, b in zip(pixel(load_image(data), 8, 8), GREEN, strict=True)) <= 6


def test_profile_of_linear_light_brightens_the_middle() -> None:
    data = encoded(Image.new("RGB", (2, 2), (55, 55, 55)), icc_profile=rgb_profile(SRGB_PRIMARIES))
    expected = 255 * (1.055 * (55 / 255) ** (1 / 2.4) - 0.055)  # the sRGB curve
    assert abs(pixel(load_image(data))[1] - expected) <= 2


def test_profile_and_transparency_together() -> None:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (255, 0, 0, 0))
    shown = load_image(encoded(image, icc_profile=SWAPPED))
    assert max(abs(a - b) for a, b in zip(pixel(shown), GREEN, strict=True)) <= 6
    assert pixel(shown, 0, 1) == WHITE
    palette = Image.new("RGB", (2, 2), RED).quantize()
    assert pixel(load_image(encoded(palette, icc_profile=SWAPPED)))[1] > 249


@pytest.mark.parametrize("profile", [b"not a profile", SWAPPED[:200]])
def test_a_damaged_profile_is_left_out(profile: bytes) -> None:
    assert pixel(load_image(encoded(Image.new("RGB", (2, 2), RED), icc_profile=profile))) == RED


def test_a_profile_of_another_kind_of_image_is_left_out() -> None:
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    assert pixel(load_image(encoded(Image.new("L", (2, 2), 77), icc_profile=SWAPPED))) == (77, 77, 77)
    assert pixel(load_image(encoded(Image.new("RGB", (2, 2), RED), icc_profile=lab))) == RED


ORIENTATIONS = {  # what a viewer does to the stored picture [[0, 1, 2], [3, 4, 5]]
    1: [[0, 1, 2], [3, 4, 5]],
    2: [[2, 1, 0], [5, 4, 3]],
    3: [[5, 4, 3], [2, 1, 0]],
    4: [[3, 4, 5], [0, 1, 2]],
    5: [[0, 3], [1, 4], [2, 5]],
    6: [[3, 0], [4, 1], [5, 2]],
    7: [[5, 2], [4, 1], [3, 0]],
    8: [[2, 5], [1, 4], [0, 3]],
}


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [*ORIENTATIONS, 0, 9])
def test_orientation(format: str, orientation: int) -> None:
    stored = np.kron(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40, np.ones((16, 16), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if format == "JPEG" else {"lossless": True} if format == "WEBP" else {}
    image = load_image(encoded(Image.fromarray(stored).convert("RGB"), format, exif=exif, **options))
    shown = (image[0, 8::16, 8::16].float() / 40).round().int().tolist()
    assert shown == ORIENTATIONS.get(orientation, ORIENTATIONS[1])


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_is_left_out() -> None:
    data = encoded(photo(), "JPEG", exif=b"Exif\0\0MM\0\x2a\0\0\0\xff" + bytes(range(40)))
    assert load_image(data).shape == (3, 120, 160)


def test_animations_show_their_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN)]
    for format in ("GIF", "PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if format == "WEBP" else {}
        data = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
        with Image.open(BytesIO(data)) as opened:
            assert getattr(opened, "n_frames", 1) == 2
        assert pixel(load_image(data)) == RED


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2, "quality": 30}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(120, 160), (31, 57), (1, 1)])
def test_fast_jpeg_path_equals_pillow(
    options: dict[str, object], mode: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg")
    data = encoded(photo(*size).convert(mode), "JPEG", **options)
    fast = resize(load_image(data), (64, 64))
    monkeypatch.setattr(images, "_simplejpeg", lambda: None)
    general = resize(load_image(data), (64, 64))
    assert (fast.int() - general.int()).abs().max() <= 2


def test_fast_jpeg_path_equals_pillow_on_real_files(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = pytest.importorskip("simplejpeg")
    paths = [path for folder in ("stamps", "clipart", "vqa_rad") for path in (shared / "data" / folder).rglob("*.jpg")]
    worst = 0
    for path in random.Random(0).sample(sorted(paths), 60):
        monkeypatch.setattr(images, "_simplejpeg", lambda: decoder)
        fast = resize(load_image(path), (256, 256))
        monkeypatch.setattr(images, "_simplejpeg", lambda: None)
        worst = max(worst, int((fast.int() - resize(load_image(path), (256, 256)).int()).abs().max()))
    assert worst <= 2


def test_resize_is_pillows_antialiased_bicubic() -> None:
    image = photo()
    for size in ((64, 64), (30, 200), (1, 1)):
        expected = np.asarray(image.resize(size[::-1], Image.Resampling.BICUBIC)).astype(int)
        got = resize(load_image(encoded(image)), size).permute(1, 2, 0).numpy().astype(int)
        assert got.shape == (*size, 3)
        assert np.abs(got - expected).max() <= 1


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 30000)])
def test_tiny_and_extreme_shapes(size: tuple[int, int]) -> None:
    image = load_image(encoded(Image.new("RGB", size, (10, 20, 30))))
    assert image.shape == (3, size[1], size[0])
    assert pixel(resize(image, (32, 32)), 31, 31) == (10, 20, 30)


# --- what cannot be used --------------------------------------------------------------------------------------------


def refusal(source: Path | TarMember | bytes) -> str:
    with pytest.raises(ImageError) as caught:
        load_image(source)
    assert isinstance(caught.value, UserError)
    return str(caught.value)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_truncated_file(tmp_path: Path, format: str) -> None:
    data = encoded(photo(), format)
    path = tmp_path / f"photo.{format.lower()}"
    path.write_bytes(data[: len(data) // 2])
    message = refusal(path)
    assert message.startswith(f"{path}: ") and len(message) > len(f"{path}: ") + 10


def test_empty_text_missing_and_folder(tmp_path: Path) -> None:
    empty, text, folder = tmp_path / "empty.jpg", tmp_path / "text.jpg", tmp_path / "folder.jpg"
    empty.write_bytes(b"")
    text.write_text("<!DOCTYPE html><title>404 Not Found</title>")
    folder.mkdir()
    assert refusal(empty) == f"{empty}: the file is empty (0 bytes)"
    assert refusal(text).startswith(f"{text}: not an image: it begins with the text '<!DOCTYPE html>")
    assert refusal(tmp_path / "a b" / "gone.jpg") == f"{tmp_path / 'a b' / 'gone.jpg'}: no such file or directory"
    assert refusal(folder) == f"{folder}: is a directory"
    assert refusal(b"") == "image given as bytes: the file is empty (0 bytes)"
    assert "not an image" in refusal(bytes(range(256)))
    assert "HEIC" in refusal(b"\0\0\0\x18ftypheic" + bytes(50))


def test_decompression_bomb() -> None:
    small = encoded(Image.new("L", (7, 7)))
    header = b"IHDR" + struct.pack(">2I5B", 60000, 60000, 8, 0, 0, 0, 0)
    assert small[12:16] == b"IHDR"
    assert "too large" in refusal(small[:12] + header + struct.pack(">I", zlib.crc32(header)) + small[33:])


def test_postscript_is_no_image() -> None:
    assert "PostScript" in refusal(encoded(Image.new("RGB", (4, 4)), "EPS"))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about tags
def test_damaged_bytes_give_an_image_or_an_image_error() -> None:
    """Whatever a decoder makes of noise, nothing but an `ImageError` comes out."""
    rng = random.Random(0)
    outcomes = {"image": 0, "error": 0}
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        clean = encoded(photo(24, 32), format)
        for _ in range(60):
            data = bytearray(clean)
            for _ in range(rng.randint(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                assert load_image(bytes(data)).shape[0] == 3
                outcomes["image"] += 1
            except ImageError:
                outcomes["error"] += 1
    assert min(outcomes.values()) > 20


def test_error_pickles_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(ImageError(Path("a.jpg"), "is broken")))
    assert (str(error), error.source, error.reason) == ("a.jpg: is broken", Path("a.jpg"), "is broken")


# --- tar members ----------------------------------------------------------------------------------------------------


def tar(path: Path) -> list[TarMember]:
    """A pretence of a tar: images one after another, each of its own grey."""
    members = []
    with open(path, "wb") as file:
        for level in range(8):
            data = encoded(Image.new("L", (5, 5), level * 30))
            file.write(bytes(512))
            members.append(TarMember(path, f"{level}.png", file.tell(), len(data)))
            file.write(data)
    return members


def level(member: TarMember) -> int:
    return pixel(load_image(member))[0]


def test_tar_members(tmp_path: Path) -> None:
    members = tar(tmp_path / "a b.tar")
    assert [level(member) for member in members] == [0, 30, 60, 90, 120, 150, 180, 210]
    beyond = TarMember(members[0].path, "late.png", members[-1].offset, members[-1].size + 10)
    assert "late.png" in refusal(beyond) and "archive ends" in refusal(beyond)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_tar_members_in_forked_workers(tmp_path: Path) -> None:
    members = tar(tmp_path / "set.tar")
    load_image(members[3])  # whatever is open in the parent must not be shared
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as workers:
        assert list(workers.map(level, members * 5)) == [0, 30, 60, 90, 120, 150, 180, 210] * 5


# --- preprocessing --------------------------------------------------------------------------------------------------


def test_preprocessing_squashes_the_whole_image_and_round_trips(tmp_path: Path) -> None:
    preprocessing = Preprocessing(image_size=(32, 48), text=TokenizerConfig(max_tokens=25, clean="albef"))
    picture = torch.zeros(3, 20, 100, dtype=torch.uint8)
    picture[:, :, 50:] = 200
    squashed = preprocessing(picture)
    assert squashed.shape == (3, 32, 48) and squashed.is_contiguous()
    assert pixel(squashed, 16, 5) == BLACK and pixel(squashed, 16, 42) == (200, 200, 200)
    path = tmp_path / "preprocessing.json"
    preprocessing.save(path)
    assert Preprocessing.load(path) == preprocessing
    path.write_text('{"image_size": [32, 32], "text": {"max_token": 3}}')
    with pytest.raises(UserError, match="max_tokens"):
        Preprocessing.load(path)
