"""Pictures that are damaged, cut, or made to hurt: each is refused in words, none takes memory."""

import io
import random
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from picture_tool import (
    FORMAT, LIMIT, SIGNATURE, UNSUPPORTED, Failure, Tool, chunk, make_png, pack_rows,
)
from test_pillow import exif_block, join_jpeg, noise, pillow_rgb, saved, split_jpeg

MIB = 1024


@pytest.fixture(scope="module")
def tool():
    tool = Tool()
    yield tool
    tool.close()


def refused(tool, data, status, word="", **options):
    with pytest.raises(Failure) as failure:
        tool.decode(data, **options)
    statuses = status if isinstance(status, tuple) else (status,)
    assert failure.value.status in statuses, failure.value.message
    assert word in failure.value.message, failure.value.message
    return failure.value.message


def rss_of(data, **options):
    """Peak memory in KiB that a fresh process gains over an idle one, and what came of it."""
    tool = Tool()
    tool.decode(saved(Image.new("RGB", (8, 8)), "PNG"))
    before = tool.rss_peak_kib()
    try:
        tool.decode(data, **options)
        failure = None
    except Failure as error:
        failure = error
    rise = tool.rss_peak_kib() - before
    tool.close()
    return rise, failure


# ---- cut ------------------------------------------------------------------------------------


def pictures():
    image = Image.fromarray(noise(123, 211, 3))
    grey = Image.fromarray(noise(123, 211, 1)[..., 0])
    rgba = Image.fromarray(noise(60, 80, 4), "RGBA")
    samples = np.random.default_rng(0).integers(0, 65536, (40, 50, 4))
    return {
        "baseline.jpg": saved(image, "JPEG"),
        "progressive.jpg": saved(image, "JPEG", progressive=True),
        "grey.jpg": saved(grey, "JPEG"),
        "cmyk.jpg": saved(image.convert("CMYK"), "JPEG"),
        "rgb.png": saved(image, "PNG"),
        "interlaced.png": make_png(samples, 16, 6, True),
        "palette.png": saved(image.quantize(64), "PNG"),
        "lossy.webp": saved(image, "WEBP", quality=70),
        "lossless.webp": saved(image, "WEBP", lossless=True),
        "alpha.webp": saved(rgba, "WEBP", quality=70),
        "animation.webp": saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(90)]),
    }


PICTURES = pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_cut_pictures_are_refused(tool, name):
    data = PICTURES[name]
    cuts = set(range(0, len(data), 64)) | set(range(1, 40)) | set(range(len(data) - 20, len(data)))
    for cut in sorted(cuts):
        message = refused(tool, data[:cut], FORMAT)
        if cut > 40:
            assert "truncated" in message, (cut, message)


@pytest.mark.parametrize("name", PICTURES)
def test_flipped_bytes_never_end_the_process(tool, name):
    """Any answer will do, if it has a reason."""
    data = PICTURES[name]
    rng = random.Random(name)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            tool.decode(bytes(broken), max_pixels=1_000_000)
        except Failure as failure:
            assert failure.status in (FORMAT, LIMIT, UNSUPPORTED) and failure.message


def test_jpeg_with_a_false_end(tool):
    """Cut in the middle of the scan, but ended properly: half the picture would be grey."""
    data = saved(Image.fromarray(noise(123, 211, 3)), "JPEG")
    refused(tool, data[: len(data) // 2] + b"\xff\xd9", FORMAT, "truncated")


@pytest.mark.parametrize("data", [b"", b"\0", b"hello, world", b"<html>", bytes(1000), b"\xff" * 99])
def test_not_pictures(tool, data):
    refused(tool, data, FORMAT)


@pytest.mark.parametrize("format, word", [("GIF", "GIF"), ("BMP", "BMP"), ("TIFF", "TIFF")])
def test_other_formats_are_named(tool, format, word):
    refused(tool, saved(Image.new("RGB", (9, 9)), format), UNSUPPORTED, word)


def test_garbage_after_each_signature(tool):
    rng = np.random.default_rng(4)
    starts = [b"\xff\xd8\xff", b"\xff\xd8\xff\xe0", SIGNATURE, b"RIFF\x40\0\0\0WEBPVP8 "]
    for start in starts:
        for n in (0, 1, 10, 100, 10000):
            refused(tool, start + rng.integers(0, 256, n, np.uint8).tobytes(), (FORMAT, UNSUPPORTED, LIMIT))


# ---- sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (7, 7), (8, 8), (1, 10000), (10000, 1)])
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
def test_extreme_sides(tool, size, format):
    data = saved(Image.new("RGB", size, (200, 10, 30)), format)
    assert np.array_equal(tool.decode(data)[0], pillow_rgb(data))


def png_header(w, h, depth=8, color_type=2, tail=b""):
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color_type, 0, 0, 0)) + tail


