"""tapetum fetch against the stand-in for the hub, and what the other verbs find afterwards."""

import pathlib
import sys

import pytest

from conftest import SMALL

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "hub"))
from stand_in import COMMIT, StandIn  # noqa: E402

CONFIG = b'{"model_type": "superpoint"}\n'


@pytest.fixture()
def hub(weights):
    stand_in = StandIn({"config.json": CONFIG, "model.safetensors": weights.read_bytes()})
    yield stand_in
    stand_in.close()


def variables(hub, cache):
    return {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(cache)}


def test_fetched_once_then_found(program, hub, photo, weights, tmp_path):
    environment = variables(hub, tmp_path)
    first = program.run("fetch", "superpoint", environment=environment)
    folder = pathlib.Path(first.stdout.rstrip("\n"))
    assert folder == tmp_path / "models--magic-leap-community--superpoint" / "snapshots" / COMMIT
    assert (folder / "model.safetensors").read_bytes() == weights.read_bytes()
    assert "non-commercial" in first.stderr and "\r" not in first.stderr, "no bar in a pipe"
    hub.close()
    # From here on there is no server, and none is needed.
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    again = program.run("fetch", "superpoint", "-q", environment=environment)
    assert again.stdout == first.stdout and again.stderr == ""
    assert str(folder) in program.run("info", environment=environment).stdout
    found = program.points(photo, *SMALL, environment=environment)
    assert found["scores"] == program.points(photo, *SMALL, "-w", weights)["scores"]


def test_bytes_of_the_right_hash_that_are_no_model(program, hub, tmp_path):
    hub.server.files["model.safetensors"] = b"\x08\0\0\0\0\0\0\0{}      "
    line = program.run("fetch", "superpoint", "-q", status=3,
                       environment=variables(hub, tmp_path)).stderr
    assert "no usable SuperPoint" in line and line.startswith("tapetum: fetch: ")
    assert not list(tmp_path.rglob("model.safetensors"))
    assert not list(tmp_path.rglob("*.incomplete"))


def test_other_repositories_and_revisions(program, hub, tmp_path):
    environment = variables(hub, tmp_path) | {"HF_MODEL": "someone/points"}
    folder = program.run("fetch", "superpoint", "-q", environment=environment).stdout.strip()
    assert folder == f"{tmp_path}/models--someone--points/snapshots/{COMMIT}"
    assert all("/someone/points/resolve/main/" in path or "/resolve/" + COMMIT in path
               for _, path, _ in hub.seen if not path.startswith(("/cdn/", "/cache/")))
    environment["HF_MODEL"] = "../points"
    assert "organisation/name" in program.complaint("fetch", "superpoint", "-q", status=2,
                                                    environment=environment)


@pytest.mark.parametrize("repo, says", [("gated", "HF_TOKEN"), ("gone", "404"), ("page", "no hash"),
                                        ("wrong-hash", "hash")])
def test_refusals(program, hub, tmp_path, repo, says):
    environment = variables(hub, tmp_path) | {"HF_MODEL": f"org/{repo}",
                                              "TT_WEIGHTS_REVISION": COMMIT}
    line = program.complaint("fetch", "superpoint", "-q", status=3, environment=environment)
    assert says in line


def test_offline_and_absent(program, tmp_path):
    line = program.complaint("fetch", "superpoint", "-q", status=3,
                             environment={"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    assert "HF_HUB_OFFLINE" in line
