"""Runs the built program as a user would, and makes the pictures and weights that it needs."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from PIL import Image

BINARY = os.path.abspath(os.environ.get("TAPETUM_BINARY", "build/release/src/cli/tapetum"))
SHARED = pathlib.Path(os.environ.get("TAPETUM_SHARED", "../shared")).resolve()
LONG = 300  # seconds that nothing here should need, not even under a sanitizer
SMALL = ("--size", "160x120")

# What a user's shell may have set and a test must not see.
STEERING = ("HF_", "XDG_", "SP_WEIGHTS", "HAMER_", "TT_", "TAPETUM_", "NO_COLOR", "TERM", "http",
            "HTTP")


class Program:
    """The program in an environment of its own, with an empty cache."""

    def __init__(self, folder):
        self.cache = folder / "empty-cache"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(STEERING)}
        self.environment.update(HF_HUB_CACHE=str(self.cache), TERM="xterm", HOME=str(folder),
                                TAPETUM_CACHE=str(folder / "packed"))

    def command(self, *words):
        return [BINARY, *(os.fspath(word) for word in words)]

    def run(self, *words, status=0, environment=None, **more):
        """stdout and stderr as text; the exit status must be this one."""
        result = subprocess.run(self.command(*words), timeout=LONG, capture_output=True,
                                stdin=more.pop("stdin", subprocess.DEVNULL)
                                if "input" not in more else None,
                                env=self.environment | (environment or {}), **more)
        result.stdout = result.stdout.decode(errors="surrogateescape")
        result.stderr = result.stderr.decode(errors="surrogateescape")
        assert result.returncode == status, result
        return result

    def complaint(self, *words, status, **more):
        """The one line on stderr of a command that fails before it has any result."""
        result = self.run(*words, status=status, **more)
        assert result.stdout == "", result
        lines = [line for line in result.stderr.splitlines()
                 if not line.startswith(("weights: ", "MANO: "))]
        assert len(lines) == 1 and lines[0].startswith("tapetum: "), result
        return lines[0]

    def points(self, *words, **more):
        """One picture's answer."""
        lines = self.run("superpoint", *words, "--json", "-q", **more).stdout.splitlines()
        assert len(lines) == 1
        return json.loads(lines[0])


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def weights(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "synthetic.safetensors"
    program.run("synth", "superpoint", path, "-q")
    return path


def scene(width, height, seed):
    """Blocks of colour under noise: corners, and no two windows alike."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3))
    pixels = np.kron(coarse, np.ones((16, 16, 1), int))[:height, :width]
    noisy = pixels + random.integers(-20, 21, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "photo.png"
    scene(320, 240, 1).save(path)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Three pictures, one that is none, and two things to be passed over."""
    path = tmp_path_factory.mktemp("folder")
    scene(170, 130, 2).save(path / "b.jpg", quality=95)
    scene(160, 120, 3).save(path / "a.png")
    scene(200, 100, 4).convert("L").save(path / "d.PNG")
    (path / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    (path / "notes.txt").write_text("no picture")
    (path / "folder.png").mkdir()
    return path


@pytest.fixture(scope="session")
def golden():
    path = SHARED / "golden" / "superpoint"
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}; set TAPETUM_SHARED")
    return path


@pytest.fixture(scope="session")
def hands():
    """HaMeR's reference data."""
    path = SHARED / "golden" / "hamer"
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}; set TAPETUM_SHARED")
    return path


@pytest.fixture(scope="session")
def tiny(program, tmp_path_factory):
    """HaMeR's small synthetic weights."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.safetensors"
    program.run("synth", "hamer", path, "--config", "tiny", "-q")
    return path


@pytest.fixture(scope="session")
def real_weights():
    path = SHARED / "weights" / "superpoint"
    if not path.is_dir():
        pytest.skip(f"no real weights at {path}; set TAPETUM_SHARED")
    return path


def without_times(answer):
    return {name: value for name, value in answer.items()
            if name not in ("timing_ms", "serving_path", "file")}
