"""Weights from a stand-in for the hub, on loopback: two hosts, a token, ranges, and what goes wrong."""

import concurrent.futures
import hashlib
import http.server
import multiprocessing
import os
import pathlib
import threading

import pytest

import tapetum
from tapetum import _hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "someone/weights"
BYTES = bytes(range(256)) * 12_000  # 3 MB


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """/REPO/resolve/REVISION/NAME sends one to /blob/NAME of the other host, as the hub does."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        hub = self.server
        hub.seen.append((self.command, self.path, self.headers.get("Authorization")))
        if hub.code:
            return self.reply(hub.code)
        name = self.path.rsplit("/", 1)[-1]
        data = hub.files[name]
        asked = self.path.split("/")[-2]
        commit = hub.commit if len(asked) < 40 or hub.moves is None else asked
        if name.endswith(".json"):
            return self.reply(200, data, ETag=f'"{git_hash(data)}"', X_Repo_Commit=commit)
        answer = {"X_Repo_Commit": commit, "X_Linked_Size": str(len(data)),
                  "Location": hub.other + name,
                  "X_Linked_Etag": f'"{hashlib.sha256(data).hexdigest()}"', **hub.change}
        if hub.moves:  # the branch, after each question
            hub.commit = f"{int(hub.commit, 16) + 1:040x}"
        self.reply(302, **answer)

    def do_GET(self):
        hub = self.server
        hub.seen.append((self.command, self.path, self.headers.get("Authorization")))
        data = hub.lie(hub.files[self.path.rsplit("/", 1)[-1]])
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        piece = data[start:start + hub.at_most] if hub.at_most else data[start:]
        extra = {"Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        self.reply(206 if start else 200, piece, Content_Length=str(len(data) - start), **extra)
        self.close_connection = True


@pytest.fixture
def hub(tmp_path, monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {"config.json": b"{}\n", "model.safetensors": BYTES, "hamer.ckpt": BYTES}
    server.seen, server.code, server.commit, server.at_most = [], 0, COMMIT, 0
    server.change, server.moves = {}, False
    server.lie = lambda data: data
    server.other = f"http://localhost:{server.server_port}/blob/"  # another name: another host
    for name in ("HF_HUB_OFFLINE", "HF_HOME", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def fetch(name="model.safetensors", revision="main", progress=None):
    return _hub.snapshot(REPO, revision, (name,), progress) / name


def leftovers(hub_cache):
    return [p.name for p in pathlib.Path(hub_cache).rglob("*") if ".incomplete" in p.name]


def test_the_caches_layout(hub, tmp_path):
    told = []
    path = fetch(progress=lambda what, share: told.append(share))
    folder = tmp_path / "hub" / "models--someone--weights"
    digest = hashlib.sha256(BYTES).hexdigest()
    assert path == folder / "snapshots" / COMMIT / "model.safetensors"
    assert os.readlink(path) == f"../../blobs/{digest}" and path.read_bytes() == BYTES
    assert (folder / "refs" / "main").read_text() == COMMIT and leftovers(tmp_path) == []
    assert told == sorted(told) and told[-1] == 1
    hub.seen.clear()
    assert fetch() == path and fetch(revision=COMMIT) == path and hub.seen == []
    assert fetch("config.json").read_bytes() == b"{}\n"
    assert (folder / "blobs" / git_hash(b"{}\n")).is_file()


def test_the_token_stays_with_its_host(hub):
    fetch()
    assert [(verb, token) for verb, _, token in hub.seen] == [("HEAD", "Bearer hf_secret"), ("GET", None)]


def test_a_cut_line_is_taken_up(hub, tmp_path, monkeypatch):
    hub.at_most = 1_500_000  # of 3,072,000: three pieces
    assert fetch().read_bytes() == BYTES
    assert sum(verb == "GET" for verb, _, _ in hub.seen) == 3
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "again"))
    hub.at_most = 1_000_000
    with pytest.raises(tapetum.TapetumError, match="ended early|IncompleteRead"):
        fetch()
    assert len(leftovers(tmp_path / "again")) == 1
    hub.seen.clear()
    assert fetch().read_bytes() == BYTES and leftovers(tmp_path / "again") == []
    assert sum(verb == "GET" for verb, _, _ in hub.seen) == 1


@pytest.mark.parametrize("lie", [lambda data: bytes(len(data)), lambda data: data + b"more" * 999_999])
def test_other_bytes_are_thrown_away(hub, tmp_path, lie):
    hub.lie = lie
    with pytest.raises(tapetum.TapetumError, match="other bytes|ended early"):
        fetch()
    blobs = tmp_path / "hub" / "models--someone--weights" / "blobs"
    assert not any(path.suffix != ".incomplete" for path in blobs.iterdir())
    assert all(path.stat().st_size <= len(BYTES) + (2 << 20) for path in blobs.iterdir())
    hub.lie = lambda data: data
    assert fetch().read_bytes() == BYTES


@pytest.mark.parametrize("code, says", [(401, "HF_TOKEN"), (403, "accept its terms"), (404, "no such"),
                                        (503, "try again later"), (429, "try again later")])
def test_each_refusal_has_its_advice(hub, code, says):
    hub.code = code
    with pytest.raises(FileNotFoundError, match=f"{REPO}.*{code}.*{says}"):
        fetch()


def test_a_hub_that_is_none(hub, monkeypatch):
    hub.commit = "../../../../etc"
    with pytest.raises(tapetum.FormatError, match="malformed"):
        fetch()
    hub.commit = ""
    with pytest.raises(tapetum.FormatError, match="does not answer as"):
        fetch()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(FileNotFoundError, match="can't be reached"):
        fetch()


@pytest.mark.parametrize("change", [
    {"Location": "file:///etc/hostname"}, {"Location": "ftp://127.0.0.1/x"}, {"Location": "data:,x"},
    {"X_Linked_Etag": '"."'}, {"X_Linked_Etag": '".."'}, {"X_Linked_Etag": '"a/b"'},
    {"X_Linked_Size": "-1"}, {"X_Linked_Size": "1" * 30}, {"X_Linked_Size": "many"}])
def test_a_hostile_hub(hub, tmp_path, change):
    hub.change = change
    with pytest.raises(tapetum.FormatError):
        fetch()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_branch_that_moves(hub, tmp_path):
    """All files are of the first one's commit."""
    hub.moves = True
    hub.files["extra.bin"] = b"more"
    folder = _hub.snapshot(REPO, "main", ("model.safetensors", "extra.bin"))
    asked = [path for verb, path, _ in hub.seen if verb == "HEAD"]
    assert asked[0].endswith("/resolve/main/model.safetensors")
    assert asked[1].endswith(f"/resolve/{COMMIT}/extra.bin") and folder.name == COMMIT
    hub.moves, hub.commit = None, "f" * 40  # a hub that gives another commit than was asked for
    with pytest.raises(tapetum.FormatError, match="another commit"):
        fetch("hamer.ckpt", COMMIT)


