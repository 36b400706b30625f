"""The client against the program's own server, and against servers that misbehave."""

import base64
import http.server
import io
import json
import os
import pickle
import re
import subprocess
import threading
import time
import zipfile

import numpy as np
import pytest
from conftest import shared
from PIL import Image

import tapetum

BOX = [20, 20, 90, 90]


@pytest.fixture(scope="module")
def server(weights, hand_weights, tmp_path_factory):
    """One process that serves both models, with a token."""
    program = os.environ.get("TAPETUM_BINARY")
    if not program:
        pytest.skip("no program to serve with (set TAPETUM_BINARY)")
    mano = shared("golden/hamer/MANO_RIGHT_synthetic.pkl")
    log = tmp_path_factory.mktemp("server") / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [program, "serve", "superpoint", "hamer", "--port", "0", "--token", "sesame",
             "--superpoint-weights", weights, "--hamer-weights", hand_weights, "--mano", mano],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    end = time.monotonic() + 60
    while "Application startup complete" not in log.read_text():
        assert time.monotonic() < end and process.poll() is None, log.read_text()
        time.sleep(0.01)
    yield re.search(r"Listening on (http://\S+?)[\"\n]", log.read_text()).group(1)
    process.terminate()
    assert process.wait(60) == 0


@pytest.fixture
def client(server):
    return tapetum.Client(server, token="sesame")


def test_the_same_keypoints(client, model, pixels, tmp_path):
    ours = model(pixels, size=(160, 120), max_keypoints=50)
    theirs = client.superpoint(pixels, size=(160, 120), max_keypoints=50)
    for name in ("keypoints", "scores"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        assert not getattr(theirs, name).flags.writeable
    np.testing.assert_allclose(theirs.descriptors, ours.descriptors, atol=5e-4)  # half floats
    assert theirs.descriptors.dtype == np.float32 and theirs.scale == ours.scale
    assert theirs.original_size == ours.original_size and theirs.image_size == ours.image_size
    assert set(theirs.timing_ms) == set(ours.timing_ms)
    assert np.array_equal(theirs.draw().array, ours.draw().array)
    path = tmp_path / "frame.png"
    Image.fromarray(pixels).save(path)
    for image in (path, path.read_bytes(), Image.open(path)):
        assert np.array_equal(client.superpoint(image, size="160x120").keypoints,
                              client.superpoint(pixels, size="160x120").keypoints)
    bare = client.superpoint(pixels, size="native", return_descriptors=False)
    assert bare.descriptors is None and len(bare) > 0
    empty = client.superpoint(pixels, keypoint_threshold=1.0)
    assert empty.keypoints.shape == (0, 2) and empty.descriptors.shape == (0, 256)


def test_the_same_matches(client, model, pixels):
    options = {"size": (160, 120), "min_similarity": 0.5}
    ours = model.match(pixels, pixels[::-1], **options)
    theirs = client.match(pixels, pixels[::-1], **options)
    assert np.array_equal(ours.indices, theirs.indices)
    np.testing.assert_allclose(theirs.similarity, ours.similarity, atol=1e-6)
    assert np.array_equal(ours.draw().array, theirs.draw().array)


def test_the_same_hands(client, hamer, pixels):
    ours, theirs = hamer(pixels, BOX), client.hamer(pixels, BOX)
    for name in ("rotmats", "betas", "cam", "cam_t_full", "vertices", "joints", "keypoints_2d", "faces",
                 "rotmats_image", "axis_angle", "cam_t"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert np.array_equal(a, b) and a.dtype == b.dtype and not b.flags.writeable, name
    assert theirs.focal_length == ours.focal_length and theirs.bbox_source == "given"
    assert theirs._square == ours._square
    assert np.array_equal(theirs.draw().array, ours.draw().array)
    options = {"is_right": [False, True], "policy": "demo", "camera": (500, 600, 80, 60)}
    ours, theirs = hamer(pixels, [BOX, BOX], **options), client.hamer(pixels, [BOX, BOX], **options)
    assert isinstance(theirs, tapetum.Hands) and [hand.is_right for hand in theirs] == [False, True]
    for a, b in zip(ours, theirs):
        assert a._square == b._square and np.array_equal(a.vertices, b.vertices)
    assert client.hamer(pixels).bbox_source == "center" and client.hamer(pixels, []) == []
    assert client.hamer(pixels, BOX, return_vertices=False).vertices is None


def test_an_answer_there_and_back(hamer, pixels):
    """from_dict and to_dict undo each other, through JSON; the card's fields are enough."""
    answer = json.loads(json.dumps(hamer(pixels, BOX, is_right=False).to_dict()))
    assert tapetum.Hand.from_dict(answer).to_dict() == answer
    card = {name: answer[name] for name in (
        "image_size", "bbox", "is_right", "rotmats", "betas", "cam", "cam_t_full", "mano_available",
        "trace_active", "timing_ms", "joints", "vertices", "keypoints_2d")}
    hand = tapetum.Hand.from_dict(card, pixels)
    assert hand.focal_length == (3125, 3125) and hand.principal_point == (80, 60)
    assert hand.draw(drawing="skeleton").size == (160, 120)
    for bad in ({}, {**card, "rotmats": [1, 2]}, {**card, "bbox": None}, {**card, "cam": ["a"]}):
        with pytest.raises(tapetum.FormatError, match="no answer for a hand"):
            tapetum.Hand.from_dict(bad)
    for bad in ({}, {"keypoints": [1]}, {"keypoints": [], "scores": [], "scale": 1}):
        with pytest.raises(tapetum.FormatError, match="no answer with keypoints"):
            tapetum.Keypoints.from_dict(bad)


def test_the_servers_own_words(client, server, pixels):
    assert client.health()["status"] == "ok" and "models" in client.info()
    assert [entry["object"] for entry in client.models()] == ["model", "model"]
    with pytest.raises(tapetum.ServerError, match="401") as caught:
        tapetum.Client(server).superpoint(pixels)
    assert caught.value.code == 401 and pickle.loads(pickle.dumps(caught.value)).code == 401
    with pytest.raises(tapetum.ServerError, match="400.*max_keypoints"):
        client.superpoint(pixels, max_keypoints="many")
    with pytest.raises(tapetum.ServerError, match="400.*bbox"):
        client.hamer(pixels, [50, 50, 40, 90])
    with pytest.raises(tapetum.ArgumentError, match="JSON"):
        client.superpoint(pixels, keypoint_threshold=float("nan"))
    assert len(client.superpoint(pixels, max_keypoints=np.int64(5))) == 5
    for call, says in ((lambda: client.superpoint(pixels, sizes="native"), "sizes"),
                       (lambda: client.hamer(pixels, BOX, camera=(1, 2, 3, 4, 5)), "camera"),
                       (lambda: client.hamer(pixels, "box"), "bbox"),
                       (lambda: client.hamer(pixels, BOX, rescale_factor="2"), "rescale_factor")):
        with pytest.raises(tapetum.ArgumentError, match=says):
            call()
    with pytest.raises(tapetum.NotFoundError):
        client.superpoint("/nope.png")
    with pytest.raises(FileNotFoundError):
        client.superpoint("none.png")


def test_threads_share_a_client(client, pixels):
    wanted = client.superpoint(pixels).keypoints
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.superpoint(pixels).keypoints))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and all(np.array_equal(answer, wanted) for answer in answers)


