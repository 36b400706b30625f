"""Talks to picture_tool (its source describes the protocol) and makes PNG files by hand."""

import os
import struct
import subprocess
import zlib

import numpy as np
import pytest

OK, ARGUMENT, FORMAT, LIMIT, UNSUPPORTED = 0, 1, 2, 3, 4
MAX_PIXELS = 64_000_000


class Failure(Exception):
    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Tool:
    def __init__(self):
        self.process = subprocess.Popen(
            [os.environ["PICTURE_TOOL"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def _read(self, n):
        data = self.process.stdout.read(n)
        assert len(data) == n, f"picture_tool died: {self.process.wait()}"
        return data

    def _ask(self, *parts):
        for part in parts:
            self.process.stdin.write(part)
        self.process.stdin.flush()
        status, count = struct.unpack("<II", self._read(8))
        numbers = struct.unpack(f"<{count}I", self._read(4 * count))
        (n,) = struct.unpack("<I", self._read(4))
        data = self._read(n)
        if status != OK:
            raise Failure(status, data.decode("utf-8", "replace"))
        return numbers, data

    def decode(self, data, apply_exif=False, max_pixels=MAX_PIXELS):
        """The pixels as (h, w, c), the orientation found, whether it was applied."""
        head = b"D" + struct.pack("<IQI", apply_exif, max_pixels, len(data))
        try:
            (w, h, c, orientation, applied), pixels = self._ask(head, data)
        except Failure as failure:
            if os.environ.get("PICTURE_WEBP") == "0" and data[8:12] == b"WEBP":
                assert failure.status == UNSUPPORTED and "TAPETUM_WEBP" in failure.message
                pytest.skip("built without WebP, and says so")
            raise
        return np.frombuffer(pixels, np.uint8).reshape(h, w, c), orientation, bool(applied)

    def decode_rgb(self, data, **options):
        pixels = self.decode(data, **options)[0]
        return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels

    def resize(self, plane, width, height):
        h, w = plane.shape
        head = b"R" + struct.pack("<4I", w, h, width, height)
        _, data = self._ask(head, plane.tobytes())
        return np.frombuffer(data, np.uint8).reshape(height, width)

    def plane(self, data, format, gray, width, height, crop_width, crop_height, stride):
        head = b"P" + struct.pack(
            "<6IiI", format, gray, width, height, crop_width, crop_height, stride, len(data)
        )
        _, plane = self._ask(head, data)
        return np.frombuffer(plane, np.uint8).reshape(crop_height, crop_width)

    def encode(self, pixels, kind):
        h, w, c = pixels.shape
        return self._ask(b"E" + struct.pack("<4I", kind, w, h, c), pixels.tobytes())[1]

    def encode_jpeg(self, pixels, restart=0, arithmetic=False, progressive=False):
        h, w, _ = pixels.shape
        head = b"J" + struct.pack("<5I", w, h, restart, arithmetic, progressive)
        return self._ask(head, pixels.tobytes())[1]

    def rss_peak_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM"):
                    return int(line.split()[1])
        raise RuntimeError("no VmHWM")

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def chunk(kind, data, crc=None):
    if crc is None:
        crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def pack_rows(samples, depth, filters=True):
    """Filtered rows of (h, w, n) samples; filters None and Up by turns, Sub at times."""
    h, w, n = samples.shape
    if depth == 16:
        rows = samples.astype(">u2").view(np.uint8).reshape(h, -1)
    elif depth == 8:
        rows = samples.astype(np.uint8).reshape(h, -1)
    else:
        bits = ((samples.reshape(h, -1, 1) >> np.arange(depth - 1, -1, -1)) & 1).reshape(h, -1)
        rows = np.packbits(bits.astype(np.uint8), axis=1)
    step = max(1, n * depth // 8)
    out, above = [], np.zeros_like(rows[0])
    for y, row in enumerate(rows):
        kind = (0, 2, 1)[y % 3] if filters else 0
        if kind == 0:
            line = row
        elif kind == 2:
            line = row - above
        else:
            line = row - np.concatenate([np.zeros(step, np.uint8), row])[: len(row)]
        out.append(bytes([kind]) + line.astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def make_png(samples, depth, color_type, interlaced=False, before=b"", after=b"", palette=None):
    """A PNG of (h, w, n) samples; before and after are chunks around IDAT."""
    h, w, _ = samples.shape
    header = struct.pack(">IIBBBBB", w, h, depth, color_type, 0, 0, interlaced)
    if interlaced:
        raw = b"".join(
            pack_rows(samples[y0::dy, x0::dx], depth)
            for x0, y0, dx, dy in PASSES
            if samples[y0::dy, x0::dx].size
        )
    else:
        raw = pack_rows(samples, depth)
    packed = zlib.compress(raw)
    middle = len(packed) // 2  # two IDAT chunks: the stream does not care
    return (
        SIGNATURE
        + chunk(b"IHDR", header)
        + (chunk(b"PLTE", palette) if palette is not None else b"")
        + before
        + chunk(b"IDAT", packed[:middle])
        + chunk(b"IDAT", packed[middle:])
        + after
        + chunk(b"IEND", b"")
    )
