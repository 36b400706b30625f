"""The example programs do what their first lines say."""

import csv
import os
import pathlib
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
from conftest import shared
from PIL import Image

import tapetum

ROOT = pathlib.Path(__file__).resolve().parents[2]


def example(name, *arguments):
    return subprocess.run([sys.executable, ROOT / "examples" / name, *map(str, arguments)], text=True,
                          capture_output=True, timeout=300)


def test_stitch(tmp_path):
    """Two overlapping halves become the photo that they were cut from."""
    pytest.importorskip("cv2", reason="no OpenCV (opencv-python-headless)")
    photo = Image.open(ROOT / "examples" / "rocket.jpg").convert("RGB")
    photo.crop((0, 0, 440, 427)).save(tmp_path / "left.png")
    photo.crop((120, 0, 640, 427)).save(tmp_path / "right.png")
    weights = shared("weights/superpoint/model.safetensors")
    run = example("stitch.py", tmp_path / "left.png", tmp_path / "right.png", tmp_path / "all.png",
                  "--weights", weights)
    assert run.returncode == 0, run.stderr
    matches, agreeing = map(int, re.search(r"(\d+) matches, of which (\d+) agree", run.stdout).groups())
    assert agreeing > 50 and agreeing > 0.8 * matches
    result = np.asarray(Image.open(tmp_path / "all.png"), np.int16)
    # The frame may be a pixel off on any side.
    assert abs(result.shape[0] - 427) <= 4 and abs(result.shape[1] - 640) <= 4
    difference = np.abs(result[20:400, 20:620] - np.asarray(photo, np.int16)[20:400, 20:620])
    assert difference.mean() < 8
    Image.new("RGB", (640, 480)).save(tmp_path / "black.png")
    run = example("stitch.py", tmp_path / "left.png", tmp_path / "black.png", tmp_path / "none.png",
                  "--weights", weights)
    assert run.returncode == 1 and "do they overlap" in run.stderr
    assert not (tmp_path / "none.png").exists()


def test_hands(tmp_path, hand_weights):
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    photo = Image.open(ROOT / "examples" / "rocket.jpg")
    for name in ("b.jpg", "a.png", "notes.txt"):
        if name.endswith("txt"):
            (photos / name).write_text("no photo")
        else:
            photo.save(photos / name)
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("file,x1,y1,x2,y2,side\nb.jpg,100,80,300,280,right\nb.jpg,300,80,480,280,left\n")
    mano = shared("golden/hamer/MANO_RIGHT_synthetic.pkl")
    run = example("hands.py", photos, out, "--boxes", boxes, "--weights", hand_weights, "--mano", mano)
    assert run.returncode == 0 and run.stdout == "a.png: 0\nb.jpg: 2\n", run.stderr
    with open(out / "hands.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], row["side"]) for row in rows] == [("b.jpg", "right"), ("b.jpg", "left")]
    with tapetum.HamerModel.from_pretrained(hand_weights, mano_path=mano, cache="") as model:
        hand = model(photos / "b.jpg", [300, 80, 480, 280], False)
    assert [float(rows[1][f"beta_{i}"]) for i in range(10)] == hand.betas.tolist()
    assert float(rows[1]["joint_20_z"]) == hand.joints[20, 2] and len(rows[1]) == 10 + 10 + 48 + 63
    magic, version, size = struct.unpack("<4sII", (out / "b.jpg.hands.glb").read_bytes()[:12])
    assert magic == b"glTF" and version == 2 and size == os.path.getsize(out / "b.jpg.hands.glb")
    assert Image.open(out / "b.jpg.hands.jpg").size == photo.size and not (out / "a.png.hands.glb").exists()
    run = example("hands.py", photos, out, "--weights", hand_weights, "--mano", "")  # none
    assert run.returncode == 0 and run.stdout == "a.png: 1\nb.jpg: 1\n", run.stderr
    assert example("hands.py", tmp_path / "out" / "..", out).returncode == 1
