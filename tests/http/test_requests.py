"""Requests that are wrong, cut, or made to hurt: each is answered in words or closed, and the
server goes on. `test_all_at_the_end` says how many there were."""

import json
import random
import socket
import struct
import zlib

import pytest
import requests

from conftest import LONG, Server, blobs, encoded, text64, wait_until

PICTURE = encoded(blobs(32, 32))
IMAGE = text64(PICTURE)
sent = set()


@pytest.fixture(scope="module")
def server(tmp_path_factory, weights):
    """Half a request keeps its connection until the idle time is over: not long, here."""
    server = Server(tmp_path_factory.mktemp("server"), weights, "--idle-timeout", "2")
    yield server
    assert server.stop() == 0, server.log()


def refuse(server, code, word, body, headers=None, path="/predict"):
    """Sends one body, and wants this code and word."""
    headers = {"Content-Type": "application/json"} | (headers or {})
    answer = requests.post(server.url + path, data=body, headers=headers, timeout=LONG)
    sent.add((path, bytes(body) if not isinstance(body, str) else body, str(headers)))
    codes = code if isinstance(code, tuple) else (code,)
    assert answer.status_code in codes, (answer.status_code, answer.text[:300])
    assert set(answer.json()) == {"detail"}
    assert word in answer.json()["detail"], answer.json()["detail"]
    return answer.json()["detail"]


# ---- fields -----------------------------------------------------------------------------------

WRONG = {
    "max_keypoints": [-2, 307201, 5.5, "5", True, None, [], {}, 1e300, 2**63, -2**63, 2**70,
                      "", "NaN"],
    "keypoint_threshold": [-0.001, 1.001, "0.1", True, None, [], {}, 1e300, "NaN"],
    "nms_radius": [-1, 33, 4.5, "4", False, None, [], {}, 2**64],
    "return_descriptors": ["true", "false", 1, 0, None, [], {}, 1.0, ""],
    "nms": ["double", "", "SINGLE", 1, None, [], True],
    "gray": ["red", "", 0, None, {}],
    "exif": ["yes", "", 1, None, True],
    "coordinates": ["pixel", "", 0, None, []],
    "size": ["640", "640x", "x480", "641x480", "640x481", "0x0", "8x-8", "99999x8", "8200x8",
             "4096x4096", "640X480", "640x480x3", "", 640, None, [640, 480], " 640x480", "1e2x8"],
    "image": [1, True, None, [], {}, 1.5],
}


@pytest.mark.parametrize("name,value", [(n, v) for n, values in WRONG.items() for v in values])
def test_a_wrong_field_is_named(server, name, value):
    fields = {"image": IMAGE} | {name: value}
    assert refuse(server, 400, name, json.dumps(fields)).startswith(f"{name}: ")


@pytest.mark.parametrize("name,value", [
    ("max_keypoints", "-2"), ("max_keypoints", "five"), ("max_keypoints", "5.5"),
    ("max_keypoints", ""), ("max_keypoints", "nan"), ("max_keypoints", "0x10"),
    ("max_keypoints", " 5"), ("keypoint_threshold", "inf"), ("keypoint_threshold", "1,5"),
    ("nms_radius", "33"), ("return_descriptors", "yes"), ("return_descriptors", ""),
    ("size", "native2"), ("gray", "LUMA"), ("exif", "2"), ("coordinates", "center")])
def test_a_wrong_field_in_the_query_is_named(server, name, value):
    answer = requests.post(server.url + "/predict", params={name: value}, data=PICTURE,
                           headers={"Content-Type": "image/png"}, timeout=LONG)
    sent.add(("query", name, value))
    assert answer.status_code == 400 and answer.json()["detail"].startswith(f"{name}: ")


@pytest.mark.parametrize("name,value", [("max_keypoints", 0), ("max_keypoints", -1),
                                        ("max_keypoints", 8193), ("min_similarity", 1.1),
                                        ("min_similarity", "0"), ("ratio", -0.1), ("ratio", 2)])
