"""The documentation's examples run and print what it says."""

import doctest
import pathlib
import shutil

from conftest import shared
from PIL import Image

import tapetum

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_python_page(tmp_path, monkeypatch):
    shutil.copy(shared("weights/superpoint/model.safetensors"), tmp_path / "superpoint.safetensors")
    shutil.copy(shared("golden/hamer/MANO_RIGHT_synthetic.pkl"), tmp_path / "MANO_RIGHT.pkl")
    tapetum.write_synthetic_weights("hamer-tiny", tmp_path / "hamer.safetensors")
    photo = Image.open(ROOT / "examples" / "rocket.jpg")
    photo.save(tmp_path / "photo.jpg", quality=95)
    photo.crop((0, 0, 440, 427)).save(tmp_path / "left.jpg", quality=95)
    photo.crop((120, 0, 640, 427)).save(tmp_path / "right.jpg", quality=95)
    monkeypatch.chdir(tmp_path)
    failed, ran = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert failed == 0 and ran > 20
    for name in ("points.png", "matches.jpg", "hands.png", "hand.glb", "database.db"):
        assert (tmp_path / name).stat().st_size > 0
