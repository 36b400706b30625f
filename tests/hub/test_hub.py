"""Downloads from a stand-in hub: what is believed, what is refused, and that nothing half stays."""

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from stand_in import COMMIT, StandIn, git_sha1

TOOL = os.environ["HUB_TOOL"]
CONTENT = bytes(range(256)) * 4000
CONFIG = b'{"model_type": "superpoint"}\n'
NAME = "model.safetensors"


@pytest.fixture()
def hub():
    stand_in = StandIn({NAME: CONTENT, "config.json": CONFIG, "sub/deep.safetensors": b"deep"})
    yield stand_in
    stand_in.close()


def environment(cache, hub=None, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "HUB_"))}
    clean.update(HF_HUB_CACHE=str(cache), **more)
    if hub is not None:
        clean.setdefault("HF_ENDPOINT", hub.endpoint)
    return clean


def command(verb, repo, revision, files, max_bytes):
    return [TOOL, verb, f"org/{repo}", revision, str(max_bytes), *files]


def run(cache, hub, repo, files=(NAME,), revision=COMMIT, max_bytes=2 << 20, verb="fetch", **more):
    result = subprocess.run(command(verb, repo, revision, files, max_bytes), text=True,
                            env=environment(cache, hub, **more), capture_output=True, timeout=60)
    assert result.returncode < 90 and result.stderr == "", result
    return result.returncode, result.stdout.strip()


