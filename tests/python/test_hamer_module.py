"""`from hamer import HamerModel`, for who installed python/hamer_module, and for nobody else."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import shared
from PIL import Image

import tapetum

# The card's package's own example, to the letter.
EXAMPLE = """\
from hamer import HamerModel
with HamerModel.from_pretrained(device_id=0) as model:
    hand = model("media/sample1.jpg", bbox=[20, 170, 295, 260], is_right=True)
    print(hand.rotmats.shape, hand.betas.shape, hand.cam_t_full)
    hands = model("media/sample1.jpg", bbox=[[20, 170, 295, 260], [130, 340, 320, 510]], is_right=[True, False])
"""


def test_the_cards_example(tmp_path, hand_weights):
    if importlib.util.find_spec("hamer") is None:
        pytest.skip("python/hamer_module is not installed here")
    (tmp_path / "media").mkdir()
    Image.open(shared("golden/hamer/test2.jpg")).resize((640, 640)).save(tmp_path / "media" / "sample1.jpg")
    snapshot = tmp_path / "hub" / "models--changh95--hamer-weights" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123")
    (snapshot / "hamer.ckpt").symlink_to(hand_weights)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1",
                   "TAPETUM_CACHE": str(tmp_path / "packed")}
    run = subprocess.run([sys.executable, "-c", EXAMPLE], cwd=tmp_path, env=environment, text=True,
                         capture_output=True)
    assert run.returncode == 0 and run.stdout.startswith("(16, 3, 3) (10,) ["), run.stderr
    # The research repository's package, in the same place, goes before it.
    installed = pathlib.Path(importlib.util.find_spec("hamer").origin)
    beside = tmp_path / "site"
    (beside / "hamer").mkdir(parents=True)
    (beside / "hamer" / "__init__.py").write_text("theirs = True\n")
    (beside / "hamer.py").write_text(installed.read_text())
    run = subprocess.run([sys.executable, "-c", "import hamer; print(hamer.theirs)"], text=True,
                         env={**os.environ, "PYTHONPATH": str(beside)}, capture_output=True)
    assert run.stdout == "True\n", run.stderr


def test_it_is_not_there_unasked():
    root = pathlib.Path(tapetum.__file__).parent.parent
    names = {path.name for path in root.iterdir()}
    if importlib.util.find_spec("hamer") is None:
        assert "hamer.py" not in names and "hamer" not in names
    else:
        assert any(name.startswith("tapetum_hamer-") for name in names)  # its own distribution
