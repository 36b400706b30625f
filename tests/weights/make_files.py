#!/usr/bin/env python3
"""Makes tests/golden/weights/ and the seeds in fuzz/corpus/. Run from the repository's root; the
results are committed. Standard library only."""
import collections
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torchfile  # noqa: E402
from torchfile import Storage, Tensor  # noqa: E402


def values(name, n):
    """What every file holds: multiples of 1/8 in [-4, 4), exact in each floating type."""
    return [((i * 7 + len(name) * 5) % 64 - 32) / 8 for i in range(n)]


# name, kind of storage, shape
TENSORS = [("conv.weight", "Float", (4, 3, 3, 3)), ("conv.bias", "Float", (4,)),
           ("half", "Half", (5, 2)), ("brain", "BFloat16", (3, 4)), ("double", "Double", (2, 2)),
           ("scalar", "Float", ()), ("empty", "Float", (0, 7))]
NAMES = {"Float": "F32", "Half": "F16", "BFloat16": "BF16", "Double": "F64", "Long": "I64"}


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def safetensors(tensors, metadata=None, pad=b""):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, kind, shape in tensors:
        raw = Storage(kind, values(name, count(shape))).raw
        header[name] = {"dtype": NAMES[kind], "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode() + pad
    return struct.pack("<Q", len(text)) + text + data


def state_dict(old=False, parameter=False):
    made = collections.OrderedDict()
    for name, kind, shape in TENSORS:
        made[name] = Tensor(Storage(kind, values(name, count(shape))), shape, old=old,
                            parameter=parameter)
    # A transpose and two slices of one storage, as torch keeps them; and a counter.
    matrix = values("transposed", 12)
    columns = [matrix[r * 4 + c] for c in range(4) for r in range(3)]
    made["transposed"] = Tensor(Storage("Float", columns), (3, 4), strides=(1, 3), old=old)
    shared = Storage("Float", values("low", 6) + values("high", 6))
    made["low"] = Tensor(shared, (6,), old=old)
    made["high"] = Tensor(shared, (2, 3), offset=6, old=old)
    made["low"] = Sized(shared, (6,)) if parameter else made["low"]
    made["batches"] = Tensor(Storage("Long", [3]), (), old=old)
    return made


def npy(text, data, version=1):
    size = 10 if version == 1 else 12
    pad = -(size + len(text) + 1) % 64
    text = text + b" " * pad + b"\n"
    return (b"\x93NUMPY" + bytes([version, 0]) +
            struct.pack("<H" if version == 1 else "<I", len(text)) + text + data)


class Sized(Tensor):
    """A tensor whose shape was pickled as a torch.Size."""

    def __reduce__(self):
        function, (storage, offset, shape, *rest) = super().__reduce__()
        return function, (storage, offset, torchfile.Size(shape), *rest)


def main():
    golden = pathlib.Path("tests/golden/weights")
    corpus = pathlib.Path("fuzz/corpus")
    small = collections.OrderedDict(w=Tensor(Storage("Float", values("w", 6)), (2, 3)))
    checkpoint = {"epoch": 3, "loss": 0.5, "done": None, "note": "text", "lrs": [1, 2, (3, 4, 5)],
                  "state_dict": state_dict(), "seen": {1, 2}, "big": 2 ** 80, "raw": b"\x00\xff"}
    files = {
        "all.safetensors": safetensors(TENSORS, {"format": "pt"}, b"   "),
        "zip.pth": torchfile.save_zip(state_dict(), root="zip"),
        "parameter.pth": torchfile.save_zip(state_dict(parameter=True), byteorder=None),
        "protocol5.pt": torchfile.save_zip(state_dict(), protocol=5),
        "plain_zip.pt": torchfile.save_zip(state_dict(), descriptors=False, zip64_end=False),
        "zip64.pth": torchfile.save_zip(state_dict(), zip64_members=True),
        "deflated.pth": torchfile.save_zip(state_dict(), pickle_method=8),
        "checkpoint.ckpt": torchfile.save_zip(checkpoint, protocol=4),
        "nested.pth": torchfile.save_zip({"version": 1, "extractor": state_dict()}),
        "legacy.pth": torchfile.save_legacy(state_dict()),
        "legacy_2018.pth": torchfile.save_legacy(state_dict(old=True)),
        "protocol1.pth": torchfile.save_zip(state_dict(), protocol=1),
    }
    for name, content in files.items():
        (golden / name).write_bytes(content)
    seeds = {
        "safetensors": {"all": files["all.safetensors"],
                        "one": safetensors(TENSORS[1:2]), "none": safetensors([])},
        "pytorch": {"zip": torchfile.save_zip(small), "zip4": torchfile.save_zip(small, 4),
                    "plain": torchfile.save_zip(small, descriptors=False, zip64_end=False),
                    "checkpoint": torchfile.save_zip({"state_dict": small, "epoch": 1}),
                    "legacy": torchfile.save_legacy(small),
                    "old": torchfile.save_legacy({"w": Tensor(Storage("Half", [1, 2]), (2,),
                                                              old=True)}),
                    "pickle2": torchfile.dump(checkpoint, 2)[0],
                    "pickle5": torchfile.dump(checkpoint, 5)[0]},
        "npy": {"v1": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                          bytes(24)),
                "v2": npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
                          bytes(3), 2),
                "v3": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (), }", bytes(8), 3)},
        "config": {"superpoint": json.dumps({
            "architectures": ["SuperPointForKeypointDetection"], "model_type": "superpoint",
            "encoder_hidden_sizes": [64, 64, 128, 128], "keypoint_threshold": 0.005,
            "max_keypoints": -1, "nested": {"a": [True, None, {}], "b": 1e-3}}, indent=1).encode(),
            "escapes": rb'{"a\u00e9\ud83d\ude00\n": "\"\\\/\b\f\t", "sizes": [0, 18446744073709551615]}'},
    }
    for target, contents in seeds.items():
        for name, content in contents.items():
            (corpus / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