def test_many_threads_at_first(hub):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        paths = {future.result() for future in [pool.submit(fetch) for _ in range(32)]}
    assert len(paths) == 1 and paths.pop().read_bytes() == BYTES


def test_what_progress_raises(hub):
    def broken(what, share):
        raise BrokenPipeError("nobody listens")

    with pytest.raises(BrokenPipeError):
        fetch(progress=broken)
    assert sum(verb == "GET" for verb, _, _ in hub.seen) == 1


def test_an_empty_file_and_a_folder_that_is_none(hub, monkeypatch):
    hub.files["model.safetensors"] = b""
    assert fetch().read_bytes() == b""
    monkeypatch.setenv("HF_HUB_CACHE", "/proc/nowhere")
    with pytest.raises(tapetum.FileError, match="a folder to write to"):
        fetch()


def test_offline_and_full(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE"):
        tapetum.HamerModel.from_pretrained()
    assert hub.seen == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match="make room"):
        fetch()


def test_two_processes_fetch_once(hub):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        paths = [pool.submit(fetch).result for _ in range(2)]
        assert paths[0]() == paths[1]()
    assert sum(verb == "GET" for verb, _, _ in hub.seen) == 1


def test_models_by_name(hub, weights, hand_weights, tmp_path):
    hub.files["model.safetensors"] = weights.read_bytes()
    hub.files["hamer.ckpt"] = hand_weights.read_bytes()
    hub.files["config.json"] = b'{"architectures": ["SuperPointForKeypointDetection"]}'
    with tapetum.SuperPoint.from_pretrained(REPO) as model:
        assert COMMIT in model.info.path
    with tapetum.SuperPoint.from_pretrained() as model:
        assert "magic-leap-community" in model.info.path
    with tapetum.HamerModel.from_pretrained(mano_path="") as model:
        assert "changh95--hamer-weights" in model.info.path
    hub.seen.clear()
    for missing in (tmp_path / "none.ckpt", "./no/such.ckpt", "weights/none.safetensors", "none"):
        with pytest.raises(FileNotFoundError):
            tapetum.HamerModel.from_pretrained(missing)
    assert hub.seen == []
