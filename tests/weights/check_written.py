#!/usr/bin/env python3
"""check_written.py NPZ SAFETENSORS NPY_FOLDER: what our writers wrote, by other readers; and NPY
files of numpy's own for our reader. Exit code 77: no numpy."""
import json
import pathlib
import struct
import sys
import zipfile

try:
    import numpy as np
except ImportError:
    sys.exit(77)

npz, safetensors, folder = sys.argv[1:]

arrays = np.load(npz, allow_pickle=False)
assert list(arrays) == ["keypoints", "half", "scalar", "none", "\u00e9"], list(arrays)
assert arrays["keypoints"].dtype == np.float32 and arrays["keypoints"].shape == (3, 2)
assert np.array_equal(arrays["keypoints"].ravel(), np.arange(6) / 4)
assert arrays["half"].dtype == np.float16 and arrays["half"].tolist() == [1, -2, 0.5]
assert arrays["scalar"].shape == () and arrays["scalar"] == 7
assert arrays["none"].shape == (0, 256) and arrays["none"].dtype == np.float16
assert arrays["\u00e9"].shape == (1, 1, 1, 1, 1, 1, 1, 2)
assert zipfile.ZipFile(npz).testzip() is None
for member in zipfile.ZipFile(npz).infolist():
    assert member.compress_type == 0 and member.date_time == (1980, 1, 1, 0, 0, 0)
    header = zipfile.ZipFile(npz).read(member)
    assert (10 + struct.unpack("<H", header[8:10])[0]) % 64 == 0 and header[6:8] == b"\1\0"

raw = pathlib.Path(safetensors).read_bytes()
n = struct.unpack("<Q", raw[:8])[0]
assert n % 8 == 0
header = json.loads(raw[8:8 + n])
assert header["__metadata__"] == {"format": "pt", 'quote"\\': "line\nfeed"}
assert list(header)[1:] == ["z\u00e9", 'a"b', "none", "scalar"]
for t, (name, shape) in enumerate((("z\u00e9", [3, 20000]), ('a"b', [2, 1, 3]), ("none", [4, 0]),
                                   ("scalar", []))):
    entry = header[name]
    assert entry["dtype"] == "F32" and entry["shape"] == shape
    begin, end = entry["data_offsets"]
    values = np.frombuffer(raw[8 + n + begin:8 + n + end], "<f4")
    assert values.size == np.prod(shape, dtype=int)
    assert np.array_equal(values, np.arange(values.size, dtype=np.float32) + 1000 * t)
assert 8 + n + end == len(raw)

folder = pathlib.Path(folder)
for version in ((1, 0), (2, 0), (3, 0)):
    for dtype in ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"):
        for shape in ((), (3,), (2, 3), (2, 0, 5)):
            array = (np.arange(np.prod(shape, dtype=int)) % 2).astype(dtype).reshape(shape)
            name = f"{version[0]}_{dtype[1:]}_{len(shape)}.npy"
            with open(folder / name, "wb") as out:
                np.lib.format.write_array(out, array, version)