def test_a_wrong_field_of_match_is_named(server, name, value):
    fields = {"image_a": IMAGE, "image_b": IMAGE, name: value}
    detail = refuse(server, 400, name, json.dumps(fields), path="/match")
    assert detail.startswith(f"{name}: ")


def test_missing_and_twice(server):
    refuse(server, 400, "image", "{}")
    refuse(server, 400, "image", '{"max_keypoints": 5}')
    refuse(server, 400, "image: given twice", f'{{"image":"{IMAGE}","image":"{IMAGE}"}}')
    refuse(server, 400, "image: given twice", f'{{"image":"{IMAGE}","\\u0069mage":"{IMAGE}"}}')
    refuse(server, 400, "nms_radius: given twice",
           f'{{"image":"{IMAGE}","nms_radius":4,"nms_radius":4}}')
    refuse(server, 400, "image_b", json.dumps({"image_a": IMAGE}), path="/match")
    refuse(server, 400, "image_a", json.dumps({"image_b": IMAGE}), path="/match")
    refuse(server, 400, "max_keypoints: given twice", PICTURE, {"Content-Type": "image/png"},
           "/predict?max_keypoints=5&max_keypoints=5")


# ---- JSON -------------------------------------------------------------------------------------

NOT_JSON = {
    "nothing": b"", "blank": b" \n", "one brace": b"{", "cut": b'{"image": "', "cut key": b'{"ima',
    "array": b"[]", "string": b'"image"', "number": b"5", "null": b"null", "true": b"true",
    "trailing": b'{"image":""} x', "two": b'{"image":""}{}', "comma": b'{"image":"",}',
    "leading comma": b'{,"image":""}', "no colon": b'{"image" ""}', "single": b"{'image': ''}",
    "comment": b'{/* */"image":""}', "nan": b'{"image":"","keypoint_threshold":NaN}',
    "inf": b'{"image":"","keypoint_threshold":Infinity}',
    "minus inf": b'{"image":"","keypoint_threshold":-Infinity}',
    "plus": b'{"image":"","max_keypoints":+5}', "zeros": b'{"image":"","max_keypoints":05}',
    "dot": b'{"image":"","keypoint_threshold":.5}', "hex": b'{"image":"","max_keypoints":0x5}',
    "bom": b'\xef\xbb\xbf{"image":""}', "utf-16": '{"image":""}'.encode("utf-16"),
    "latin-1": b'{"image":"","x":"\xe9"}', "overlong": b'{"image":"","x":"\xc0\x80"}',
    "surrogate": b'{"image":"","x":"\xed\xa0\x80"}', "too high": b'{"image":"","x":"\xf5\x80\x80\x80"}',
    "cut utf-8": b'{"image":"","x":"\xe2\x82"}', "nul": b'{"image":"","x":"\x00"}',
    "nul outside": b'{"image":""}\x00', "control": b'{"image":"a\nb"}', "tab": b'{"image":"a\tb"}',
    "bad escape": b'{"image":"\\x"}', "half escape": b'{"image":"\\u00"}',
    "ends in backslash": b'{"image":"\\', "deep arrays": b'{"x":' + b"[" * 100000,
    "deep objects": b'{"x":' * 100000, "deep and closed": b'{"x":' + b"[" * 99 + b"]" * 99 + b"}",
    "many values": b'{"x":[' + b"0," * 200000 + b'0],"image":""}',
    "many names": b"{" + b",".join(b'"%d":0' % i for i in range(20000)) + b"}",
    "long string": b'{"image":"","x":"' + b"a" * (2 << 20) + b'"}',
    "long number": b'{"image":"","x":' + b"9" * (2 << 20) + b"}",
    "long name": b'{"image":"","' + b"a" * 100000 + b'":0}',
    "HTML": b"<html><body>hello</body></html>", "form": b"image=abc&max_keypoints=5",
    "binary": bytes(range(256)), "JPEG": b"\xff\xd8\xff\xe0",
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json(server, name):
    # With a picture that is right, so that nothing else can be the reason.
    body = NOT_JSON[name].replace(b'"image":""', b'"image":"%s"' % IMAGE.encode())
    assert not refuse(server, 400, "", body).startswith("bad image")


def test_every_cut_of_a_request(server):
    whole = json.dumps({"image": IMAGE[:24], "max_keypoints": 5, "size": "64x64"}).encode()
    for n in range(len(whole)):
        refuse(server, 400, "", whole[:n])


def test_random_damage(server):
    """Damage that leaves the picture whole may leave the request right: 200 or 400, never else."""
    generator = random.Random(5)
    whole = json.dumps({"image": IMAGE, "max_keypoints": 5, "size": "16x16"}).encode()
    for _ in range(150):
        body = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            body[generator.randrange(len(body))] = generator.randrange(256)
        answer = requests.post(server.url + "/predict", data=bytes(body), timeout=LONG,
                               headers={"Content-Type": "application/json"})
        sent.add(bytes(body))
        assert answer.status_code in (200, 400), answer.text[:300]


# ---- base64 and pictures ----------------------------------------------------------------------

BASE64 = {
    "a space inside is fine": None, "star": "QUJ*", "cut": "QUJDR",
    "pads": "QUJD====", "pad inside": "QU=JD", "not ascii": "QUJDé", "path": "/etc/passwd!",
    "url": "http://example.org/cat.jpg", "data url": "data:image/png,abc",
    "data url without comma": "data:image/png;base64" + "A" * 300, "only pads": "====",
}


@pytest.mark.parametrize("name", [name for name, value in BASE64.items() if value is not None])
def test_bad_base64(server, name):
    refuse(server, 400, "Only base64 data is allowed", json.dumps({"image": BASE64[name]}))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_head(width, height, depth=8, color=2):
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR",
                                        struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))


