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


# ---- HaMeR -------------------------------------------------------------------------------------

@pytest.fixture()
def hamer_hub(hands):
    stand_in = StandIn({"hamer.ckpt": (hands / "tiny.ckpt").read_bytes()})
    yield stand_in
    stand_in.close()


def test_hamer_fetched_once_then_found(program, hamer_hub, hands, photo, tmp_path):
    environment = variables(hamer_hub, tmp_path)
    first = program.run("fetch", "hamer", environment=environment)
    folder = pathlib.Path(first.stdout.rstrip("\n"))
    assert folder == tmp_path / "models--changh95--hamer-weights" / "snapshots" / COMMIT
    assert (folder / "hamer.ckpt").read_bytes() == (hands / "tiny.ckpt").read_bytes()
    assert "non-commercial" in first.stderr and "MANO" in first.stderr
    hamer_hub.close()
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert program.run("fetch", "hamer", "-q", environment=environment).stdout == first.stdout
    assert f"{folder}/hamer.ckpt" in program.run("info", environment=environment).stdout
    # Another file of the repository, which some other client brought, is no matter.
    (folder / "other.pth").write_text("not ours")
    answer = program.run("hamer", photo, "-q", environment=environment)
    assert "right hand" in answer.stdout


def test_bytes_that_are_no_hamer(program, hamer_hub, tmp_path):
    hamer_hub.server.files["hamer.ckpt"] = b"PK\x03\x04 and then nothing"
    line = program.complaint("fetch", "hamer", "-q", status=3,
                             environment=variables(hamer_hub, tmp_path))
    assert "no usable HaMeR" in line and not list(tmp_path.rglob("hamer.ckpt"))


@pytest.mark.parametrize("given, repo, revision", [
    ({}, "changh95/hamer-weights", "main"),
    ({"TT_WEIGHTS_REVISION": "v2"}, "changh95/hamer-weights", "main"),
    ({"HF_MODEL": "magic-leap-community/superpoint", "TT_WEIGHTS_REVISION": "v2"},
     "changh95/hamer-weights", "main"),
    ({"HF_MODEL": "changh95/hamer-weights", "TT_WEIGHTS_REVISION": "v2"},
     "changh95/hamer-weights", "v2"),
    ({"HF_MODEL": "someone/hands"}, "someone/hands", "main")])
def test_one_environment_for_both_models(program, hamer_hub, tmp_path, given, repo, revision):
    environment = variables(hamer_hub, tmp_path) | given
    program.run("fetch", "hamer", "-q", environment=environment)
    assert hamer_hub.seen[0][1].startswith(f"/{repo}/resolve/{revision}/hamer.ckpt")


def test_superpoint_beside_hamers_environment(program, hub, tmp_path):
    environment = variables(hub, tmp_path) | {"HF_MODEL": "changh95/hamer-weights",
                                              "TT_WEIGHTS_REVISION": "v2"}
    program.run("fetch", "superpoint", "-q", environment=environment)
    assert hub.seen[0][1].startswith(f"/magic-leap-community/superpoint/resolve/{COMMIT}/")
