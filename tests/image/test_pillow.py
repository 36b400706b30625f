"""Our decoders and resize against Pillow's, byte for byte."""

import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from picture_tool import Failure, SAMPLES, Tool, chunk, make_png

WIDTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100, 321, 640, 1000, 1600, 2000]


@pytest.fixture(scope="module")
def tool():
    tool = Tool()
    yield tool
    tool.close()


def noise(h, w, c, seed=0):
    """Smooth shapes and noise together: both halves of a codec get work."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    waves = 128 + 90 * np.sin(x[..., None] / (7 + np.arange(c)) + y[..., None] / 11)
    return np.clip(waves + rng.integers(-35, 36, (h, w, c)), 0, 255).astype(np.uint8)


def pillow_rgb(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def assert_equals_pillow(tool, data):
    ours, theirs = tool.decode_rgb(data), pillow_rgb(data)
    assert ours.shape == theirs.shape
    assert np.array_equal(ours, theirs)


def saved(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


# ---- resize ---------------------------------------------------------------------------------


def random_sizes(n):
    rng = random.Random(20)
    for _ in range(n):
        # Half log-uniform, so that small sides get their share; long times long is cut.
        size = [max(1, round(2 ** rng.uniform(0, 11))) for _ in range(4)]
        if size[0] * size[1] > 1_500_000:
            size[1] = max(1, 1_500_000 // size[0])
        yield tuple(size)


def check_resize(tool, w, h, dw, dh, plane):
    theirs = np.asarray(Image.fromarray(plane).resize((dw, dh), Image.BILINEAR))
    ours = tool.resize(plane, dw, dh)
    assert np.array_equal(ours, theirs), (w, h, dw, dh)


def test_resize_random_sizes(tool):
    for i, (w, h, dw, dh) in enumerate(random_sizes(400)):
        plane = np.random.default_rng(i).integers(0, 256, (h, w), np.uint8)
        check_resize(tool, w, h, dw, dh, plane)


@pytest.mark.parametrize("w", WIDTHS)
@pytest.mark.parametrize("h", [1, 2, 9, 16, 427, 900])
def test_resize_to_network_input(tool, w, h):
    plane = noise(h, w, 1)[..., 0]
    check_resize(tool, w, h, 640, 480, plane)
    check_resize(tool, w, h, w, h + 1, plane)
    check_resize(tool, w, h, w, h, plane)


def test_resize_extremes(tool):
    for value in (0, 1, 254, 255):
        for size in ((1, 1, 640, 480), (65535, 2, 8, 8), (2, 65535, 8, 8), (30000, 3, 1, 1)):
            plane = np.full((size[1], size[0]), value, np.uint8)
            check_resize(tool, *size, plane)
    for size in ((65535, 3, 640, 1), (3, 65535, 5, 480), (40000, 1, 39999, 1)):
        check_resize(tool, *size, np.random.default_rng(1).integers(0, 256, size[1::-1], np.uint8))


# ---- planes ---------------------------------------------------------------------------------

FORMATS = {1: "L", 3: "RGB", 4: "RGBA", 5: "BGR", 6: "BGRA"}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("width", [1, 5, 16, 33, 100])
@pytest.mark.parametrize("padding", [0, 13])
@pytest.mark.parametrize("bottom_up", [False, True])
def test_plane(tool, format, width, padding, bottom_up):
    height, channels = 7, len(FORMATS[format])
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, channels), np.uint8)
    rows = pixels[::-1] if bottom_up else pixels
    stride = width * channels + padding
    data = b"".join(row.tobytes() + b"\xa5" * padding for row in rows)
    data = data[: len(data) - padding] if not bottom_up else data
    colours = pixels[..., :3][..., ::-1] if FORMATS[format].startswith("B") else pixels[..., :3]
    if format == 1:
        red = luma = pixels[..., 0]
    else:
        red = colours[..., 0]
        luma = np.asarray(Image.fromarray(np.ascontiguousarray(colours)).convert("L"))
    for crop_width, crop_height in ((width, height), (max(1, width - 3), 4)):
        for gray, plane in enumerate((red, luma)):
            given = -stride if bottom_up else (0 if padding == 0 else stride)
            ours = tool.plane(data, format, gray, width, height, crop_width, crop_height, given)
            assert np.array_equal(ours, plane[:crop_height, :crop_width])


@pytest.mark.parametrize(
    "format, width, height, stride, word",
    [(2, 4, 4, 0, "format"), (3, 0, 4, 0, "sides"), (3, 4, 0, 0, "sides"), (3, 4, 2, 11, "stride"),
     (3, 4, 2, -11, "stride")],
)
def test_wrong_images(tool, format, width, height, stride, word):
    with pytest.raises(Failure) as failure:
        tool.plane(bytes(64), format, 0, width, height, 1, 1, stride)
    assert failure.value.status == 1 and word in failure.value.message


# ---- PNG ------------------------------------------------------------------------------------

PNG_KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4),
             (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)]
PNG_SIZES = [(1, 1), (2, 3), (5, 1), (1, 9), (7, 8), (8, 8), (9, 17), (33, 20)]


def png_of(color_type, depth, interlaced, w, h, before=b"", short_palette=False):
    rng = np.random.default_rng(w * 100 + h + depth)
    samples = rng.integers(0, 1 << depth, (h, w, SAMPLES[color_type]))
    palette = None
    if color_type == 3:
        n = 1 << depth
        palette = rng.integers(0, 256, 3 * (n // 2 if short_palette else n), np.uint8).tobytes()
    return samples, make_png(samples, depth, color_type, interlaced, before, palette=palette)


@pytest.mark.parametrize("color_type, depth", PNG_KINDS)
@pytest.mark.parametrize("interlaced", [False, True])
def test_png(tool, color_type, depth, interlaced):
    for w, h in PNG_SIZES:
        samples, data = png_of(color_type, depth, interlaced, w, h)
        pixels = tool.decode(data)[0]
        assert pixels.shape[2] == (1 if color_type in (0, 4) else 3)
        if (color_type, depth) == (0, 16):
            # Pillow 9.4 turns 16-bit grey white; the high byte is this program's stated choice.
            assert np.array_equal(pixels, samples >> 8)
        else:
            assert_equals_pillow(tool, data)


@pytest.mark.parametrize("color_type, depth", PNG_KINDS)
def test_png_transparency_is_dropped(tool, color_type, depth):
    if color_type in (4, 6):
        return  # these carry alpha in every pixel: test_png has them
    trns = {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: bytes(range(min(200, 1 << depth)))}
    samples, plain = png_of(color_type, depth, False, 33, 20)
    _, data = png_of(color_type, depth, False, 33, 20, chunk(b"tRNS", trns[color_type]))
    assert np.array_equal(tool.decode(data)[0], tool.decode(plain)[0])
    if (color_type, depth) != (0, 16):
        assert_equals_pillow(tool, data)


def test_png_palette_without_all_entries(tool):
    for depth in (1, 2, 4, 8):
        assert_equals_pillow(tool, png_of(3, depth, False, 33, 20, short_palette=True)[1])


def test_png_transparency_longer_than_the_palette(tool):
    _, data = png_of(3, 2, False, 9, 9, chunk(b"tRNS", bytes(200)))
    assert np.array_equal(tool.decode(data)[0], tool.decode(png_of(3, 2, False, 9, 9)[1])[0])


def test_png_side_chunks_are_stepped_over(tool):
    plain = png_of(2, 8, False, 33, 20)[1]
    icc = b"icc\0\0" + zlib.compress(np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8))
    wrong = chunk(b"tEXt", b"crc", crc=1) + chunk(b"gAMA", b"short") + chunk(b"zzZz", b"")
    for before in (chunk(b"iCCP", icc), chunk(b"gAMA", struct.pack(">I", 220000)), wrong):
        data = png_of(2, 8, False, 33, 20, before)[1]
        assert np.array_equal(tool.decode(data)[0], tool.decode(plain)[0])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_saved_by_pillow(tool, mode):
    image = Image.fromarray(noise(61, 83, 4), "RGBA")
    image = image.convert("RGB").quantize(50) if mode == "P" else image.convert(mode)
    assert_equals_pillow(tool, saved(image, "PNG"))


# ---- JPEG -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}])
def test_jpeg_small_sizes(tool, subsampling, options):
    for w in range(1, 18):
        for h in (1, 2, 7, 8, 9, 15, 16, 17):
            image = Image.fromarray(noise(h, w, 3, w * 20 + h))
            assert_equals_pillow(tool, saved(image, "JPEG", subsampling=subsampling, **options))


@pytest.mark.parametrize("quality", [1, 30, 75, 95, 100])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_qualities(tool, quality, mode, progressive):
    image = Image.fromarray(noise(203, 317, 4), "RGBA" if mode != "CMYK" else "CMYK")
    data = saved(image.convert(mode), "JPEG", quality=quality, progressive=progressive)
    assert tool.decode(data)[0].shape[2] == (1 if mode == "L" else 3)
    assert_equals_pillow(tool, data)


def split_jpeg(data):
    """Segments before the scan as (marker, payload), and the rest."""
    at, segments = 2, []
    while True:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if marker == 0xDA:
            return segments, data[at:]
        segments.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length


def join_jpeg(segments, rest):
    parts = [b"\xff\xd8"]
    for marker, payload in segments:
        parts.append(struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload)
    return b"".join(parts) + rest


def with_adobe(data, transform):
    """The same scan under another Adobe marker, or none: the decoder must read it anew."""
    segments, rest = split_jpeg(data)
    segments = [s for s in segments if s[0] not in (0xEE, 0xE0)]
    if transform is not None:
        segments.insert(0, (0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform])))
    return join_jpeg(segments, rest)


@pytest.mark.parametrize("transform", [None, 0, 1, 2])
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_jpeg_adobe_marker(tool, mode, transform):
    channels = {"RGB": 3, "CMYK": 4}[mode]
    image = Image.fromarray(noise(67, 129, channels), mode)
    for subsampling in (0, 2):
        data = saved(image, "JPEG", quality=90, subsampling=subsampling)
        assert_equals_pillow(tool, with_adobe(data, transform))


def test_jpeg_cmyk_every_pair(tool):
    """All pairs of ink and black, as flat 8 x 8 blocks at quality 100."""
    for first in range(0, 256, 64):
        inks = np.arange(256)[:, None], np.arange(first, first + 64)[None, :]
        cmyk = np.zeros((256, 64, 4), np.uint8)
        cmyk[..., 0], cmyk[..., 3] = inks
        cmyk[..., 1], cmyk[..., 2] = 255 - inks[0], inks[0] ^ 85
        image = Image.fromarray(cmyk.repeat(8, 0).repeat(8, 1), "CMYK")
        assert_equals_pillow(tool, saved(image, "JPEG", quality=100, subsampling=0))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("arithmetic", [False, True])
def test_jpeg_restart_markers_and_arithmetic_coding(tool, arithmetic, progressive):
    for restart in (0, 1, 2, 9, 1000):
        data = tool.encode_jpeg(noise(97, 131, 3), restart, arithmetic, progressive)
        assert (b"\xff\xdd" in data) == (restart > 0)
        assert_equals_pillow(tool, data)


def test_jpeg_with_bytes_behind_it(tool):
    data = saved(Image.fromarray(noise(40, 50, 3)), "JPEG")
    assert_equals_pillow(tool, data + b"more, as phones append")


# ---- WebP -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 40}, {"quality": 95}])
def test_webp(tool, mode, options):
    for w, h in ((1, 1), (3, 2), (17, 16), (83, 61), (320, 243)):
        image = Image.fromarray(noise(h, w, len(mode)), mode)
        assert_equals_pillow(tool, saved(image, "WEBP", exact=True, **options))


def test_webp_animation_gives_the_first_frame(tool):
    frames = [Image.fromarray(noise(60, 80, 4, i), "RGBA") for i in range(3)]
    for options in ({"lossless": True}, {"quality": 60}, {"lossless": True, "exact": True}):
        data = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], **options)
        assert b"ANMF" in data
        assert_equals_pillow(tool, data)


def test_webp_animation_with_a_small_first_frame(tool):
    inner = saved(Image.fromarray(noise(20, 30, 3)), "WEBP", lossless=True)[12:]
    u24 = lambda v: struct.pack("<I", v)[:3]
    frame = u24(4) + u24(3) + u24(29) + u24(19) + u24(100) + b"\0" + inner
    body = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + u24(63) + u24(47)
    body += b"ANIM" + struct.pack("<I", 6) + b"\xff\xff\xff\xff\0\0"
    body += b"ANMF" + struct.pack("<I", len(frame)) + frame
    data = b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body
    assert_equals_pillow(tool, data)


# ---- EXIF -----------------------------------------------------------------------------------


def exif_block(orientation, order="<", kind=3):
    packed = {1: "Bxxx", 3: "Hxx", 4: "I"}[kind]
    entries = struct.pack(order + "HHI4s", 0x010F, 2, 4, b"abc\0")
    entries += struct.pack(order + "HHI", 0x0112, kind, 1) + struct.pack(order + packed, orientation)
    head = b"II*\0" if order == "<" else b"MM\0*"
    return head + struct.pack(order + "IH", 8, 2) + entries + struct.pack(order + "I", 0)


def with_exif(image, format, tiff):
    if format == "JPEG":
        return saved(image, "JPEG", exif=b"Exif\0\0" + tiff)
    if format == "PNG":
        return make_png(np.asarray(image), 8, 2, before=chunk(b"eXIf", tiff))
    return saved(image, "WEBP", lossless=True, exif=b"Exif\0\0" + tiff)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_orientations(tool, orientation, format, order):
    data = with_exif(Image.fromarray(noise(20, 31, 3)), format, exif_block(orientation, order))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    pixels, found, applied = tool.decode(data, apply_exif=True)
    assert found == orientation and applied == (orientation != 1)
    assert np.array_equal(pixels, np.asarray(upright))
    pixels, found, applied = tool.decode(data)
    assert found == orientation and not applied
    assert np.array_equal(pixels, pillow_rgb(data))


def test_exif_turns_grey_pictures(tool):
    for orientation in range(1, 9):
        image = Image.fromarray(noise(20, 31, 1)[..., 0])
        data = saved(image, "JPEG", exif=b"Exif\0\0" + exif_block(orientation))
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        assert np.array_equal(tool.decode(data, apply_exif=True)[0][..., 0], np.asarray(upright))


@pytest.mark.parametrize("kind", [1, 4])
def test_exif_other_types(tool, kind):
    data = with_exif(Image.fromarray(noise(9, 5, 3)), "JPEG", exif_block(6, kind=kind))
    assert tool.decode(data)[1] == 6


BAD_EXIF = {
    "zero": exif_block(0),
    "nine": exif_block(9),
    "65535": exif_block(65535),
    "empty": b"",
    "cut": exif_block(6)[:30],
    "header only": b"II*\0",
    "no order": b"XX" + exif_block(6)[2:],
    "offset past the end": b"II*\0\xff\xff\xff\xff" + exif_block(6)[8:],
    "offset to the last byte": b"II*\0" + struct.pack("<I", 37) + exif_block(6)[8:],
    "loop": b"II*\0" + struct.pack("<IHI", 8, 0, 8),
    "65535 entries": b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(24),
    "count two": exif_block(6).replace(struct.pack("<HI", 3, 1), struct.pack("<HI", 3, 2)),
    "a string": exif_block(6).replace(struct.pack("<HI", 3, 1), struct.pack("<HI", 2, 1)),
}


@pytest.mark.parametrize("name", BAD_EXIF)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_bad_exif_is_no_orientation(tool, name, format):
    data = with_exif(Image.fromarray(noise(9, 5, 3)), format, BAD_EXIF[name])
    pixels, orientation, applied = tool.decode(data, apply_exif=True)
    assert orientation == 1 and not applied and pixels.shape[:2] == (9, 5)


# ---- encoding -------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_encoded_pictures_are_read_by_pillow(tool, channels):
    for w, h in ((1, 1), (33, 17), (500, 300)):
        pixels = noise(h, w, channels)
        png = Image.open(io.BytesIO(tool.encode(pixels, 0)))
        assert png.format == "PNG" and np.array_equal(np.asarray(png).reshape(pixels.shape), pixels)
        jpeg = tool.encode(pixels, 1)
        image = Image.open(io.BytesIO(jpeg))
        theirs = saved(Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels), "JPEG", quality=92)
        # The same codec at the same quality: the decoded pixels agree.
        assert image.format == "JPEG" and np.array_equal(np.asarray(image), pillow_rgb(theirs) if channels == 3 else np.asarray(Image.open(io.BytesIO(theirs))))
