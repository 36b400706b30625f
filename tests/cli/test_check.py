"""tapetum check, convert and eval, and HaMeR's synthetic weights."""

import base64
import contextlib
import http.server
import json
import os
import re
import subprocess
import threading
import time

import numpy as np
import pytest
from PIL import Image

from conftest import LONG
from test_synth import read_safetensors

PARTS = ("rotmats", "betas", "cam")


# ---- synth, convert ----------------------------------------------------------------------------

def test_synthetic_hamer(program, tiny, hands, tmp_path):
    tensors = read_safetensors(tiny)
    expected = json.loads((hands / "generator.json").read_text())
    text = json.dumps(expected)
    known = [name for name in tensors if name in text]
    assert len(known) > 50, "the names are the checkpoint's"
    said = program.run("synth", "hamer", tmp_path / "again", "--config", "tiny")
    assert "hands mean nothing" in said.stdout
    assert (tmp_path / "again").read_bytes() == tiny.read_bytes()


def test_convert(program, tiny, hands, tmp_path):
    said = program.run("convert", hands / "tiny.ckpt", tmp_path / "out.safetensors")
    assert said.stdout.startswith(f"{tmp_path}/out.safetensors: {hands}/tiny.ckpt, as f32")
    whole, made = read_safetensors(tmp_path / "out.safetensors"), read_safetensors(tiny)
    assert whole.keys() == made.keys()
    for name, tensor in made.items():
        assert np.array_equal(whole[name], tensor), name
    assert not any("mano." in name and "mano_head." not in name for name in whole)
    assert program.run("convert", "-q", tiny, tmp_path / "q.safetensors").stdout == ""


def test_convert_to_half(program, tiny, tmp_path):
    out = tmp_path / "half.safetensors"
    program.run("convert", tiny, out, "--dtype", "f16", "-q")
    raw = out.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    for name, tensor in read_safetensors(tiny).items():
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F16" and header[name]["shape"] == list(tensor.shape)
        half = np.frombuffer(raw[8 + size + begin:8 + size + end], "<f2").reshape(tensor.shape)
        assert np.array_equal(half, tensor.astype(np.float16)), name
    assert out.stat().st_size < 0.6 * tiny.stat().st_size


@pytest.mark.parametrize("words, status, says", [
    ((), 2, "needs a checkpoint"), (("{tiny}", "x.bin"), 2, ".safetensors"),
    (("{tiny}", "x.safetensors", "--dtype", "f8"), 2, "f32, f16"),
    (("{tiny}", "folder.safetensors"), 2, "regular file"),
    (("none.ckpt", "x.safetensors"), 1, "none.ckpt"),
    (("text.ckpt", "x.safetensors"), 3, "text.ckpt"),
    (("{tiny}", "none/x.safetensors"), 1, "none/x.safetensors")])
