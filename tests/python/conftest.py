"""Models and pictures for the tests of the Python package."""

import ctypes
import os
import pathlib
import signal

import numpy as np
import pytest

import tapetum
from tapetum import _library

SHARED = pathlib.Path(os.environ.get("TAPETUM_SHARED", "../shared")).resolve()


def shared(name):
    """A file of the reference data; the test is skipped where there is none."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no reference data at {path} (set TAPETUM_SHARED)")
    return path


# A job in the background starts with Ctrl-C ignored, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """Synthetic weights of SuperPoint."""
    path = tmp_path_factory.mktemp("weights") / "superpoint.safetensors"
    _library.call("tap_synth_write", b"superpoint", os.fsencode(path))
    return path


@pytest.fixture(scope="session")
def model(weights):
    with tapetum.SuperPoint.from_pretrained(weights, threads=2) as model:
        yield model


@pytest.fixture(scope="session")
def real():
    return tapetum.SuperPoint.from_pretrained(shared("weights/superpoint/model.safetensors"))


@pytest.fixture(scope="session")
def pixels():
    """A picture with structure: blocks and a gradient, (120, 160, 3)."""
    y, x = np.mgrid[:120, :160]
    red = ((x // 20 + y // 15) % 2 * 120 + x // 2).astype(np.uint8)
    return np.stack([red, 255 - red, (red // 2 + y).astype(np.uint8)], 2)


@pytest.fixture
def resident():
    """The process's resident memory in bytes, now."""
    library = ctypes.CDLL(None)

    def read():
        library.malloc_trim(0)
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    return read


@pytest.fixture(scope="session")
def hand_weights(tmp_path_factory):
    """Synthetic weights of HaMeR, tiny."""
    path = tmp_path_factory.mktemp("weights") / "hamer.safetensors"
    _library.call("tap_synth_write", b"hamer-tiny", os.fsencode(path))
    return path


@pytest.fixture(scope="session")
def bare(hand_weights):
    """HaMeR without MANO."""
    return tapetum.HamerModel.from_pretrained(hand_weights, mano_path="", cache="", threads=2)


@pytest.fixture(scope="session")
def hamer(hand_weights):
    """HaMeR with the reference data's synthetic MANO file."""
    mano = shared("golden/hamer/MANO_RIGHT_synthetic.pkl")
    return tapetum.HamerModel.from_pretrained(hand_weights, mano_path=mano, cache="", threads=2)
