"""The HTTP contract, field by field, as the accelerator's server and its clients have it."""

import base64
import io
import json
import re
import subprocess

import numpy as np
import pytest
import requests
from PIL import Image

from conftest import LONG, SHARED, Server, blobs, encoded, text64, wait_until


def load_npz(data):
    with np.load(io.BytesIO(data)) as arrays:
        return dict(arrays)


def descriptors_of(answer):
    return load_npz(base64.b64decode(answer["descriptors"]["data"]))["descriptors"]


def without_times(answer):
    return {name: value for name, value in answer.items() if name != "timing_ms"}


# ---- what is there ----------------------------------------------------------------------------


def test_health(server):
    answer = server.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "model": "superpoint-p150",
                             "device": {"arch": "cpu", "id": 0, "open": True}}


def test_models(server):
    assert server.get("/v1/models").json() == {
        "object": "list",
        "data": [{"id": "magic-leap-community/superpoint", "object": "model",
                  "owned_by": "changh95"}]}


def test_info(server, weights):
    info = server.get("/info").json()
    assert {"model", "task", "io", "hardware", "weights", "source", "input", "defaults", "limits",
            "serving_path", "warmup_ms", "descriptors", "license"} <= set(info)
    assert info["model"] == "superpoint-p150"
    assert info["weights"] | {"repo": "magic-leap-community/superpoint", "revision": None,
                              "local_dir": str(weights), "loaded": True} == info["weights"]
    assert "non-commercial research only" in info["license"]
    assert info["defaults"] | {"max_keypoints": 1024, "keypoint_threshold": 0.005, "nms_radius": 4,
                               "return_descriptors": True,
                               "border_removal_distance": 4} == info["defaults"]
    assert (info["input"]["height"], info["input"]["width"], info["input"]["batch"]) == (480, 640, 1)
    assert info["limits"]["max_body_bytes"] == 32 << 20
    assert info["warmup_ms"] > 0
    assert info["gate_correlation"] >= 0.9999
    assert info["hardware"]["threads"] >= 1 and info["hardware"]["threads_reason"]


def test_live_and_ready(server):
    assert server.get("/livez").status_code == 200
    assert server.get("/readyz").json() == {"status": "ready"}


def test_head_has_no_body(server):
    answer = requests.head(server.url + "/health", timeout=LONG)
    assert answer.status_code == 200 and answer.content == b""
    assert int(answer.headers["Content-Length"]) == len(server.get("/health").content)


def test_openapi_names_every_route(server):
    document = server.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    for path, methods in document["paths"].items():
        for method in methods:
            answer = requests.request(method, server.url + path, timeout=LONG)
            assert answer.status_code not in (404, 405, 501), (method, path)
    references = re.findall(r'"\$ref": ?"#/([^"]+)"', server.get("/openapi.json").text)
    for reference in references:
        at = document
        for step in reference.split("/"):
            at = at[step]
    fields = document["components"]["schemas"]["PredictRequest"]["properties"]
    assert set(server.get("/info").json()["defaults"]) - {"border_removal_distance"} <= set(fields)


# ---- /predict ---------------------------------------------------------------------------------


def test_predict_answers_every_field(server):
    image = blobs(1000, 700)
    answer = server.predict({"image": text64(encoded(image))})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    n = body["num_keypoints"]
    assert 0 < n <= 1024
    assert len(body["keypoints"]) == len(body["scores"]) == n
    assert all(len(point) == 2 and 0 <= point[0] < 1000 and 0 <= point[1] < 700
               for point in body["keypoints"])
    assert body["scores"] == sorted(body["scores"], reverse=True)
    assert all(0.005 < score <= 1 for score in body["scores"])
    assert body["original_size"] == {"height": 700, "width": 1000}
    assert body["image_size"] == {"height": 480, "width": 640}
    assert body["scale"] == {"x": 1000 / 640, "y": 700 / 480}
    assert body["params"] | {"max_keypoints": 1024, "keypoint_threshold": 0.005, "nms_radius": 4,
                             "border_removal_distance": 4} == body["params"]
    times = body["timing_ms"]
    assert set(times) == {"preprocess", "device_forward", "postprocess", "total"}
    parts = times["preprocess"] + times["device_forward"] + times["postprocess"]
    assert all(value > 0 for value in times.values()) and times["total"] >= 0.99 * parts
    about = {name: value for name, value in body["descriptors"].items() if name != "data"}
    assert about == {"format": "npz", "key": "descriptors", "dtype": "float16", "shape": [n, 256]}
    rows = descriptors_of(body)
    assert rows.dtype == np.float16 and rows.shape == (n, 256)
    assert np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1).max() < 1e-3
    assert body["serving_path"]["device_nms"] is False