def refused(cache, hub, repo, status, *words, **more):
    code, text = run(cache, hub, repo, **more)
    assert code != 0 and text.startswith(status + " "), text
    for word in words:
        assert word in text, text
    left = [p for p in pathlib.Path(cache).rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert left == [], "nothing may stay of a failed download"
    return text


def test_layout_is_the_shared_one(tmp_path, hub):
    code, folder = run(tmp_path, hub, "good", files=("config.json", NAME, "sub/deep.safetensors"))
    root = tmp_path / "models--org--good"
    assert code == 0 and folder == str(root / "snapshots" / COMMIT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    link = root / "snapshots" / COMMIT / NAME
    assert os.readlink(link) == f"../../blobs/{digest}"
    assert link.read_bytes() == CONTENT
    config = root / "snapshots" / COMMIT / "config.json"
    assert os.readlink(config) == f"../../blobs/{git_sha1(CONFIG)}"
    deep = root / "snapshots" / COMMIT / "sub" / "deep.safetensors"
    assert os.readlink(deep).startswith("../../../blobs/") and deep.read_bytes() == b"deep"
    assert not (root / "refs").exists(), "a download by commit writes no ref"
    assert not list(tmp_path.rglob("*.incomplete"))
    assert (tmp_path / ".locks" / "models--org--good" / f"{digest}.lock").exists()
    # And it is found again without a network.
    assert run(tmp_path, None, "good", verb="find", HF_ENDPOINT="http://127.0.0.1:1") == (0, folder)


def test_a_branch_leaves_a_ref(tmp_path, hub):
    code, folder = run(tmp_path, hub, "good", revision="main")
    assert code == 0 and folder.endswith(COMMIT)
    assert (tmp_path / "models--org--good/refs/main").read_text() == COMMIT
    assert run(tmp_path, None, "good", revision="main", verb="find") == (0, folder)


def test_a_plain_answer(tmp_path, hub):
    code, folder = run(tmp_path, hub, "plain", files=("config.json",))
    assert code == 0 and (pathlib.Path(folder) / "config.json").read_bytes() == CONFIG


def test_what_is_there_is_not_fetched_again(tmp_path, hub):
    assert run(tmp_path, hub, "good")[0] == 0
    before = len(hub.seen)
    assert run(tmp_path, hub, "good")[0] == 0
    assert [seen[0] for seen in hub.seen[before:]] == ["HEAD"]


def test_a_damaged_blob_is_replaced(tmp_path, hub):
    code, folder = run(tmp_path, hub, "good")
    blob = (pathlib.Path(folder) / NAME).resolve()
    blob.write_bytes(CONTENT[:-1] + b"?")
    assert run(tmp_path, hub, "good")[0] == 0
    assert blob.read_bytes() == CONTENT


def test_a_stale_partial_file_does_no_harm(tmp_path, hub):
    blobs = tmp_path / "models--org--good/blobs"
    blobs.mkdir(parents=True)
    (blobs / (hashlib.sha256(CONTENT).hexdigest() + ".incomplete")).write_bytes(CONTENT * 2)
    code, folder = run(tmp_path, hub, "good")
    assert code == 0 and (pathlib.Path(folder) / NAME).read_bytes() == CONTENT


@pytest.mark.parametrize("repo, status, words", [
    ("gone", "TAP_ERR_NOT_FOUND", ["404", "no such repository"]),
    ("no-revision", "TAP_ERR_NOT_FOUND", ["no revision"]),
    ("gated", "TAP_ERR_UNSUPPORTED", ["gated", "terms", "HF_TOKEN"]),
    ("private", "TAP_ERR_UNSUPPORTED", ["401", "HF_TOKEN"]),
    ("denied", "TAP_ERR_UNSUPPORTED", ["403", "HF_TOKEN"]),
    ("limited", "TAP_ERR_IO", ["429", "try again later"]),
    ("broken", "TAP_ERR_IO", ["503"]),
    ("storage-down", "TAP_ERR_IO", ["500"]),
    ("forbidden", "TAP_ERR_IO", ["403"]),
    ("page", "TAP_ERR_FORMAT", ["no hash"]),
    ("no-hash", "TAP_ERR_FORMAT", ["no hash"]),
    ("wrong-hash", "TAP_ERR_FORMAT", ["hash", "thrown away"]),
    ("other-commit", "TAP_ERR_FORMAT", ["commit"]),
    ("short", "TAP_ERR_FORMAT", ["incomplete"]),
    ("long", "TAP_ERR_LIMIT", ["larger"]),
    ("cut", "TAP_ERR_IO", ["transfer failed"]),
    ("to-http", "TAP_ERR_FORMAT", ["192.0.2.1", "https"]),
    ("to-ftp", "TAP_ERR_FORMAT", ["https"]),
])
def test_refused(tmp_path, hub, repo, status, words):
    refused(tmp_path, hub, repo, status, *words)


def test_redirects_end(tmp_path, hub):
    # The hash is known after the first answer; the content goes round in circles.
    refused(tmp_path, hub, "loop", "TAP_ERR_FORMAT", "redirects")


def test_missing_file(tmp_path, hub):
    refused(tmp_path, hub, "good", "TAP_ERR_NOT_FOUND", "no.txt", files=("no.txt",))


def test_too_large_is_refused_before_it_comes(tmp_path, hub):
    refused(tmp_path, hub, "good", "TAP_ERR_LIMIT", "1000", max_bytes=1000)
    assert not any(path.startswith("/cdn/") for _, path, _ in hub.seen)


def test_an_endless_body_is_left(tmp_path, hub):
    refused(tmp_path, hub, "endless", "TAP_ERR_LIMIT", "larger than the 100000 bytes",
            files=("config.json",), max_bytes=100_000)
    assert sum(method == "GET" for method, _, _ in hub.seen) == 1, "it would not end next time"


def test_a_broken_transfer_begins_anew(tmp_path, hub):
    # No resumption: a file's beginning is never joined to another answer's end.
    refused(tmp_path, hub, "cut", "TAP_ERR_IO", HUB_ATTEMPTS="3")
    gets = [headers for method, path, headers in hub.seen
            if method == "GET" and path.startswith("/cdn/")]
    assert len(gets) == 3 and not any("Range" in headers for headers in gets)
    code, folder = run(tmp_path, hub, "cut-once")
    assert code == 0 and (pathlib.Path(folder) / NAME).read_bytes() == CONTENT


def test_a_check_that_fails_throws_the_file_away(tmp_path, hub):
    refused(tmp_path, hub, "good", "TAP_ERR_FORMAT", "not today", HUB_REFUSE="not today")


@pytest.mark.parametrize("repo, attempts", [("flaky", 3), ("busy", 2)])
def test_passing_trouble_is_survived(tmp_path, hub, repo, attempts):
    assert run(tmp_path, hub, repo)[0] == 0
    assert sum(method == "HEAD" for method, _, _ in hub.seen) == attempts


def test_trouble_is_not_survived_for_ever(tmp_path, hub):
    refused(tmp_path, hub, "broken", "TAP_ERR_IO", HUB_ATTEMPTS="2")
    assert len(hub.seen) == 2


def test_a_dripping_server_is_left(tmp_path, hub):
    start = time.monotonic()
    refused(tmp_path, hub, "drip", "TAP_ERR_IO", "transfer failed", HUB_STALL_MS="2000",
            HUB_ATTEMPTS="1")
    assert time.monotonic() - start < 15


def test_the_token_stays_with_its_host(tmp_path, hub):
    assert run(tmp_path, hub, "other-host", HF_TOKEN="hf_secret")[0] == 0
    by_host = {headers["Host"].split(":")[0]: "Authorization" in headers
               for _, _, headers in hub.seen}
    assert by_host == {"127.0.0.1": True, "localhost": False}


@pytest.mark.parametrize("endpoint", ["http://192.0.2.1", "ftp://127.0.0.1", "http://", "nonsense",
                                      "http://127.0.0.1.example.org", "file:///etc"])
def test_endpoints_that_are_refused(tmp_path, endpoint):
    refused(tmp_path, None, "good", "TAP_ERR_ARGUMENT", "HF_ENDPOINT", HF_ENDPOINT=endpoint)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to forge with")
def test_a_forged_certificate(tmp_path):
    pem = tmp_path / "forged.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                           "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                           "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                           "-keyout", pem, "-out", tmp_path / "certificate"], capture_output=True)
    assert made.returncode == 0, made.stderr
    pem.write_bytes(pem.read_bytes() + (tmp_path / "certificate").read_bytes())
    forger = StandIn({NAME: CONTENT}, certificate=pem)
    try:
        text = refused(tmp_path / "cache", forger, "good", "TAP_ERR_IO", "certificate",
                       HF_TOKEN="hf_secret")
    finally:
        forger.close()
    assert "hf_secret" not in text and forger.seen == []


def test_nobody_listens(tmp_path):
    refused(tmp_path, None, "good", "TAP_ERR_IO", "127.0.0.1:1", HF_ENDPOINT="http://127.0.0.1:1")


def test_offline(tmp_path, hub):
    refused(tmp_path, hub, "good", "TAP_ERR_IO", "HF_HUB_OFFLINE", HF_HUB_OFFLINE="1")
    assert hub.seen == []
    code, folder = run(tmp_path, hub, "good")
    assert code == 0
    assert run(tmp_path, None, "good", verb="find", HF_HUB_OFFLINE="1") == (0, folder)


@pytest.mark.parametrize("revision", ["../../etc", "/etc", "a//b", "", ".git", "a b", "main\n"])
def test_revisions_that_could_leave_the_cache(tmp_path, hub, revision):
    refused(tmp_path, hub, "good", "TAP_ERR_ARGUMENT", "revision", revision=revision)
    assert hub.seen == []


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "", "a?b", ".hidden"])
def test_names_that_could_leave_the_cache(tmp_path, hub, name):
    refused(tmp_path, hub, "good", "TAP_ERR_ARGUMENT", "file name", files=(name,))
    assert hub.seen == []