def test_convert_says_what_is_wrong(program, tiny, tmp_path, words, status, says):
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    words = [word.format(tiny=tiny) for word in words]
    assert says in program.complaint("convert", *words, status=status, cwd=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["folder.safetensors", "text.ckpt"]


# ---- check against a reference -----------------------------------------------------------------

@pytest.fixture()
def check(program, tiny):
    def run(*words, status=0, **more):
        result = program.run("check", "hamer", "-q", "-w", tiny, *words, "--json", status=status,
                             **more)
        return json.loads(result.stdout)
    return run


@pytest.fixture(scope="module")
def crops(hands, tmp_path_factory):
    """The reference's two crops as pictures, narrow and wide, and as an array."""
    folder = tmp_path_factory.mktemp("crops")
    pixels = np.load(hands / "crops_u8.npy")
    Image.fromarray(pixels[0]).save(folder / "0.png")
    Image.fromarray(np.pad(pixels[1], ((0, 0), (32, 32), (0, 0)))).save(folder / "1.png")
    levels = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.save(folder / "crops.npy", levels.transpose(0, 3, 1, 2).astype(np.float32))
    return folder


def test_check_on_synthetic_crops(program, tiny, check):
    got = check()
    assert got["crops"] == 2 and got["passed"] is True and got["correlation"] > 0.999999
    assert 0 < got["mean_error"] < got["max_error"] < 1e-5 and got["precision"] == "f32"
    text = program.run("check", "hamer", "-w", tiny)
    assert re.search(r"^correlation 1\.0000|^correlation 0\.99999", text.stdout, re.M)
    assert "gate        0.9999: passed" in text.stdout and "weights: " in text.stderr


@pytest.mark.parametrize("names", [("0.png", "1.png"), ("crops.npy",)])
def test_check_against_another_programs_numbers(check, crops, hands, tmp_path, names):
    parts = {name: np.load(hands / f"tiny_{name}.npy") for name in PARTS}
    np.savez(tmp_path / "reference.npz", **parts)
    joined = np.concatenate([parts[name].reshape(2, -1) for name in PARTS], axis=1)
    np.save(tmp_path / "reference.npy", joined)
    (tmp_path / "reference.json").write_text(json.dumps(
        {name: part.tolist() for name, part in parts.items()}))
    paths = [crops / name for name in names]
    for ending in ("npz", "npy", "json"):
        got = check(*paths, "--reference", tmp_path / f"reference.{ending}")
        assert got["crops"] == 2 and got["passed"] and got["max_error"] < 1e-5
    # The figures are those of NumPy, and a bad reference does not pass.
    noise = np.random.default_rng(3).normal(0, 0.05, joined.shape).astype(np.float32)
    np.save(tmp_path / "bad.npy", joined + noise)
    got = check(*paths, "--reference", tmp_path / "bad.npy", status=1)
    expected = min(np.corrcoef(joined[i], joined[i] + noise[i])[0, 1] for i in range(2))
    assert got["passed"] is False and got["correlation"] == pytest.approx(expected, abs=1e-5)
    assert got["max_error"] == pytest.approx(np.abs(noise).max(), abs=1e-5)
    assert got["mean_error"] == pytest.approx(np.abs(noise).mean(), abs=1e-6)


def test_check_saves_what_it_compared_with(check, crops, hands, tmp_path):
    check(crops / "crops.npy", "--save", tmp_path / "saved.npy")
    saved = np.load(tmp_path / "saved.npy")
    joined = np.concatenate([np.load(hands / f"tiny_{name}.npy").reshape(2, -1) for name in PARTS],
                            axis=1)
    assert saved.dtype == np.float32 and np.allclose(saved, joined, atol=1e-5)
    assert check(crops / "0.png", crops / "1.png", "--reference", tmp_path / "saved.npy")["passed"]


@pytest.mark.parametrize("precision, least", [("f16", 0.99999), ("int8", 0.9999)])
def test_check_of_lower_precisions(check, precision, least):
    got = check("--precision", precision)
    assert got["precision"] == precision and least < got["correlation"] <= 1


@pytest.mark.parametrize("words, status, says", [
    ((), 2, "needs a model"), (("yolo",), 2, "superpoint, hamer"),
    (("superpoint",), 2, "there is more to check of: hamer"),
    (("hamer", "photo.png"), 1, "320 x 240"), (("hamer", "none.png"), 1, "none.png"),
    (("hamer", "flat.npy"), 1, "crops x 3 x 256 x 192"), (("hamer", "nan.npy"), 1, "NaN"),
    (("hamer", "--reference", "none.npy"), 1, "none.npy"),
    (("hamer", "--reference", "flat.npy"), 1, "2 crops x 157"),
    (("hamer", "--save", "x.txt"), 2, ".npy"), (("hamer", "--save", "none/x.npy"), 1, "none/x.npy"),
    (("hamer", "-b", "1,2,3,4"), 2, "--bbox"), (("hamer", "--requests", "0"), 2, "from 1"),
    (("hamer", "--server", "http://127.0.0.1:9"), 2, "one picture"),
    (("hamer", "--server", "http://127.0.0.1:9", "photo.png", "--save", "x.npy"), 2, "--server"),
    (("hamer", "--server", "http://127.0.0.1:9", "photo.png"), 1, "server running"),
    (("hamer", "--server", "ftp://127.0.0.1:9", "photo.png"), 1, "ftp")])
def test_check_says_what_is_wrong(program, tiny, photo, tmp_path, words, status, says):
    Image.open(photo).save(tmp_path / "photo.png")
    np.save(tmp_path / "flat.npy", np.zeros((3, 4), np.float32))
    np.save(tmp_path / "nan.npy", np.full((1, 3, 256, 192), np.nan, np.float32))
    line = program.complaint("check", *words, "-w", tiny, status=status, cwd=tmp_path)
    assert says in line, line
    assert sorted(os.listdir(tmp_path)) == ["flat.npy", "nan.npy", "photo.png"]


# ---- check of a server -------------------------------------------------------------------------

class Fake(http.server.BaseHTTPRequestHandler):
    """Answers as the contract says, with times that are known; `spoil` changes the fourth."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = self.server.seen
        seen.append((self.path, request, dict(self.headers)))
        answer = {"rotmats": [[1]], "betas": [0.5], "cam": [1, 2, 3],
                  "timing_ms": {"device": len(seen), "total\n": 2 * len(seen)}}
        status = 200
        if len(seen) == 4 and self.server.spoil == "differs":
            answer["cam"][0] = 1.0001
        if len(seen) == 4 and self.server.spoil == "fails":
            status, answer = 503, {"error": "draining"}
        content = json.dumps(answer).encode()
        if self.server.spoil == "html":
            content = b"<html>"
        if self.server.spoil == "other":
            content = b'{"timing_ms": {}, "keypoints": []}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def fake_server(spoil=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    server.daemon_threads = True
    server.seen, server.spoil = [], spoil
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_percentiles(program, photo):
    with fake_server() as (server, url):
        words = ("check", "hamer", photo, "-b", "1,2.5,30,40,left", "-q")
        got = json.loads(program.run(*words, "--server", url, "--json",
                                     environment={"TAPETUM_TOKEN": "secret"}).stdout)
        assert got["requests"] == len(server.seen) == 300
        # Nearest rank of 1, 2, ..., 300; a name reaches the terminal without its line feed.
        assert got["stages_ms"]["device"] == {"p50": 150, "p90": 270, "p99": 297, "max": 300}
        assert got["stages_ms"]["total?"]["p99"] == 594
        assert got["stages_ms"]["round_trip"]["max"] > 0
        path, request, headers = server.seen[0]
        assert path == "/predict" and headers["Authorization"] == "Bearer secret"
        assert base64.b64decode(request["image"], validate=True) == photo.read_bytes()
        assert request["bbox"] == [1, 2.5, 30, 40] and request["is_right"] is False
        program.run(*words, "--server", url + "/hamer/predict", "-n", "1")
        assert server.seen[-1][0] == "/hamer/predict"
    with fake_server() as (server, url):
        text = program.run(*words, "--server", url + "/", "-n", "10").stdout
        assert re.search(r"^device +5\.00 +9\.00 +10\.00 +10\.00$", text, re.M), text
        assert server.seen[0][0] == "/predict"


@pytest.mark.parametrize("spoil, says", [("differs", "answer 4 differs"), ("fails", "503"),
                                         ("html", "no JSON"), ("other", "no rotmats")])
def test_a_server_that_does_not_pass(program, photo, spoil, says):
    with fake_server(spoil) as (_, url):
        line = program.complaint("check", "hamer", photo, "--server", url, "-n", "9", status=1)
    assert says in line and url in line


def test_our_own_server(program, tiny, photo, tmp_path):
    command = program.command("serve", "hamer", "--weights", tiny, "--mano", "none", "--port", "0")
    process = subprocess.Popen(command, env=program.environment, stderr=subprocess.PIPE, text=True)
    try:
        url, ready = None, False
        end = time.monotonic() + LONG
        while not ready and time.monotonic() < end:
            line = process.stderr.readline()
            assert line, "the server ended"
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            url = found.group() if found else url
            ready = "startup complete" in line
        threading.Thread(target=process.stderr.read, daemon=True).start()
        got = json.loads(program.run("check", "hamer", photo, "-b", "60,40,200,170", "--server", url,
                                     "--requests", "20", "--json").stdout)
    finally:
        process.terminate()
        process.wait(timeout=LONG)
    stages = got["stages_ms"]
    assert got["requests"] == 20
    assert set(stages) == {"preprocess", "device", "mano", "total", "round_trip"}
    for times in stages.values():
        assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
    assert 0 < stages["device"]["p50"] <= stages["total"]["p50"] <= stages["round_trip"]["p50"]


# ---- eval --------------------------------------------------------------------------------------

def similarity(points, onto):
    """points after the scaled rotation and shift that bring them nearest: Umeyama 1991."""
    a, b = points - points.mean(0), onto - onto.mean(0)
    u, s, vt = np.linalg.svd(a.T @ b)
    sign = np.diag([1, 1, np.sign(np.linalg.det(u @ vt))])
    return (s * np.diag(sign)).sum() / (a ** 2).sum() * a @ u @ sign @ vt + onto.mean(0)


def expected_errors(predicted, truth):
    moved = predicted - predicted[:, :1] + truth[:, :1]
    aligned = np.array([similarity(p, t) for p, t in zip(predicted, truth)])
    return [1000 * np.linalg.norm(points - truth, axis=2).mean() for points in (moved, aligned)]


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Files of five hands in every format."""
    folder = tmp_path_factory.mktemp("evaluation")
    random = np.random.default_rng(7)
    data = {}
    for name, n in (("joints", 21), ("vertices", 40)):
        truth = random.normal(0, 0.05, (5, n, 3)).astype(np.float32)
        predicted = (truth * 1.1 + random.normal(0, 0.004, truth.shape)).astype(np.float32)
        data[name] = predicted, truth
    for k, file in enumerate(("predicted", "truth")):
        np.save(folder / f"{file}.npy", data["joints"][k])
        np.savez(folder / f"{file}.npz", **{name: pair[k] for name, pair in data.items()})
    (folder / "pred.json").write_text(json.dumps([data[name][0].tolist() for name in (
        "joints", "vertices")]))
    (folder / "xyz.json").write_text(json.dumps(data["joints"][1].tolist()))
    (folder / "verts.json").write_text(json.dumps(data["vertices"][1].tolist()))
    return folder, {name: expected_errors(*pair) for name, pair in data.items()}


@pytest.mark.parametrize("words, name", [
    (("predicted.npy", "truth.npy"), "joints"), (("pred.json", "xyz.json"), "joints"),
    (("predicted.npz", "truth.npz", "--joints", "joints"), "joints"),
    (("predicted.npz", "truth.npz", "--joints", "vertices"), "vertices"),
    (("pred.json", "verts.json", "--predicted", "1"), "vertices"),
    (("predicted.npy", "truth.npz", "--truth", "joints"), "joints")])
def test_eval(program, evaluation, words, name):
    folder, expected = evaluation
    got = json.loads(program.run("eval", *words, "--json", cwd=folder).stdout)
    assert got["hands"] == 5 and got["points"] == {"joints": 21, "vertices": 40}[name]
    assert [got["mpjpe_mm"], got["pa_mpjpe_mm"]] == pytest.approx(expected[name], rel=1e-4)
    assert got["pa_mpjpe_mm"] < got["mpjpe_mm"]


def test_eval_for_people(program, evaluation):
    folder, expected = evaluation
    text = program.run("eval", "predicted.npy", "truth.npy", cwd=folder).stdout
    assert text == (f"hands      5 of 21 points\nMPJPE      {expected['joints'][0]:.3f} mm\n"
                    f"PA-MPJPE   {expected['joints'][1]:.3f} mm\n")


@pytest.mark.parametrize("words, status, says", [
    (("truth.npy",), 2, "two files"), (("none.npy", "truth.npy"), 1, "none.npy"),
    (("predicted.npy", "verts.json"), 1, "same hands"),
    (("predicted.npz", "truth.npz", "--joints", "elbows"), 1, "elbows"),
    (("flat.npy", "truth.npy"), 1, "hands x points x 3"), (("nan.npy", "nan.npy"), 1, "NaN")])
def test_eval_says_what_is_wrong(program, evaluation, words, status, says):
    folder, _ = evaluation
    np.save(folder / "flat.npy", np.zeros(9, np.float32))
    np.save(folder / "nan.npy", np.full((2, 21, 3), np.nan, np.float32))
    assert says in program.complaint("eval", *words, status=status, cwd=folder)
