"""Synthetic weights against the published hashes and against the rule, computed here again."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

EXPECTED = json.loads(pathlib.Path("tests/golden/superpoint/synthetic_weights.json").read_text())


def read_safetensors(path):
    """Eight bytes of length, that much JSON, and the tensors' bytes."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    body = raw[8 + size:]
    tensors, ends = {}, []
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        assert facts["dtype"] == "F32"
        tensors[name] = np.frombuffer(body[begin:end], "<f4").reshape(facts["shape"])
        ends.append((begin, end))
    ends.sort()
    assert [a for a, _ in ends] == [0] + [b for _, b in ends[:-1]], "no gap, no overlap"
    assert ends[-1][1] == len(body)
    return tensors


def rule(name, shape):
    """FNV-1a of the name seeds splitmix64, whose upper 24 bits are the value, scaled."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 & (1 << 64) - 1
    with np.errstate(over="ignore"):
        s = np.uint64(seed) + np.arange(1, np.prod(shape) + 1, dtype=np.uint64) * \
            np.uint64(0x9E3779B97F4A7C15)
        s = (s ^ s >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        s = (s ^ s >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z = s ^ s >> np.uint64(31)
    u = ((z >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32) / np.float32(2**23)
    gain = 4 if name == "keypoint_decoder.conv_score_b.weight" else np.sqrt(2)
    scale = 0.1 if name.endswith("bias") else gain * np.sqrt(3 / np.prod(shape[1:]))
    return (np.float32(scale) * u).reshape(shape)


@pytest.fixture(scope="module")
def tensors(weights):
    return read_safetensors(weights)


def test_names_and_shapes(tensors):
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == \
        {name: facts["shape"] for name, facts in EXPECTED["tensors"].items()}


def test_published_hashes(tensors):
    for name, facts in EXPECTED["tensors"].items():
        assert hashlib.sha256(tensors[name].tobytes()).hexdigest() == facts["sha256"], name


def test_the_rule(tensors):
    for name, tensor in tensors.items():
        assert np.array_equal(tensor, rule(name, tensor.shape)), name


def test_the_same_bytes_again(program, weights, tmp_path):
    said = program.run("synth", "superpoint", tmp_path / "again.safetensors")
    assert "synthetic" in said.stdout and said.stderr == ""
    assert (tmp_path / "again.safetensors").read_bytes() == weights.read_bytes()
    assert program.run("synth", "-q", "superpoint", tmp_path / "q").stdout == ""


def test_nothing_half_written(program, tmp_path):
    (tmp_path / "is-a-folder").mkdir()
    for path, status in ((tmp_path / "none" / "x", 1), (tmp_path / "is-a-folder", 2)):
        assert str(path) in program.complaint("synth", "superpoint", path, status=status)
    assert [p.name for p in tmp_path.iterdir()] == ["is-a-folder"]