def test_floats_are_the_shortest_that_read_back(server, picture):
    text = server.predict({"image": text64(picture), "return_descriptors": False}).text
    scores = re.search(r'"scores":\[([^\]]*)\]', text).group(1).split(",")
    assert len(scores) > 1
    for digits in scores:
        value = np.float32(digits)
        assert float(digits) == float(str(value)), digits  # NumPy prints the shortest too


def test_points_lie_on_the_network_grid(server, picture):
    body = server.predict({"image": text64(picture)}).json()
    scale = body["scale"]
    for x, y in body["keypoints"]:
        assert abs(x / scale["x"] - round(x / scale["x"])) < 1e-3
        assert abs(y / scale["y"] - round(y / scale["y"])) < 1e-3
        assert 4 <= round(x / scale["x"]) < 636 and 4 <= round(y / scale["y"]) < 476


def test_options_do_what_they_say(server, picture):
    image = text64(picture)
    full = server.predict({"image": image}).json()
    few = server.predict({"image": image, "max_keypoints": 7}).json()
    assert few["keypoints"] == full["keypoints"][:7] and few["scores"] == full["scores"][:7]
    level = full["scores"][3]
    high = server.predict({"image": image, "keypoint_threshold": level}).json()
    assert high["num_keypoints"] == sum(score > level for score in full["scores"])
    bare = server.predict({"image": image, "return_descriptors": False}).json()
    assert "descriptors" not in bare and bare["keypoints"] == full["keypoints"]
    every = server.predict({"image": image, "max_keypoints": -1, "return_descriptors": False}).json()
    assert every["num_keypoints"] >= full["num_keypoints"]
    radius = server.predict({"image": image, "nms_radius": 32, "max_keypoints": -1}).json()
    points = np.array(radius["keypoints"]) / [radius["scale"]["x"], radius["scale"]["y"]]
    apart = np.abs(points[:, None] - points[None]).max(axis=2) + 1000 * np.eye(len(points))
    assert apart.min() > 32 - 1e-3
    assert radius["params"]["nms_radius"] == 32


def test_nothing_found_is_a_success(server, picture):
    body = server.predict({"image": text64(picture), "keypoint_threshold": 1}).json()
    assert body["num_keypoints"] == 0 and body["keypoints"] == [] and body["scores"] == []
    assert body["descriptors"]["shape"] == [0, 256]
    assert descriptors_of(body).shape == (0, 256)


def test_numbers_as_pydantic_reads_them(server, picture):
    body = server.predict({"image": text64(picture), "max_keypoints": 5.0, "nms_radius": 4.0,
                           "keypoint_threshold": 0, "unknown": [1, {"a": None}]})
    assert body.status_code == 200 and body.json()["params"]["max_keypoints"] == 5


def test_a_picture_is_the_same_however_it_comes(server):
    image = blobs(200, 120)
    png, webp = encoded(image), encoded(image.convert("RGB"), "WEBP", lossless=True)
    answers = [server.predict({"image": text64(png), "max_keypoints": 50}),
               server.predict({"image": "data:image/png;base64," + text64(png),
                               "max_keypoints": 50}),
               server.send(png, max_keypoints=50), server.send(webp, "image/webp", max_keypoints=50),
               requests.post(server.url + "/predict", files={"image": png}, timeout=LONG,
                             data={"max_keypoints": "50"}),
               requests.post(server.url + "/predict?max_keypoints=50", files={"image": png},
                             timeout=LONG)]
    first = without_times(answers[0].json())
    assert first["num_keypoints"] == 50
    for answer in answers:
        assert answer.status_code == 200 and without_times(answer.json()) == first