def jpeg_claiming(w, h, progressive=False):
    data = saved(Image.new("RGB", (16, 16)), "JPEG", progressive=progressive)
    segments, rest = split_jpeg(data)
    segments = [(m, p[:1] + struct.pack(">HH", h, w) + p[5:] if m in (0xC0, 0xC2) else p) for m, p in segments]
    return join_jpeg(segments, rest)


def webp_animation_claiming(w, h):
    u24 = lambda v: struct.pack("<I", v)[:3]
    body = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + u24(w - 1) + u24(h - 1)
    body += b"ANIM" + struct.pack("<I", 6) + bytes(6)
    inner = saved(Image.new("RGB", (16, 16)), "WEBP")[12:-2]  # cut: a frame that fails late
    body += b"ANMF" + struct.pack("<I", 16 + len(inner)) + bytes(6) + u24(15) + u24(15) + bytes(4) + inner
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def webp_lossless_claiming(w, h):
    data = bytearray(saved(Image.new("RGB", (16, 16)), "WEBP", lossless=True))
    at = data.index(b"\x2f")  # VP8L's signature; then 14 bits each of width and height less one
    bits = struct.unpack_from("<I", data, at + 1)[0] >> 28 << 28
    struct.pack_into("<I", data, at + 1, bits | (h - 1) << 14 | (w - 1))
    return bytes(data)


BOMBS = {
    "PNG of zeros": png_header(
        50000, 50000, tail=chunk(b"IDAT", zlib.compress(bytes(1 << 20))) + chunk(b"IEND", b"")
    ),
    "PNG 300 megapixels": png_header(20000, 15000, tail=chunk(b"IDAT", zlib.compress(bytes(9000)))),
    "PNG 2^31 wide": png_header(0x7FFFFFFF, 1),
    "PNG 2^31 square": png_header(0x7FFFFFFF, 0x7FFFFFFF, 16, 6),
    "JPEG": jpeg_claiming(60000, 60000),
    "JPEG 65500": jpeg_claiming(65500, 65500),
    "JPEG 65535": jpeg_claiming(65535, 65535),
    "JPEG progressive": jpeg_claiming(60000, 60000, True),
    "WebP animation": webp_animation_claiming(60000, 60000),
    "WebP 16383": webp_lossless_claiming(16383, 16383),
}


@pytest.mark.parametrize("name", BOMBS)
def test_huge_claims_take_no_memory(name):
    rise, failure = rss_of(BOMBS[name])
    assert failure is not None and failure.status == LIMIT, failure
    assert rise < 8 * MIB, rise


LARGE_CLAIMS = {
    "baseline": jpeg_claiming(8000, 7900),
    "progressive": jpeg_claiming(8000, 7900, True),
    "PNG": png_header(8000, 7900, tail=chunk(b"IDAT", zlib.compress(bytes(24001)))),
}


@pytest.mark.parametrize("name", LARGE_CLAIMS)
def test_claims_within_the_limit_take_little(name):
    """Memory is touched as rows arrive, so a claim of 63 megapixels costs next to nothing."""
    rise, failure = rss_of(LARGE_CLAIMS[name])
    assert failure is not None and failure.status == FORMAT
    assert rise < 64 * MIB, rise


def test_pixel_limit_is_exact(tool):
    for format in ("PNG", "JPEG", "WEBP"):
        data = saved(Image.new("RGB", (30, 20)), format)
        assert tool.decode(data, max_pixels=600)[0].shape == (20, 30, 3)
        assert "30 x 20" in refused(tool, data, LIMIT, max_pixels=599)


def test_zero_sides(tool):
    for w, h in ((0, 5), (5, 0), (0, 0)):
        refused(tool, png_header(w, h), FORMAT)
        refused(tool, jpeg_claiming(w, h), (FORMAT, UNSUPPORTED))


# ---- PNG ------------------------------------------------------------------------------------

SAMPLES = np.random.default_rng(1).integers(0, 256, (20, 30, 3))
PLAIN = make_png(SAMPLES, 8, 2)


def idat(samples, depth=8):
    return zlib.compress(pack_rows(samples, depth))


def test_png_crc(tool):
    packed = idat(SAMPLES)
    head, end = png_header(30, 20), chunk(b"IEND", b"")
    refused(tool, head + chunk(b"IDAT", packed, crc=1) + end, FORMAT, "CRC")
    refused(tool, head[:-4] + b"\0\0\0\0" + chunk(b"IDAT", packed) + end, FORMAT, "CRC")
    refused(tool, head + chunk(b"IDAT", packed) + chunk(b"IEND", b"", crc=7), FORMAT, "CRC")
    palette = png_header(3, 1, 8, 3, chunk(b"PLTE", bytes(9), crc=5))
    refused(tool, palette + chunk(b"IDAT", zlib.compress(bytes(4))) + end, FORMAT, "CRC")