@pytest.mark.parametrize("repo", ["", "..", "a/b", "x?y"])
def test_ids_that_could_leave_the_cache(tmp_path, hub, repo):
    refused(tmp_path, hub, repo, "TAP_ERR_ARGUMENT", "organisation/name")


def test_find_without_anything(tmp_path):
    code, text = run(tmp_path, None, "good", verb="find")
    assert code != 0 and text.startswith("TAP_ERR_NOT_FOUND") and NAME in text


def test_find_with_a_forged_ref(tmp_path):
    ref = tmp_path / "models--org--good/refs/main"
    ref.parent.mkdir(parents=True)
    ref.write_text("../../../../../../etc/passwd/aaaaaaaaaaa")
    code, text = run(tmp_path, None, "good", revision="main", verb="find")
    assert text.startswith("TAP_ERR_FORMAT"), text


@pytest.mark.parametrize("variables, cache", [
    ({"HF_HUB_CACHE": "{0}/a", "HF_HOME": "{0}/b", "HOME": "{0}/d"}, "a"),
    ({"HF_HOME": "{0}/b", "XDG_CACHE_HOME": "{0}/c", "HOME": "{0}/d"}, "b/hub"),
    ({"XDG_CACHE_HOME": "{0}/c", "HOME": "{0}/d"}, "c/huggingface/hub"),
    ({"HF_HUB_CACHE": "", "HOME": "{0}/d"}, "d/.cache/huggingface/hub"),
])
def test_where_the_cache_is(tmp_path, hub, variables, cache):
    clean = environment(tmp_path, hub)
    for name in ("HF_HUB_CACHE", "HOME"):
        clean.pop(name, None)
    clean.update({name: value.format(tmp_path) for name, value in variables.items()})
    result = subprocess.run(command("fetch", "good", COMMIT, [NAME], 2 << 20), env=clean, text=True,
                            capture_output=True, timeout=60)
    assert result.returncode == 0, result
    assert result.stdout.startswith(f"{tmp_path}/{cache}/models--org--good/")