# ---- servers that misbehave -------------------------------------------------------------------


class Strange(http.server.BaseHTTPRequestHandler):
    """Answers with what the test put into `answers`, in order: (code, headers, body)."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)
        code, headers, body = self.server.answers.pop(0)
        if code is None:
            return body(self)
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def strange():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    server.answers, server.paths = [], []
    server.handle_error = lambda *_: None  # a client that hung up
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


GOOD = (200, {}, b'{"keypoints": [], "scores": [], "original_size": {"width": 8, "height": 8}, '
                 b'"image_size": {"width": 8, "height": 8}, "scale": {"x": 1, "y": 1}}')
BUSY = (503, {"Retry-After": "1"}, b'{"detail": "too many are waiting"}')
PLAIN = (404, {}, b'{"detail": "Not Found"}')


def test_a_busy_server_is_asked_again(strange, pixels):
    strange.answers = [BUSY, GOOD]
    begun = time.monotonic()
    assert len(tapetum.Client(strange.url).superpoint(pixels)) == 0
    assert 1 <= time.monotonic() - begun < 10 and len(strange.paths) == 2
    strange.answers = [BUSY] * 3
    with pytest.raises(tapetum.ServerError, match="503: too many are waiting"):
        tapetum.Client(strange.url, retries=0).superpoint(pixels)
    assert len(strange.answers) == 2
    with pytest.raises(tapetum.ServerError, match="503"):  # no time to wait a second
        tapetum.Client(strange.url, timeout=0.5).superpoint(pixels)
    assert len(strange.answers) == 1


def test_the_cards_server_has_only_the_plain_route(strange, pixels):
    strange.answers = [PLAIN, GOOD, PLAIN, GOOD]
    client = tapetum.Client(strange.url)
    assert len(client.superpoint(pixels)) == 0 and strange.paths == ["/superpoint/predict", "/predict"]
    with pytest.raises(tapetum.FormatError, match="is it HaMeR"):
        client.hamer(pixels)


def test_it_times_out(strange, pixels):
    def silent(_):
        time.sleep(3)

    def dripping(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(30):
            handler.wfile.write(b" ")
            time.sleep(0.1)

    def dripping_headers(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for i in range(30):
            handler.wfile.write(b"X-%d: 1\r\n" % i)
            time.sleep(0.1)

    def continuing(handler):
        for _ in range(30):
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.1)

    for answer in (silent, dripping, dripping_headers, continuing):
        strange.answers = [(None, {}, answer)]
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="0.5 s") as caught:
            tapetum.Client(strange.url, timeout=0.5).superpoint(pixels)
        assert isinstance(caught.value, tapetum.TapetumError) and time.monotonic() - begun < 2.5


def test_what_is_no_answer(strange, pixels):
    client = tapetum.Client(strange.url)
    for body in (b"<html>", b"[1]", b"", b'{"keypoints": 5}', b"{}"):
        strange.answers = [(200, {}, body)]
        with pytest.raises(tapetum.FormatError):
            client.superpoint(pixels)
    good = json.loads(GOOD[2])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:  # a header that claims terabytes
        file.writestr("descriptors.npy", b"\x93NUMPY\x01\x00v\x00" + (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1099511627776), }".ljust(117) + b"\n"))
    terabytes = {"data": base64.b64encode(archive.getvalue()).decode()}
    for change in ({"timing_ms": []}, {"original_size": {"width": 1e999, "height": 1}}, {"scores": [1]},
                   {"descriptors": {"data": "AAAA"}}, {"descriptors": {"data": 5}},
                   {"descriptors": {**terabytes, "key": "none"}}, {"scale": []}):
        strange.answers = [(200, {}, json.dumps({**good, **change}).encode())]
        with pytest.raises(tapetum.FormatError):
            client.superpoint(pixels)
    strange.answers = [(200, {}, json.dumps({**good, "descriptors": terabytes}).encode())]
    assert client.superpoint(pixels).descriptors.nbytes == 0
    for change in ({}, {"a": good, "b": good}, {"a": good, "b": good, "similarity": [1]},
                   {"a": good, "b": good, "similarity": [1], "matches": [[0, 0]]},
                   {"a": good, "b": good, "similarity": [1], "matches": [[-1, 0]]}):
        strange.answers = [(200, {}, json.dumps({"matches": [[1, 2, 3]], **change}).encode())]
        with pytest.raises(tapetum.FormatError):
            client.match(pixels, pixels)
    for body in (b'{"hands": 5}', b'{"hands": [5]}', b"[" * 200_000, b'{"rotmats": 1}'):
        strange.answers = [(200, {}, body)]
        with pytest.raises(tapetum.FormatError):
            client.hamer(pixels)
    strange.answers = [(200, {"Content-Length": "1000"}, GOOD[2])]
    with pytest.raises(ConnectionError):
        client.superpoint(pixels)
    strange.answers = [(500, {}, b"oops")]
    with pytest.raises(tapetum.ServerError, match="500: no reason was given"):
        client.superpoint(pixels)
    strange.answers = [(None, {}, lambda handler: handler.connection.close())]
    with pytest.raises(ConnectionError, match="is the server running"):
        client.superpoint(pixels)
    with pytest.raises(ConnectionError, match="tapetum serve"):
        tapetum.Client("http://127.0.0.1:1").health()


@pytest.mark.parametrize("url, timeout", [("robot:20000", 1), ("ftp://robot", 1), ("http://", 1),
                                          ("http://robot:x", 1), ("http://robot", 0),
                                          ("http://robot", float("nan")), ("http://robot", 1e10)])
def test_wrong_clients(url, timeout):
    with pytest.raises(ValueError, match="url|timeout"):
        tapetum.Client(url, timeout=timeout)
    with pytest.raises(ValueError, match="retries"):
        tapetum.Client("http://robot", retries=-1)