BAD_PICTURES = {
    "zero bytes": b"", "one byte": b"\x89", "text": b"hello", "HTML": b"<!doctype html>",
    "GIF": b"GIF89a" + bytes(30), "BMP": b"BM" + bytes(60), "TIFF": b"II*\0" + bytes(30),
    "signature": b"\x89PNG\r\n\x1a\n", "head only": png_head(16, 16),
    "300 megapixels": png_head(20000, 15000) + chunk(b"IDAT", zlib.compress(bytes(1000))),
    "60000 squared": png_head(60000, 60000) + chunk(b"IDAT", zlib.compress(b"")),
    "no width": png_head(0, 16), "2^31": png_head(2**31 - 1, 2**31 - 1),
    "half": PICTURE[: len(PICTURE) // 2], "without its end": PICTURE[:-20],
    "JPEG start": b"\xff\xd8\xff", "WebP head": b"RIFF\x24\0\0\0WEBPVP8 ",
    "WebP lie": b"RIFF\xff\xff\xff\xffWEBPVP8L" + bytes(20),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
@pytest.mark.parametrize("how", ["json", "raw", "multipart"])
def test_bad_pictures(server, name, how):
    data = BAD_PICTURES[name]
    if how == "json":
        refuse(server, 400, "bad image: ", json.dumps({"image": text64(data)}))
    elif how == "raw" and data:
        refuse(server, 400, "bad image: ", data, {"Content-Type": "image/png"})
    elif how == "multipart":
        answer = requests.post(server.url + "/predict", files={"image": data}, timeout=LONG)
        sent.add(("multipart", data))
        assert answer.status_code == 400 and "image" in answer.json()["detail"]


@pytest.mark.parametrize("size", [(1, 1), (1, 10000), (10000, 1), (8, 8), (7, 9)])
def test_odd_sizes_are_fine(server, size):
    data = encoded(blobs(64, 64).resize(size))
    answer = server.send(data, size="64x64")
    assert answer.status_code == 200
    assert answer.json()["original_size"] == {"height": size[1], "width": size[0]}
    native = server.send(data, size="native")
    assert native.status_code == (200 if min(size) >= 8 else 400), native.text


def test_an_answer_has_a_limit(start):
    server = start("--max-answer", "1")
    picture = encoded(blobs(640, 480))
    answer = server.send(picture, max_keypoints=-1, nms_radius=0, keypoint_threshold=0)
    assert answer.status_code == 400 and answer.json()["detail"].startswith("max_keypoints: ")
    assert server.send(picture, max_keypoints=100).status_code == 200


# ---- HTTP -------------------------------------------------------------------------------------


def talk(server, data, end=True):
    """Sends bytes as they are; returns all that comes until the server closes."""
    with server.connect() as connection:
        connection.settimeout(LONG)
        parts = []
        try:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                parts.append(part)
        except OSError:
            pass  # cut off, which is an answer too
    sent.add(data[:4000])
    return b"".join(parts)


def test_routes_and_methods(server):
    for path in ("/", "/nope", "/predict/", "/PREDICT", "/../etc/passwd", "//health", "/v1/",
                 "/v1/chat/completions", "/%70redict%00"):
        assert requests.get(server.url + path, timeout=LONG).status_code in (400, 404), path
    for method, path, allow in (("GET", "/predict", "POST"), ("PUT", "/predict", "POST"),
                                ("DELETE", "/match", "POST"), ("POST", "/health", "GET, HEAD"),
                                ("PATCH", "/info", "GET, HEAD"), ("OPTIONS", "/predict", "POST")):
        answer = requests.request(method, server.url + path, timeout=LONG)
        assert answer.status_code == 405 and answer.headers["Allow"] == allow
        assert path in answer.json()["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded",
                                          "application/jsonp", "image/gif", "image/svg+xml",
                                          "multipart/mixed; boundary=x", "application/octet-stream",
                                          "", "json", "application/json-seq"])
def test_other_content_types(server, content_type):
    refuse(server, 415, "Content-Type", PICTURE, {"Content-Type": content_type})


def test_encoded_bodies_are_not_taken(server):
    for encoding in ("gzip", "br", "deflate", "identity, gzip"):
        refuse(server, 415, "Content-Encoding", PICTURE,
               {"Content-Type": "image/png", "Content-Encoding": encoding})


def test_a_body_needs_a_length(server):
    answer = requests.post(server.url + "/predict", data=iter([PICTURE]), timeout=LONG,
                           headers={"Content-Type": "image/png"})
    assert answer.status_code == 411
    assert b" 411 " in talk(server, b"POST /predict HTTP/1.1\r\nHost: x\r\n"
                                    b"Content-Type: image/png\r\nConnection: close\r\n\r\n")
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nConnection: close\r\n"
    for lengths in (b"Content-Length: 1\r\nContent-Length: 2\r\n", b"Content-Length: -1\r\n",
                    b"Content-Length: 1e3\r\n", b"Content-Length: 0x10\r\n",
                    b"Content-Length: 99999999999999999999999\r\n", b"Content-Length: \r\n",
                    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"):
        answer = talk(server, head + lengths + b"\r\nAAAAA")
        assert answer == b"" or answer.split(b" ")[1] in (b"400", b"411", b"413"), (lengths, answer)


def test_too_large_a_body_is_told_so(server):
    # The client goes on sending, and yet reads the answer.
    for megabytes in (33, 48):
        body = bytes(megabytes << 20)
        refuse(server, 413, "--max-body", body, {"Content-Type": "image/png"})
    # One that asks first is told before it sends; one that would send 40 GB is too.
    for more in (b"Expect: 100-continue\r\nContent-Length: 50000000\r\n",
                 b"Content-Length: 40000000000\r\n"):
        answer = talk(server, b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n" +
                      more + b"\r\n", end=False)
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:100]


def test_a_body_within_the_limit(server):
    body = json.dumps({"image": IMAGE + " " * (30 << 20), "size": "16x16"})
    assert server.predict(json.loads(body)).status_code == 200


@pytest.mark.parametrize("name,data", [
    ("nonsense", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    ("no version", b"GET /health\r\n\r\n"), ("HTTP/0.9", b"GET /health HTTP/0.9\r\n\r\n"),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ("long line", b"GET /" + b"a" * (1 << 20)),
    ("long header", b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * (1 << 20) + b"\r\n\r\n"),
    ("many headers", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 10000 + b"\r\n"),
    ("no colon", b"GET /health HTTP/1.1\r\nHost x\r\n\r\n"),
    ("nul", b"GET /hea\0lth HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("spaces", b"GET  /health  HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("empty", b""), ("line feeds", b"\n\n\n\n"), ("chunked garbage",
     b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")])
def test_what_is_no_http(server, name, data):
    answer = talk(server, data)
    assert answer == b"" or answer.startswith((b"HTTP/1.", b"<html>", b"{")), answer[:100]
    assert server.get("/livez").status_code == 200


def test_old_and_pipelined_http(server):
    answer = talk(server, b"GET /livez HTTP/1.0\r\n\r\n", end=False)
    assert answer.split(b"\r\n")[0].endswith(b"200 OK")
    many = talk(server, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 200 +
                b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", end=False)
    assert many.count(b"HTTP/1.1 200 OK") == 201


def test_cut_in_the_middle(server):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 100\r\n\r\n"
    talk(server, head + b"half of it")
    for reset in (False, True):
        connection = server.connect()
        connection.sendall(head + b"some")
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert server.send(PICTURE, size="16x16").status_code == 200


def test_other_models_fields_are_ignored_as_unknown(server):
    body = server.predict({"image": IMAGE, "bbox": [1, 2, 3, 4], "is_right": "false",
                           "size": "16x16"})
    assert body.status_code == 200


# ---- multipart --------------------------------------------------------------------------------

DISPOSITION = b'Content-Disposition: form-data; name="image"\r\n'
MULTIPART = {
    "no boundary": (b"multipart/form-data", b"--x--"),
    "long boundary": (b"multipart/form-data; boundary=" + b"x" * 71, b""),
    "boundary absent": (b"multipart/form-data; boundary=x", b"hello"),
    "cut": (b"multipart/form-data; boundary=x", b"--x\r\n" + DISPOSITION + b"\r\nabc"),
    "no parts": (b"multipart/form-data; boundary=x", b"--x--\r\n"),
    "no name": (b"multipart/form-data; boundary=x",
                b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--\r\n"),
    "no head": (b"multipart/form-data; boundary=x", b"--x\r\n\r\nabc\r\n--x--\r\n"),
    "twice": (b"multipart/form-data; boundary=x",
              (b"--x\r\n" + DISPOSITION + b"\r\nabc\r\n") * 2 + b"--x--\r\n"),
    "many": (b"multipart/form-data; boundary=x",
             b"".join(b'--x\r\nContent-Disposition: form-data; name="a%d"\r\n\r\n\r\n' % i
                      for i in range(100)) + b"--x--\r\n"),
    "long head": (b"multipart/form-data; boundary=x",
                  b"--x\r\nA: " + b"a" * 5000 + b"\r\n" + DISPOSITION + b"\r\nabc\r\n--x--\r\n"),
    "encoded part": (b"multipart/form-data; boundary=x", b"--x\r\n" + DISPOSITION +
                     b"Content-Transfer-Encoding: base64\r\n\r\nQUJD\r\n--x--\r\n"),
}


@pytest.mark.parametrize("name", MULTIPART)
def test_bad_multipart(server, name):
    kind, body = MULTIPART[name]
    refuse(server, 400, "", body, {"Content-Type": kind.decode()})


def test_a_field_in_query_and_form(server):
    answer = requests.post(server.url + "/predict?max_keypoints=5", files={"image": PICTURE},
                           data={"max_keypoints": "6"}, timeout=LONG)
    assert answer.status_code == 400 and answer.json()["detail"].startswith("max_keypoints: given")
    answer = requests.post(server.url + "/predict", files={"image": PICTURE},
                           data={"max_keypoints": "6\0"}, timeout=LONG)
    assert answer.status_code == 400


# ---- afterwards -------------------------------------------------------------------------------


def test_all_at_the_end(server):
    """The same server took all of the above and works."""
    print(f"{len(sent)} hostile requests")
    assert len(sent) >= 150
    assert server.process.poll() is None
    assert server.send(PICTURE, size="32x32").json()["num_keypoints"] >= 0
    wait_until(lambda: server.metric("tapetum_in_flight") == 0)
    wait_until(lambda: server.metric("tapetum_body_bytes") == 0)  # half bodies go with idle time
    assert 'code="500"' not in server.get("/metrics").text