def test_binary_answer(server, picture):
    whole = server.send(picture, max_keypoints=40).json()
    answer = requests.post(server.url + "/predict?max_keypoints=40", data=picture, timeout=LONG,
                           headers={"Content-Type": "image/png", "Accept": "application/x-npz"})
    assert answer.headers["Content-Type"] == "application/x-npz"
    arrays = load_npz(answer.content)
    assert arrays["keypoints"].dtype == arrays["scores"].dtype == np.float32
    assert arrays["keypoints"].tolist() == np.float32(whole["keypoints"]).tolist()
    assert arrays["scores"].tolist() == np.float32(whole["scores"]).tolist()
    assert np.array_equal(arrays["descriptors"], descriptors_of(whole))


def test_sizes(server):
    image = encoded(blobs(203, 117))
    small = server.send(image, size="64x40").json()
    assert small["image_size"] == {"height": 40, "width": 64}
    assert small["scale"] == {"x": 203 / 64, "y": 117 / 40}
    native = server.send(image, size="native").json()
    assert native["image_size"] == {"height": 112, "width": 200}
    assert native["original_size"] == {"height": 117, "width": 203}
    assert native["scale"] == {"x": 1, "y": 1}


def test_exif(server):
    image = blobs(160, 80).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(image, "JPEG", quality=95, exif=exif)
    left = server.send(turned, "image/jpeg", size="64x64").json()
    assert left["original_size"] == {"height": 80, "width": 160}
    assert left["exif_orientation"] == 6 and left["exif_applied"] is False
    applied = server.send(turned, "image/jpeg", size="64x64", exif="apply").json()
    assert applied["original_size"] == {"height": 160, "width": 80}
    assert applied["exif_orientation"] == 6 and applied["exif_applied"] is True


def test_gray_and_coordinates(server):
    red = np.zeros((64, 64, 3), np.uint8)
    red[..., 1] = np.asarray(blobs(64, 64))
    flat = encoded(Image.fromarray(red))
    first, luma = (server.send(flat, size="64x64", gray=gray).json() for gray in ("first", "luma"))
    assert without_times(first)["keypoints"] != without_times(luma)["keypoints"]
    wide = encoded(blobs(128, 128))
    ratio, centres = (np.array(server.send(wide, size="64x64", coordinates=name).json()["keypoints"])
                      for name in ("ratio", "centres"))
    assert np.allclose(centres, (ratio / 2 + 0.5) * 2 - 0.5, atol=1e-4)


def test_match(server):
    image = blobs(160, 120)
    png, moved = encoded(image), encoded(image.transpose(Image.FLIP_LEFT_RIGHT))
    fields = {"image_a": text64(png), "image_b": text64(png), "max_keypoints": 100,
              "size": "160x120"}
    answer = requests.post(server.url + "/match", json=fields, timeout=LONG)
    assert answer.status_code == 200
    body = answer.json()
    alone = server.send(png, max_keypoints=100, size="160x120").json()
    for side in "ab":
        assert body[side]["keypoints"] == alone["keypoints"]
    assert body["num_matches"] == len(body["matches"]) == len(body["similarity"])
    assert body["matches"] == [[i, i] for i in range(100)]
    assert np.allclose(body["similarity"], 1, atol=1e-5)
    assert set(body["timing_ms"]) == {"preprocess", "device_forward", "postprocess", "match",
                                      "total"}
    form = requests.post(server.url + "/match", timeout=LONG,
                         files={"image_a": png, "image_b": moved},
                         data={"max_keypoints": "30", "size": "160x120", "min_similarity": "0.5",
                               "ratio": "0.9"})
    a, b = (load_npz(requests.post(
        server.url + "/predict", data=data, params={"max_keypoints": 30, "size": "160x120"},
        headers={"Content-Type": "image/png", "Accept": "application/x-npz"},
        timeout=LONG).content)["descriptors"].astype(np.float64) for data in (png, moved))
    similarity = a @ b.T  # of halves, so a pair whose test is near may differ
    mutual = {(i, int(j)) for i, j in enumerate(similarity.argmax(axis=1))
              if similarity[:, j].argmax() == i and similarity[i, j] >= 0.5}
    assert {tuple(pair) for pair in form.json()["matches"]} <= mutual
    assert form.json()["params"]["ratio"] == 0.9


def test_the_answer_is_the_same_each_time(server, picture):
    first = without_times(server.send(picture).json())
    for _ in range(3):
        assert without_times(server.send(picture).json()) == first