def test_png_bytes_behind_the_end(tool):
    for tail in (chunk(b"IDAT", b"more"), b"garbage", PLAIN):
        assert np.array_equal(tool.decode(PLAIN + tail)[0], SAMPLES)


def test_png_structure(tool):
    packed, end = idat(SAMPLES), chunk(b"IEND", b"")
    head = png_header(30, 20)
    wrong = {
        "no IDAT": head + end,
        "empty IDAT": head + chunk(b"IDAT", b"") + end,
        "IDAT of garbage": head + chunk(b"IDAT", b"garbage, not deflated") + end,
        "too little": head + chunk(b"IDAT", idat(SAMPLES[:7])) + end,
        "critical chunk": head + chunk(b"CgBI", b"1234") + chunk(b"IDAT", packed) + end,
        "two IHDR": head + head[8:] + chunk(b"IDAT", packed) + end,
        "IHDR second": SIGNATURE + chunk(b"IDAT", packed) + head[8:] + end,
        "no palette": png_header(30, 20, 8, 3, chunk(b"IDAT", packed) + end),
        "empty palette": png_header(30, 20, 8, 3, chunk(b"PLTE", b"") + chunk(b"IDAT", packed) + end),
        "odd palette": png_header(30, 20, 8, 3, chunk(b"PLTE", b"1234") + chunk(b"IDAT", packed) + end),
        "big palette": png_header(30, 20, 8, 3, chunk(b"PLTE", bytes(771)) + chunk(b"IDAT", packed) + end),
        "depth 3": png_header(30, 20, 3, 0, chunk(b"IDAT", packed) + end),
        "depth 4 RGB": png_header(30, 20, 4, 2, chunk(b"IDAT", packed) + end),
        "colour type 5": png_header(30, 20, 8, 5, chunk(b"IDAT", packed) + end),
        "colour type 255": png_header(30, 20, 8, 255, chunk(b"IDAT", packed) + end),
        "filter 9": head + chunk(b"IDAT", zlib.compress(b"\x09" + pack_rows(SAMPLES, 8)[1:])) + end,
        "chunk of 4 GiB": head + b"\xff\xff\xff\xffIDAT" + packed,
        "side chunk of 4 GiB": head + b"\xff\xff\xff\xfftEXt" + packed,
        "side chunk of 2 GiB": head + b"\x7f\xff\xff\xfftEXt" + packed,
        "wrong adler": head + chunk(b"IDAT", packed[:-4] + b"\0\0\0\0", crc=0) + end,
    }
    for name, data in wrong.items():
        refused(tool, data, FORMAT), name


def test_png_palette_index_outside(tool):
    """As in Pillow, whose palettes start as a grey ramp: never a read outside."""
    samples = np.arange(256).reshape(16, 16, 1)
    data = make_png(samples, 8, 3, palette=bytes(range(30)))
    assert np.array_equal(tool.decode(data)[0], pillow_rgb(data))


def test_png_compressed_side_chunks(tool):
    bomb = zlib.compress(bytes(200 << 20), 9)  # 200 MiB of zeros in 200 KB
    for side in (chunk(b"zTXt", b"Comment\0\0" + bomb), chunk(b"iCCP", b"icc\0\0" + bomb),
                 chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb)):
        for data in (make_png(SAMPLES, 8, 2, before=side), make_png(SAMPLES, 8, 2, after=side)):
            rise, failure = rss_of(data)
            assert failure is None and rise < 8 * MIB, (failure, rise)


def test_png_many_side_chunks(tool):
    started = time.monotonic()
    data = make_png(SAMPLES, 8, 2, before=chunk(b"tEXt", b"k\0v") * 300_000)
    assert np.array_equal(tool.decode(data)[0], SAMPLES)
    assert time.monotonic() - started < 5
    data = make_png(SAMPLES, 8, 2, before=chunk(b"IDAT", b"") * 100_000)
    assert np.array_equal(tool.decode(data)[0], SAMPLES)


def test_png_transparency_too_long(tool):
    for data in (make_png(SAMPLES, 8, 2, before=chunk(b"tRNS", bytes(1000))),
                 make_png(SAMPLES[..., :1] % 4, 8, 3, before=chunk(b"tRNS", bytes(300)), palette=bytes(12))):
        tool.decode(data)


# ---- JPEG -----------------------------------------------------------------------------------


def scans_bomb(n_scans, side=16):
    """A progressive JPEG whose first scan is sent again and again."""
    data = saved(Image.new("L", (side, side), 77), "JPEG", progressive=True)
    start = end = data.index(b"\xff\xda")
    while data[end] != 0xFF or data[end + 1] == 0 or end == start:
        end += 1
    return data[:end] + data[start:end] * (n_scans - 1) + data[end:]