def test_no_home_at_all(hub):
    clean = environment("", hub)
    clean.pop("HOME", None)
    result = subprocess.run(command("fetch", "good", COMMIT, [NAME], 2 << 20), env=clean, text=True,
                            capture_output=True, timeout=60)
    assert "HF_HUB_CACHE" in result.stdout and result.returncode != 0


def test_a_place_where_nothing_can_be_made(hub):
    code, text = run("/proc/none", hub, "good")
    assert code != 0 and "/proc/none" in text, text


def test_no_right_to_write(hub):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        someone = {"user": 65534} if os.geteuid() == 0 else {}  # root may write anywhere
        try:
            result = subprocess.run(command("fetch", "good", COMMIT, [NAME], 2 << 20), text=True,
                                    env=environment(folder, hub), capture_output=True, timeout=60,
                                    **someone)
        except PermissionError:
            pytest.skip("the tests are built where other users may not go")
        assert result.stdout.startswith("TAP_ERR_IO ") and folder in result.stdout, result
        assert "ermission" in result.stdout and os.listdir(folder) == []


def test_full_disk(tmp_path, hub):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)],
                      capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        refused(small, hub, "good", "TAP_ERR_IO", "1024000", "free")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_file_size_limit(tmp_path, hub):
    """The disk fills while the file comes: the same path as ENOSPC, without a mount."""
    result = subprocess.run(
        ["sh", "-c", 'trap "" XFSZ; ulimit -f 100; exec "$@"', "sh",
         *command("fetch", "good", COMMIT, [NAME], 2 << 20)],
        env=environment(tmp_path, hub), text=True, capture_output=True, timeout=60)
    assert result.returncode != 0 and "cannot write" in result.stdout, result
    assert not list(tmp_path.rglob("*.incomplete"))


def test_two_at_once_fetch_once(tmp_path, hub):
    pair = [subprocess.Popen(command("fetch", "slow", COMMIT, [NAME], 2 << 20), text=True,
                             env=environment(tmp_path, hub), stdout=subprocess.PIPE)
            for _ in range(2)]
    folders = [process.communicate(timeout=60)[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0] and folders[0] == folders[1]
    assert sum(path.startswith("/cdn/") for _, path, _ in hub.seen) == 1


def test_killed_in_the_middle(tmp_path, hub):
    process = subprocess.Popen(command("fetch", "killed", COMMIT, [NAME], 2 << 20),
                               env=environment(tmp_path, hub), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not list(tmp_path.rglob("*.incomplete")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run(tmp_path, hub, "killed", verb="find")[0] != 0, "nothing is there before it is whole"
    assert not list(tmp_path.rglob(NAME))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run(tmp_path, hub, "killed", verb="find")[0] != 0, "half is not there"
    assert list(tmp_path.rglob("*.incomplete")), "a killed process can't tidy up"
    # What the dead process left is overwritten, its lock is free.
    code, folder = run(tmp_path, hub, "killed")
    assert code == 0 and (pathlib.Path(folder) / NAME).read_bytes() == CONTENT
    assert not list(tmp_path.rglob("*.incomplete"))