# ---- real weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rocket.jpg", "coffee.png", "china.jpg"])
def test_real_weights_find_the_known_points(name, real_server):
    """PyTorch's points, scores and descriptors for the whole photograph, through HTTP."""
    golden = SHARED / "golden/superpoint"
    photo = golden / "inputs" / name
    label = name.replace(".", "_")
    expected = np.load(golden / f"real/{label}.r4.kp.npy").astype(np.float64)
    kind = "image/jpeg" if name.endswith("jpg") else "image/png"
    body = real_server.send(photo.read_bytes(), kind).json()
    scale = np.array([body["scale"]["x"], body["scale"]["y"]])
    assert body["num_keypoints"] == len(expected)
    found = np.array(body["keypoints"]) / scale
    # Equal but for the order of points whose scores differ in the last digits.
    order, wanted = (np.lexsort(np.round(points[:, :2].T)) for points in (found, expected))
    assert np.abs(found[order] - expected[wanted, :2]).max() < 1e-3
    assert np.abs(np.array(body["scores"])[order] - expected[wanted, 2]).max() < 2e-5
    assert np.abs(np.array(body["scores"]) - expected[:, 2]).max() < 2e-5
    rows = np.load(golden / f"real/{label}.desc.npy").astype(np.float64)
    places = {tuple(np.round(point)): i for i, point in enumerate(found)}
    mine = descriptors_of(body).astype(np.float64)
    for row, point in zip(rows, expected):
        assert np.abs(mine[places[tuple(np.round(point[:2]))]] - row).max() < 5e-4  # of halves


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    if not (SHARED / "weights/superpoint/model.safetensors").exists():
        pytest.skip("no ../shared: the photographs, their points and the weights are not here")
    server = Server(tmp_path_factory.mktemp("real"), SHARED / "weights/superpoint")
    yield server
    assert server.stop() == 0


def test_detector_without_descriptors(start, picture):
    path = SHARED / "weights/superpoint/magicpoint-detector.safetensors"
    if not path.exists():
        pytest.skip("no ../shared: the detector's weights are not here")
    server = start(weights=path)
    plain = server.send(picture)
    assert plain.status_code == 200 and "descriptors" not in plain.json()
    asked = server.send(picture, return_descriptors="true")
    assert asked.status_code == 400 and "descriptor" in asked.json()["detail"]
    match = requests.post(server.url + "/match", files={"image_a": picture, "image_b": picture},
                          timeout=LONG)
    assert match.status_code == 400 and "descriptor" in match.json()["detail"]


# ---- around it --------------------------------------------------------------------------------


def test_request_ids(server):
    mine = server.get("/health", headers={"X-Request-Id": "robot-7/frame:42"})
    assert mine.headers["X-Request-Id"] == "robot-7/frame:42"
    server.wait_for("id=robot-7/frame:42")
    for bad in ("a b", 'x"y', "x" * 129):
        own = server.get("/health", headers={"X-Request-Id": bad}).headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{16}", own)


def test_metrics(server, picture):
    good, bad = (f'tapetum_http_requests_total{{route="/predict",code="{code}"}}'
                 for code in (200, 400))
    before = server.metric(good), server.metric(bad)
    server.send(picture, size="64x64")
    server.send(b"nothing")
    # A request is counted once its last byte has left, which the client may see first.
    wait_until(lambda: (server.metric(good), server.metric(bad)) == (before[0] + 1, before[1] + 1))
    text = server.get("/metrics").text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? \S+', line)
    assert re.search(r'^tapetum_build_info\{version="[\d.]+",isa="\w+"\} 1$', text, re.M)
    for stage in ("parse", "queue", "decode", "preprocess", "forward", "postprocess", "encode"):
        values = [int(v) for v in re.findall(
            rf'^tapetum_stage_seconds_bucket\{{stage="{stage}",le="[^"]+"\}} (\d+)$', text, re.M)]
        assert values == sorted(values) and values[-1] > 0
    assert "tapetum_queue_depth 0" in text
    wait_until(lambda: server.metric("tapetum_in_flight") == 0)