def test_jpeg_scans(tool):
    tool.decode(scans_bomb(100))
    started = time.monotonic()
    refused(tool, scans_bomb(600), LIMIT, "scans")
    refused(tool, scans_bomb(20000), LIMIT, "scans")
    large = scans_bomb(100, 7900)
    refused(tool, large, LIMIT, "scans")
    assert time.monotonic() - started < 30


def test_jpeg_kinds_that_libjpeg_lacks(tool):
    segments, rest = split_jpeg(saved(Image.fromarray(noise(16, 16, 3)), "JPEG"))
    for marker in (0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF):
        changed = [(marker if m == 0xC0 else m, p) for m, p in segments]
        refused(tool, join_jpeg(changed, rest), (UNSUPPORTED, FORMAT))
    twelve_bits = [(m, b"\x0c" + p[1:] if m == 0xC0 else p) for m, p in segments]
    refused(tool, join_jpeg(twelve_bits, rest), UNSUPPORTED)


def test_jpeg_two_components(tool):
    segments, rest = split_jpeg(saved(Image.fromarray(noise(16, 16, 3)), "JPEG"))
    two = [(m, p[:5] + b"\x02" + p[6:12] if m == 0xC0 else p) for m, p in segments]
    scan = b"\xff\xda\0\x0a\2\1\0\2\x11\0\x3f\0" + rest[14:]
    refused(tool, join_jpeg(two, scan), UNSUPPORTED, "2 colour")


def test_jpeg_tables(tool):
    segments, rest = split_jpeg(saved(Image.fromarray(noise(16, 16, 3)), "JPEG"))
    overflow = [(m, p[:1] + b"\xff" * 16 + p[17:] if m == 0xC4 else p) for m, p in segments]
    refused(tool, join_jpeg(overflow, rest), FORMAT)
    for missing in (0xDB, 0xC0):
        refused(tool, join_jpeg([s for s in segments if s[0] != missing], rest), FORMAT)


def test_jpeg_missing_restart_marker(tool):
    data = tool.encode_jpeg(noise(97, 131, 3), restart=5)
    marker = data.index(b"\xff\xd2")
    refused(tool, data[:marker] + data[marker + 2 :], FORMAT)
    second = data.index(b"\xff\xd4")
    refused(tool, data[:marker] + data[second:], FORMAT)


def test_jpeg_damaged_scan(tool):
    """Overwritten in the middle: decoders that fill in grey would call this a picture."""
    data = saved(Image.fromarray(noise(123, 211, 3)), "JPEG")
    middle = len(data) // 2
    refused(tool, data[:middle] + b"\xff\xd9" + data[middle:], FORMAT)


def test_jpeg_padding_before_the_end_is_harmless(tool):
    data = saved(Image.fromarray(noise(33, 44, 3)), "JPEG")
    padded = data[:-2] + bytes(16) + data[-2:]
    assert np.array_equal(tool.decode(padded)[0], pillow_rgb(data))


# ---- WebP -----------------------------------------------------------------------------------


def test_webp_structure(tool):
    data = saved(Image.fromarray(noise(20, 30, 3)), "WEBP")
    refused(tool, b"RIFX" + data[4:], FORMAT)
    refused(tool, data[:4] + b"\xff\xff\xff\xff" + data[8:], FORMAT, "truncated")
    refused(tool, data[:12] + b"VP8?" + data[16:], FORMAT)
    u24 = lambda v: struct.pack("<I", v)[:3]
    for name, frames in {
        "no frame": b"",
        "frame without a picture": b"ANMF" + struct.pack("<I", 16) + bytes(16),
        "frame outside": b"ANMF" + struct.pack("<I", 16 + len(data) - 12) + u24(20) + u24(0)
        + u24(29) + u24(19) + bytes(4) + data[12:],
        "frame far outside": b"ANMF" + struct.pack("<I", 16 + len(data) - 12) + b"\xff" * 6
        + u24(29) + u24(19) + bytes(4) + data[12:],
    }.items():
        body = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + u24(39) + u24(39)
        body += b"ANIM" + struct.pack("<I", 6) + bytes(6) + frames
        refused(tool, b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body, FORMAT), name


# ---- EXIF -----------------------------------------------------------------------------------


def test_exif_is_read_in_bounds(tool):
    """Every cut of a good block, in each format: no orientation or the right one."""
    block = exif_block(6)
    image = Image.fromarray(noise(9, 5, 3))
    for n in range(len(block) + 1):
        for data in (
            saved(image, "JPEG", exif=b"Exif\0\0" + block[:n]),
            make_png(np.asarray(image), 8, 2, before=chunk(b"eXIf", block[:n])),
            saved(image, "WEBP", exif=block[:n] or b"\0"),
        ):
            assert tool.decode(data, apply_exif=True)[1] in (1, 6)