def test_curl_as_the_readme_has_it(server, tmp_path, picture):
    photo = tmp_path / "photo.png"
    photo.write_bytes(picture)
    out = subprocess.run(["curl", "-sS", "--fail-with-body", server.url + "/predict?max_keypoints=3",
                          "-H", "Content-Type: image/png", "--data-binary", f"@{photo}"],
                         capture_output=True, check=True, timeout=LONG)
    assert json.loads(out.stdout)["num_keypoints"] == 3
    # Over a megabyte curl asks first, with Expect: 100-continue.
    large = tmp_path / "large.png"
    noise = np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8)
    large.write_bytes(encoded(Image.fromarray(noise)))
    assert large.stat().st_size > 1 << 20
    out = subprocess.run(["curl", "-sS", "--fail-with-body", server.url + "/predict",
                          "-F", f"image=@{large}", "-F", "size=64x64"],
                         capture_output=True, check=True, timeout=LONG)
    assert json.loads(out.stdout)["original_size"] == {"height": 700, "width": 700}


def test_token(start, picture):
    server = start("--token", "night eye")
    for path in ("/health", "/livez", "/readyz"):
        assert server.get(path).status_code == 200
    right = {"Authorization": "Bearer night eye"}
    for path in ("/info", "/metrics", "/v1/models", "/openapi.json", "/nowhere"):
        refused = server.get(path)
        assert refused.status_code == 401 and refused.headers["WWW-Authenticate"] == "Bearer"
        assert server.get(path, headers=right).status_code == (404 if path == "/nowhere" else 200)
    fields = {"image": text64(picture), "size": "64x64"}
    for wrong in ({}, {"Authorization": "Bearer night"}, {"Authorization": "Bearer "},
                  {"Authorization": "night eye"}, {"Authorization": "Bearer night eyes"}):
        assert server.predict(fields, headers=wrong).status_code == 401
    assert server.predict(fields, headers=right).status_code == 200


def test_pages_may_not_call_unless_let(server, start, picture):
    fields = {"image": text64(picture), "size": "64x64"}
    refused = server.predict(fields, headers={"Origin": "https://example.org"})
    assert refused.status_code == 403 and "Access-Control-Allow-Origin" not in refused.headers
    # A name that its owner points here (DNS rebinding) is no better; this machine's address is.
    host = server.url.removeprefix("http://")
    assert server.predict(fields, headers={"Origin": "http://evil.test",
                                           "Host": "evil.test"}).status_code == 403
    assert server.predict(fields, headers={"Origin": server.url, "Host": host}).status_code == 200
    open_one = start("--cors", "https://example.org, https://robot.test")
    for origin, code in (("https://example.org", 200), ("https://robot.test", 200),
                         ("https://example.com", 403), ("null", 403)):
        answer = open_one.predict(fields, headers={"Origin": origin})
        assert answer.status_code == code
        allowed = answer.headers.get("Access-Control-Allow-Origin")
        assert allowed == (origin if code == 200 else None) and answer.headers["Vary"] == "Origin"
    preflight = requests.options(open_one.url + "/predict", timeout=LONG, headers={
        "Origin": "https://robot.test", "Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 204
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in preflight.headers["Access-Control-Allow-Headers"]


def test_log_lines_as_json(start):
    server = start("--log-json")
    server.get("/health?x=%22%0a", headers={"X-Request-Id": "one"})
    server.get('/"quoted"\x7f')
    server.wait_for('"id":"one"')
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    messages = [line["message"] for line in lines]
    for wanted in ("Opening device 0", "Warming up", "Application startup complete"):
        assert wanted in messages
    assert any(message.startswith("Loading weights") for message in messages)
    assert any(message.startswith("Warmup complete") for message in messages)
    line = next(line for line in lines if line.get("id") == "one")
    assert (line["method"], line["path"], line["code"]) == ("GET", "/health", 200)
    assert line["ms"] > 0 and line["level"] == "info" and line["time"].endswith("Z")


def test_environment_of_the_accelerators_server(start, weights, tmp_path):
    server = start(environment={"TT_MESH_SHAPE": "(1, 1)", "TT_DEVICE_ID": "3",
                                "HF_MODEL": "someone/superpoint"})
    assert server.get("/health").json()["device"]["id"] == 3
    assert server.get("/info").json()["weights"]["repo"] == "someone/superpoint"
    assert server.get("/v1/models").json()["data"][0]["id"] == "someone/superpoint"
