"""HaMeR over HTTP: the contract field by field, the reference's numbers, two models in one server."""

import io
import json
import re
import subprocess
import threading

import numpy as np
import pytest
import requests
from PIL import Image

from conftest import BINARY, LONG, SHARED, Server, blobs, encoded, text64, wait_until

GOLDEN = SHARED / "golden/hamer"
CONTRACT = {"image_size", "bbox", "is_right", "rotmats", "betas", "cam", "cam_t_full",
            "mano_available", "trace_active", "timing_ms"}
OURS = {"bbox_source", "rescale_factor", "crop", "focal_length", "principal_point",
        "exif_orientation", "exif_applied"}
WIDTH, HEIGHT = 600, 450
BOX, OTHER = [218, 38, 378, 200], [318, 240, 540, 452.5]


def colors(width=WIDTH, height=HEIGHT, seed=3):
    return Image.merge("RGB", [blobs(width // 8 * 8, height // 8 * 8, seed + i).resize(
        (width, height)) for i in range(3)])


PHOTO = encoded(colors())
IMAGE = text64(PHOTO)


def without_times(answer):
    if "hands" in answer:
        return [without_times(hand) for hand in answer["hands"]]
    return {name: value for name, value in answer.items() if name != "timing_ms"}


def project(points, camera_t, answer):
    """The pinhole: what any client does with the answer's camera."""
    at = np.array(points) + np.array(camera_t)
    return at[:, :2] / at[:, 2:] * answer["focal_length"] + answer["principal_point"]


@pytest.fixture(scope="module")
def hamer(tmp_path_factory, hamer_weights):
    """Without MANO, as most people start."""
    server = Server(tmp_path_factory.mktemp("server"), hamer_weights, "--mano", "none",
                    models=["hamer"])
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def meshes(tmp_path_factory, hamer_weights, mano):
    server = Server(tmp_path_factory.mktemp("server"), hamer_weights, "--mano", str(mano),
                    models=["hamer"])
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def both(tmp_path_factory, weights, hamer_weights):
    server = Server(tmp_path_factory.mktemp("server"), None, "--hamer-weights", str(hamer_weights),
                    "--superpoint-weights", str(weights), "--mano", "none",
                    models=["hamer", "superpoint"])
    yield server
    assert server.stop() == 0, server.log()


# ---- what is there ----------------------------------------------------------------------------


def test_health_and_models(hamer):
    assert hamer.get("/health").json() == {"status": "ok", "model": "hamer-p150",
                                           "device": {"arch": "cpu", "id": 0, "open": True}}
    assert hamer.get("/v1/models").json() == {
        "object": "list", "data": [{"id": "changh95/hamer-weights", "object": "model",
                                    "owned_by": "changh95"}]}


def test_info(hamer, hamer_weights):
    info = hamer.get("/info").json()
    assert info["model"] == "hamer-p150" and "models" not in info
    assert info["weights"] | {"repo": "changh95/hamer-weights", "revision": None, "loaded": True,
                              "local_dir": str(hamer_weights)} == info["weights"]
    assert (info["backend"], info["precision"]) == ("cpu", "f32")
    assert info["hardware"]["threads"] >= 1
    assert info["gate_correlation"] >= 0.9999
    for name in ("dispatch", "num_command_queues", "grid"):
        assert name in info and info[name] is None
    assert info["mano"] == {"available": False, "path": None, "license": None}
    assert info["defaults"] | {"is_right": True, "rescale_factor": 2.0, "return_vertices": True,
                               "return_faces": False} == info["defaults"]
    assert info["limits"]["max_hands"] == 16 and info["limits"]["max_body_bytes"] == 32 << 20
    resident = info["memory"]["resident_bytes"]
    assert info["memory"]["weights_bytes"] < resident <= info["memory"]["peak_bytes"]
    assert abs(resident - hamer.status("VmRSS") * 1024) < 64 << 20
    assert "non-commercial" in info["license"]


def test_joints_and_rotations_are_named(hamer):
    info = hamer.get("/info").json()
    joints, rotations = info["joints"], info["rotations"]
    assert len(set(joints)) == 21 and len(set(rotations)) == 16
    fingers = ["thumb", "index", "middle", "ring", "little"]
    assert [name.split("_")[0] for name in joints] == ["wrist"] + [f for f in fingers for _ in "1234"]
    assert [name.split("_")[0] for name in rotations] == ["wrist"] + [
        f for f in ("index", "middle", "little", "ring", "thumb") for _ in "123"]
    assert set(joints) - set(rotations) == {f + "_tip" for f in fingers}, "tips do not turn"
    assert set(rotations) < set(joints)


def test_mano_is_told(meshes, mano):
    told = meshes.get("/info").json()["mano"]
    assert told["available"] is True and told["path"] == str(mano)
    assert "non-commercial" in told["license"]
    assert "non-commercial" in re.search(r"MANO loaded.*", meshes.log()).group(0)


def test_openapi(hamer, both):
    for server, first in ((hamer, "hamer"), (both, "hamer")):
        document = server.get("/openapi.json").json()
        for path, methods in document["paths"].items():
            for method in methods:
                answer = requests.request(method, server.url + path, timeout=LONG)
                assert answer.status_code not in (404, 405, 501), (method, path)
        for reference in re.findall(r'"\$ref": ?"#/([^"]+)"', server.get("/openapi.json").text):
            at = document
            for step in reference.split("/"):
                at = at[step]
        operations = [entry["operationId"] for methods in document["paths"].values()
                      for entry in methods.values()]
        assert len(operations) == len(set(operations))
        assert (document["paths"]["/predict"]["post"]["summary"] ==
                document["paths"][f"/{first}/predict"]["post"]["summary"])
        fields = document["components"]["schemas"]["HandsRequest"]["properties"]
        assert set(server.get("/info").json()["defaults"]) | {"image"} == set(fields)
        hand = document["components"]["schemas"]["Hand"]
        assert set(hand["required"]) == CONTRACT and CONTRACT | OURS < set(hand["properties"])
    assert "/match" not in hamer.get("/openapi.json").json()["paths"]
    assert {"/match", "/superpoint/match"} < set(both.get("/openapi.json").json()["paths"])


# ---- /predict ---------------------------------------------------------------------------------


def test_predict_answers_every_field(hamer):
    answer = hamer.predict({"image": IMAGE, "bbox": BOX})
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert set(body) == CONTRACT | OURS
    assert body["image_size"] == [WIDTH, HEIGHT]
    assert body["bbox"] == BOX and body["is_right"] is True
    rotations = np.array(body["rotmats"])
    assert rotations.shape == (16, 3, 3)
    assert np.abs(rotations @ rotations.transpose(0, 2, 1) - np.eye(3)).max() < 1e-5
    assert np.linalg.det(rotations).min() > 0.99
    assert np.shape(body["betas"]) == (10,) and np.shape(body["cam"]) == (3,)
    assert body["mano_available"] is False and body["trace_active"] is False
    times = body["timing_ms"]
    assert set(times) == {"preprocess", "device", "mano", "total"}
    assert all(value >= 0 for value in times.values()) and times["device"] > 0
    assert times["total"] >= 0.99 * (times["preprocess"] + times["device"] + times["mano"])
    assert body["bbox_source"] == "given"
    assert (body["rescale_factor"], body["crop"]) == (2.0, "served")
    assert body["focal_length"] == [5000 / 256 * WIDTH] * 2
    assert body["principal_point"] == [WIDTH / 2, HEIGHT / 2]
    assert (body["exif_orientation"], body["exif_applied"]) == (1, False)


@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.parametrize("factor", [2.0, 1.5])
def test_the_camera_rule(hamer, is_right, factor):
    """Section 6.6 of the contract, from the answer's own cam; left hands are mirrored back."""
    body = hamer.predict({"image": IMAGE, "bbox": OTHER, "is_right": is_right,
                          "rescale_factor": factor}).json()
    s, tx, ty = body["cam"]
    x1, y1, x2, y2 = OTHER
    b = factor * max(x2 - x1, y2 - y1)
    f = 5000 / 256 * max(WIDTH, HEIGHT)
    expected = [(tx if is_right else -tx) + 2 * ((x1 + x2) / 2 - WIDTH / 2) / (b * s),
                ty + 2 * ((y1 + y2) / 2 - HEIGHT / 2) / (b * s), 2 * f / (b * s)]
    assert body["cam_t_full"] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert body["is_right"] is is_right


def test_your_own_camera(meshes):
    """H1: in the translation and in the projection; the pose stays what it is."""
    usual = meshes.predict({"image": IMAGE, "bbox": BOX}).json()
    camera = {"fx": 600.1, "fy": 580, "cx": 350.25, "cy": 200}
    own = meshes.predict({"image": IMAGE, "bbox": BOX} | camera).json()
    assert own["focal_length"] == [600.1, 580] and own["principal_point"] == [350.25, 200]
    for name in ("rotmats", "betas", "cam", "joints", "vertices"):
        assert own[name] == usual[name]
    s, tx, ty = own["cam"]
    b, f = 2 * 162, np.sqrt(600.1 * 580)
    assert own["cam_t_full"][2] == pytest.approx(2 * f / (b * s), rel=1e-5)
    assert usual["cam_t_full"][2] == pytest.approx(2 * 11718.75 / (b * s), rel=1e-5)
    for body in (usual, own):
        seen = project(body["joints"], body["cam_t_full"], body)
        assert np.abs(seen - body["keypoints_2d"]).max() < 1e-3


def test_no_box_is_the_middle(hamer):
    body = hamer.predict({"image": IMAGE, "is_right": False}).json()
    assert set(body) == CONTRACT | OURS
    assert body["bbox_source"] == "center" and body["is_right"] is False
    assert body["bbox"] == [(WIDTH - HEIGHT) / 2, 0, (WIDTH + HEIGHT) / 2, HEIGHT]
    assert without_times(hamer.send(PHOTO, is_right="false").json()) == without_times(body)


def test_mirrored_pictures_have_the_other_hand(hamer):
    mirrored = encoded(colors().transpose(Image.FLIP_LEFT_RIGHT))
    x1, y1, x2, y2 = BOX
    right = hamer.predict({"image": IMAGE, "bbox": BOX}).json()
    left = hamer.predict({"image": text64(mirrored), "is_right": False,
                          "bbox": [WIDTH - 1 - x2, y1, WIDTH - 1 - x1, y2]}).json()
    for name in ("rotmats", "betas", "cam"):
        assert left[name] == right[name]


def test_two_hands_equal_two_single_calls(meshes):
    """H2, bit for bit: the decimals are the shortest that read back."""
    sides = [True, False]
    alone = [meshes.predict({"image": IMAGE, "bbox": box, "is_right": side}).json()
             for box, side in zip((BOX, OTHER), sides)]
    together = meshes.predict({"image": IMAGE, "bbox": [BOX, OTHER], "is_right": sides})
    assert together.status_code == 200 and set(together.json()) == {"hands"}
    assert without_times(together.json()) == [without_times(hand) for hand in alone]
    for hand in together.json()["hands"]:
        assert set(hand["timing_ms"]) == {"preprocess", "device", "mano", "total"}
    one = meshes.predict({"image": IMAGE, "bbox": [BOX]}).json()
    assert without_times(one) == [without_times(alone[0])], "a list of one stays a list"
    text = meshes.send(PHOTO, bbox=";".join(",".join(map(str, box)) for box in (BOX, OTHER)),
                       is_right="true,false").json()
    assert without_times(text) == without_times(together.json())
    both_left = meshes.predict({"image": IMAGE, "bbox": [BOX, OTHER], "is_right": False}).json()
    assert [hand["is_right"] for hand in both_left["hands"]] == [False, False]


def test_empty_after_full(meshes, hamer_weights, mano, tmp_path):
    """H9: no hands are no hands, whatever was asked before."""
    full = meshes.predict({"image": IMAGE, "bbox": [BOX, OTHER]})
    assert len(full.json()["hands"]) == 2
    empty = meshes.predict({"image": IMAGE, "bbox": []})
    assert empty.status_code == 200 and empty.content == b'{"hands":[]}'
    fresh = Server(tmp_path, hamer_weights, "--mano", str(mano), models=["hamer"])
    assert fresh.predict({"image": IMAGE, "bbox": []}).content == empty.content
    times = re.compile(rb'"timing_ms":\{[^}]*\}')
    for fields in ({"bbox": BOX}, {"bbox": [OTHER], "is_right": [False]}, {}):
        answers = [server.predict({"image": IMAGE} | fields) for server in (meshes, fresh)]
        assert all(answer.status_code == 200 for answer in answers)
        assert times.sub(b"", answers[0].content) == times.sub(b"", answers[1].content)
    assert fresh.stop() == 0, fresh.log()
    assert meshes.predict({"image": text64(b"no picture"), "bbox": []}).status_code == 400


def test_a_picture_is_the_same_however_it_comes(hamer):
    box = ",".join(map(str, BOX))
    answers = [hamer.predict({"image": IMAGE, "bbox": BOX}),
               hamer.predict({"image": "data:image/png;base64," + IMAGE, "bbox": BOX}),
               hamer.predict({"image": IMAGE, "bbox": BOX}, path="/hamer/predict"),
               hamer.send(PHOTO, bbox=box),
               hamer.send(encoded(colors(), "WEBP", lossless=True), "image/webp", bbox=box),
               requests.post(hamer.url + "/predict", files={"image": PHOTO}, timeout=LONG,
                             data={"bbox": box, "is_right": "true"}),
               requests.post(hamer.url + "/predict?bbox=" + box, files={"image": PHOTO},
                             timeout=LONG)]
    first = without_times(answers[0].json())
    for answer in answers:
        assert answer.status_code == 200 and without_times(answer.json()) == first


def test_curl_as_the_documentation_has_it(hamer, tmp_path):
    photo = tmp_path / "photo.png"
    photo.write_bytes(PHOTO)
    out = subprocess.run(["curl", "-sS", "--fail-with-body", hamer.url + "/predict", "-F",
                          f"image=@{photo}", "--form-string",
                          "bbox=218,38,378,200;318,240,540,452", "-F", "is_right=true,false"],
                         capture_output=True, check=True, timeout=LONG)
    assert [hand["is_right"] for hand in json.loads(out.stdout)["hands"]] == [True, False]


def test_floats_are_the_shortest_that_read_back(hamer):
    text = hamer.send(PHOTO, bbox="20.1,30.25,200,210").text
    for name in ("bbox", "rotmats", "betas", "cam", "cam_t_full"):
        digits = re.findall(r"[-\d.e]+", re.search(rf'"{name}":([\[\]\d.,e-]*)', text).group(1))
        assert len(digits) >= 3
        for number in digits:
            assert float(number) == float(str(np.float32(number))), number
    assert json.loads(text)["bbox"] == [20.1, 30.25, 200, 210]


def test_exif_is_applied_unless_told(hamer):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(colors(640, 400), "JPEG", quality=95, exif=exif)
    upright = hamer.send(turned, "image/jpeg", bbox="10,20,200,300").json()
    assert upright["image_size"] == [400, 640]
    assert (upright["exif_orientation"], upright["exif_applied"]) == (6, True)
    stored = hamer.send(turned, "image/jpeg", bbox="10,20,200,300", exif="ignore").json()
    assert stored["image_size"] == [640, 400]
    assert (stored["exif_orientation"], stored["exif_applied"]) == (6, False)
    # The box is in the picture that the answer's size is of.
    pixels = encoded(Image.open(io.BytesIO(turned)).transpose(Image.ROTATE_270))
    same = hamer.send(pixels, bbox="10,20,200,300").json()
    assert same["rotmats"] == upright["rotmats"]


def test_rotations_in_the_pictures_frame(hamer):
    usual = hamer.predict({"image": IMAGE, "bbox": BOX, "is_right": False}).json()
    body = hamer.predict({"image": IMAGE, "bbox": BOX, "is_right": False,
                          "rotations": "image"}).json()
    assert without_times(usual) == {name: value for name, value in without_times(body).items()
                                    if name not in ("rotmats_image", "axis_angle")}
    mirror = np.diag([-1.0, 1, 1])
    expected = mirror @ np.array(body["rotmats"]) @ mirror
    assert np.abs(expected - body["rotmats_image"]).max() < 1e-6
    for matrix, (x, y, z) in zip(body["rotmats_image"], body["axis_angle"]):
        angle = np.linalg.norm((x, y, z))
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) / angle
        rodrigues = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
        assert 0 < angle <= np.pi and np.abs(rodrigues - matrix).max() < 1e-5


# ---- MANO -------------------------------------------------------------------------------------


def test_a_mesh(meshes):
    body = meshes.predict({"image": IMAGE, "bbox": BOX, "return_faces": True}).json()
    assert set(body) == CONTRACT | OURS | {"joints", "vertices", "keypoints_2d", "faces"}
    assert body["mano_available"] is True
    for name, shape in (("joints", (21, 3)), ("vertices", (778, 3)), ("keypoints_2d", (21, 2)),
                        ("faces", (1538, 3))):
        assert np.shape(body[name]) == shape, name
    faces = np.array(body["faces"])
    assert faces.dtype.kind == "i" and set(faces.flat) == set(range(778))
    usual = meshes.predict({"image": IMAGE, "bbox": BOX}).json()
    assert set(usual) == CONTRACT | OURS | {"joints", "vertices", "keypoints_2d"}
    slim = meshes.predict({"image": IMAGE, "bbox": BOX, "return_vertices": False}).json()
    assert set(slim) == CONTRACT | OURS | {"joints", "keypoints_2d"}
    assert slim["joints"] == body["joints"] and usual["vertices"] == body["vertices"]


def test_triangles_turn_the_same_way_for_both_hands(meshes):
    """A left hand is a mirrored right one, so its triangles are turned around: the volume that
    they enclose keeps its sign."""
    signs = []
    for is_right in (True, False):
        body = meshes.predict({"image": IMAGE, "bbox": BOX, "is_right": is_right,
                               "return_faces": True}).json()
        a, b, c = np.array(body["vertices"])[np.array(body["faces"])].transpose(1, 0, 2)
        middle = np.mean(body["vertices"], axis=0)
        signs.append(np.sign(np.einsum("ij,ij->", a - middle, np.cross(b - middle, c - middle))))
    assert signs[0] == signs[1] != 0


def cases():
    path = GOLDEN / "cases.json"
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.parametrize("policy,prefix", [("served", "e2e_served_tiny"), ("demo", "e2e_tiny")])
@pytest.mark.parametrize("i", range(4))
def test_the_reference(meshes, policy, prefix, i):
    """Upstream's code in double from photograph to pixels, through HTTP; its left hands are stored
    unmirrored."""
    case = cases()[i]
    data = (GOLDEN / case["image"]).read_bytes()
    body = meshes.predict({"image": text64(data), "bbox": case["box"],
                           "is_right": case["is_right"], "crop": policy,
                           "rescale_factor": case["rescale_factor"]}).json()
    assert body["image_size"] == case["image_size"] and body["bbox"] == case["box"]
    flip = np.array([1.0 if case["is_right"] else -1.0, 1, 1])

    def off(name, wanted):
        return np.abs(np.array(body[name]) - wanted).max()

    golden = {name: np.load(GOLDEN / f"{prefix}_{name}.npy")[i].astype(np.float64)
              for name in ("rotmats", "betas", "cam", "cam_t_full", "vertices", "joints",
                           "kp2d_full_persp")}
    assert off("rotmats", golden["rotmats"]) < 1e-5
    assert off("betas", golden["betas"]) < 1e-5
    assert off("cam", golden["cam"]) < 1e-5
    assert off("cam_t_full", golden["cam_t_full"]) < 1e-3  # metres, of up to 85
    assert off("vertices", golden["vertices"] * flip) < 1e-6
    assert off("joints", golden["joints"] * flip) < 1e-6
    assert off("keypoints_2d", golden["kp2d_full_persp"]) < 5e-3
    seen = project(body["joints"], body["cam_t_full"], body)
    assert np.abs(seen - body["keypoints_2d"]).max() < 1e-3


# ---- wrong requests ---------------------------------------------------------------------------

# H10: twenty boxes and what becomes of them; NaN and the like are no JSON at all.
BOXES = [
    ("[218,38,378,200]", 200), ("[-80,-60,60,90]", 200), ("[0,0,600,450]", 200),
    ("[218.5,38.25,378.75,200.125]", 200), ("[599,449,900,900]", 200), ("[]", 200),
    ("[[218,38,378,200]]", 200),
    ("[5,5,5,9]", 400), ("[5,5,9,5]", 400), ("[378,200,218,38]", 400), ("[378,38,218,200]", 400),
    ("[700,500,900,700]", 400), ("[-90,-90,-10,-10]", 400), ("[1e30,1e30,2e30,2e30]", 400),
    ("[0,0,1e30,1e30]", 400), ("[[218,38,378,200],[700,500,900,700]]", 400),
    ("[218,38,378]", None), ("[218,38,378,200,1]", None), ('["218","38","378","200"]', None),
    ("[NaN,38,378,200]", None), ("[218,38,Infinity,200]", None), ("[218,38,1e999,200]", None),
    ("[[[218,38,378,200]]]", None), ("null", None), ('"218,38,378,200"', None), ("{}", None),
]


@pytest.mark.parametrize("box,code", BOXES)
def test_boxes(hamer, box, code):
    answer = hamer.predict(None, data=f'{{"image":"{IMAGE}","bbox":{box}}}',
                           headers={"Content-Type": "application/json"})
    assert answer.status_code == (code or 400), answer.text[:300]
    if code != 200:
        detail = answer.json()["detail"]
        assert detail.startswith(("bbox", "not JSON")), detail
        if code == 400:  # numbers, but not where a hand could be: which, and in how large a picture
            shown = json.loads(re.search(r": (\[[^\]]*\])", detail).group(1))
            numbers = json.loads(box)
            assert shown in ([numbers] if not isinstance(numbers[0], list) else numbers)
            assert f"{WIDTH}x{HEIGHT}" in detail


@pytest.mark.parametrize("fields,name", [
    ({"bbox": BOX, "is_right": [True]}, "is_right"), ({"is_right": [True]}, "is_right"),
    ({"bbox": [BOX, OTHER], "is_right": [True]}, "is_right"),
    ({"bbox": [BOX], "is_right": [True, True]}, "is_right"), ({"is_right": "left"}, "is_right"),
    ({"bbox": [BOX], "is_right": [1]}, "is_right"), ({"rescale_factor": 0}, "rescale_factor"),
    ({"rescale_factor": "2"}, "rescale_factor"), ({"rescale_factor": -1}, "rescale_factor"),
    ({"return_vertices": 1}, "return_vertices"), ({"return_faces": None}, "return_faces"),
    ({"crop": "Served"}, "crop"), ({"exif": True}, "exif"), ({"rotations": []}, "rotations"),
    ({"fx": 600}, "fy"), ({"fx": 0, "fy": 1, "cx": 1, "cy": 1}, "fx"),
    ({"fx": 1e30, "fy": 1, "cx": 1, "cy": 1}, "fx"), ({"cx": "1"}, "cx"),
    ({"image": None}, "image"), ({"bbox": [BOX] * 17}, "bbox"), ({"bbox": [BOX] * 1000}, "bbox"),
    ({"bbox": [BOX] * 100000}, "JSON"), ({"bbox": [0, 0, 30000, 10]}, "bbox"),
    ({"bbox": [0, 0, 0.001, 0.001]}, "bbox")])
def test_a_wrong_field_is_named(hamer, fields, name):
    answer = hamer.predict({"image": IMAGE} | fields)
    assert answer.status_code == 400 and answer.json()["detail"].startswith(name), answer.text[:300]


def test_random_damage(hamer):
    """Whatever becomes of a request's fields: an answer or a word, never a fall."""
    generator = np.random.default_rng(7)
    small = text64(encoded(blobs(32, 32)))
    whole = json.dumps({"bbox": [[1, 2, 20, 30.5], [5, 6, 31, 32]], "is_right": [True, False],
                        "rescale_factor": 2.0, "fx": 60, "fy": 60, "cx": 16, "cy": 16,
                        "crop": "demo"}).encode()
    codes = set()
    for _ in range(300):
        body = bytearray(whole)
        for place in generator.integers(0, len(body), generator.integers(1, 4)):
            body[place] = generator.choice(list(b'0123456789.-+e[]{},:"tf n'))
        answer = requests.post(hamer.url + "/predict", timeout=LONG,
                               data=b'{"image":"' + small.encode() + b'",' + bytes(body[1:]),
                               headers={"Content-Type": "application/json"})
        codes.add(answer.status_code)
        assert answer.status_code in (200, 400), answer.text[:300]
    assert codes == {200, 400}


def test_odd_pictures(hamer):
    for size in ((1, 1), (1, 10000), (10000, 1), (7, 9)):
        answer = hamer.send(encoded(blobs(64, 64).resize(size)))
        assert answer.status_code == 200 and answer.json()["image_size"] == list(size)
    longest = hamer.send(encoded(Image.new("L", (65535, 1))), bbox="0,0,10,1")
    assert longest.status_code == 200
    too_long = hamer.send(encoded(Image.new("L", (65536, 1))), bbox="0,0,10,1")
    assert too_long.status_code == 400 and "65535" in too_long.json()["detail"]
    for mode in ("L", "LA", "RGBA", "P", "CMYK"):
        kind = "JPEG" if mode == "CMYK" else "PNG"
        data = encoded(colors().convert(mode) if mode != "LA" else colors().convert("L").convert(mode),
                       kind)
        assert hamer.send(data, f"image/{kind.lower()}", bbox="218,38,378,200").status_code == 200
    assert hamer.send(b"\x89PNG", bbox="1,2,3,4").json()["detail"].startswith("bad image: ")


def test_limits_are_options(tmp_path, hamer_weights, mano):
    server = Server(tmp_path, hamer_weights, "--mano", str(mano), "--max-hands", "64",
                    "--max-answer", "1", models=["hamer"])
    assert server.get("/info").json()["limits"]["max_hands"] == 64
    many = server.predict({"image": IMAGE, "bbox": [BOX] * 64})
    assert many.status_code == 400 and many.json()["detail"].startswith("bbox: ")
    slim = server.predict({"image": IMAGE, "bbox": [BOX] * 64, "return_vertices": False})
    assert slim.status_code == 200 and len(slim.json()["hands"]) == 64
    assert len(slim.content) < 1 << 20
    assert server.predict({"image": IMAGE, "bbox": [BOX] * 65,
                           "return_vertices": False}).json()["detail"].startswith("bbox: 65 ")
    assert server.stop() == 0, server.log()


def test_answers_stay_under_what_was_promised(meshes):
    """The bound by which requests are refused holds for the answers that are given."""
    for faces, vertices, bound in ((True, True, 82 << 10), (False, True, 54 << 10),
                                   (False, False, 12 << 10)):
        answer = meshes.predict({"image": IMAGE, "bbox": [BOX], "return_faces": faces,
                                 "return_vertices": vertices, "rotations": "image"})
        assert len(answer.content) < bound


# ---- routes -----------------------------------------------------------------------------------


def test_routes_of_models_that_are_not_served(hamer, server, picture):
    for other, path in ((hamer, "/match"), (hamer, "/superpoint/predict"),
                        (hamer, "/superpoint/match"), (server, "/hamer/predict")):
        answer = other.predict({"image": IMAGE}, path=path)
        assert answer.status_code == 404 and path in answer.json()["detail"]
    assert (without_times(server.send(picture, path="/superpoint/predict").json()) ==
            without_times(server.send(picture).json()))
    for path in ("/hamer", "/hamer/", "/hamer/match", "/Hamer/predict", "/hamer/predict/"):
        assert hamer.predict({"image": IMAGE}, path=path).status_code == 404
    wrong = hamer.get("/hamer/predict")
    assert wrong.status_code == 405 and wrong.headers["Allow"] == "POST"


def test_no_binary_answer(hamer):
    answer = hamer.predict({"image": IMAGE}, headers={"Accept": "application/x-npz"})
    assert answer.status_code == 406
    both_kinds = hamer.predict({"image": IMAGE},
                               headers={"Accept": "application/json, application/x-npz"})
    assert both_kinds.status_code == 200


def test_the_other_models_fields_are_ignored_as_unknown(hamer):
    body = hamer.predict({"image": IMAGE, "bbox": BOX, "max_keypoints": "many", "size": 5})
    assert body.status_code == 200


def test_metrics(hamer):
    before = hamer.metric("tapetum_hands_total")
    hamer.predict({"image": IMAGE, "bbox": [BOX, OTHER]})
    hamer.predict({"image": IMAGE}, path="/hamer/predict")
    wait_until(lambda: hamer.metric("tapetum_hands_total") == before + 3)
    wait_until(lambda: hamer.metric(
        'tapetum_http_requests_total{route="/hamer/predict",code="200"}') >= 1)


# ---- two models -------------------------------------------------------------------------------


def test_two_models_are_listed(both):
    assert [entry["id"] for entry in both.get("/v1/models").json()["data"]] == [
        "changh95/hamer-weights", "magic-leap-community/superpoint"]
    health = both.get("/health").json()
    assert {name: value for name, value in health.items() if name != "models"} == {
        "status": "ok", "model": "hamer-p150", "device": {"arch": "cpu", "id": 0, "open": True}}
    assert health["models"] == [
        {"model": "hamer-p150", "kind": "hamer", "status": "ok", "routes": ["/hamer/predict"]},
        {"model": "superpoint-p150", "kind": "superpoint", "status": "ok",
         "routes": ["/superpoint/predict", "/superpoint/match"]}]
    info = both.get("/info").json()
    assert info["model"] == "hamer-p150" and info["limits"]["max_hands"] == 16
    assert [model["kind"] for model in info["models"]] == ["hamer", "superpoint"]
    points = info["models"][1]
    assert points["weights"]["loaded"] and points["gate_correlation"] >= 0.9999
    assert points["defaults"]["max_keypoints"] == 1024
    for name in ("weights", "defaults", "license", "gate_correlation", "joints"):
        assert info["models"][0][name] == info[name]


def test_each_has_its_routes(both, hamer, server, picture):
    hands, points = {"image": IMAGE, "bbox": BOX}, {"image": text64(picture), "max_keypoints": 9}
    alone = without_times(hamer.predict(hands).json())
    assert without_times(both.predict(hands).json()) == alone
    assert without_times(both.predict(hands, path="/hamer/predict").json()) == alone
    other = without_times(server.predict(points).json())
    assert without_times(both.predict(points, path="/superpoint/predict").json()) == other
    pair = {"image_a": text64(picture), "image_b": text64(picture), "size": "96x80"}
    matches = [without_times(asked.predict(pair, path=path).json())
               for asked, path in ((server, "/match"), (both, "/match"),
                                   (both, "/superpoint/match"), (server, "/superpoint/match"))]
    assert matches[0]["num_matches"] > 0 and all(match == matches[0] for match in matches)


def test_the_first_named_answers_predict(tmp_path, weights, hamer_weights, picture, server):
    turned = Server(tmp_path, None, "--hamer-weights", str(hamer_weights), "--superpoint-weights",
                    str(weights), "--mano", "none", models=["superpoint", "hamer"])
    assert turned.get("/health").json()["model"] == "superpoint-p150"
    assert (without_times(turned.send(picture).json()) ==
            without_times(server.send(picture).json()))
    assert turned.predict({"image": IMAGE}, path="/hamer/predict").json()["bbox_source"] == "center"
    assert turned.stop() == 0, turned.log()


def test_both_at_once(both, picture):
    """One queue for all: each gets its own answer."""
    hands, points = {"image": IMAGE, "bbox": BOX}, {"image": text64(picture), "size": "96x80"}
    kinds = {"/hamer/predict": hands, "/superpoint/predict": points}
    expected = {path: without_times(both.predict(fields, path=path).json())
                for path, fields in kinds.items()}
    wrong = []

    def ask(path):
        for _ in range(6):
            answer = both.predict(kinds[path], path=path)
            if answer.status_code != 200 or without_times(answer.json()) != expected[path]:
                wrong.append((path, answer.status_code))

    threads = [threading.Thread(target=ask, args=(path,)) for path in list(kinds) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- starting ---------------------------------------------------------------------------------


def run(*arguments, **more):
    return subprocess.run([BINARY, "serve", *map(str, arguments), "--port", "0"], text=True,
                          capture_output=True, timeout=LONG, **more)


@pytest.mark.parametrize("words,says", [
    (["hamer", "hamer"], "twice"), (["hamer", "superpoint", "hamer"], "two"),
    (["hamer", "superpoint", "--weights", "x"], "--hamer-weights"),
    (["superpoint", "--weights", "x", "--mano", "y"], "--mano"),
    (["superpoint", "--weights", "x", "--precision", "int8"], "--precision"),
    (["superpoint", "--hamer-weights", "x"], "--hamer-weights"),
    (["hamer", "--superpoint-weights", "x"], "--superpoint-weights"),
    (["hamer", "--weights", "x", "--precision", "f64"], "f64"),
    (["hamer", "--weights", "x", "--max-hands", "257"], "256"), (["dino"], "dino")])
def test_command_lines_that_cannot_be(words, says):
    out = run(*words)
    assert out.returncode == 2 and says in out.stderr, out.stderr
    assert out.stderr.startswith("tapetum: serve: ")


def test_weights_of_the_other_model(tmp_path, weights, hamer_weights):
    environment = {"TAPETUM_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for model, path in (("hamer", weights), ("superpoint", hamer_weights)):
        out = run(model, "--weights", path, env=environment)
        assert out.returncode == 3, out.stderr
        last = out.stderr.strip().splitlines()[-1]
        assert last.startswith("tapetum: serve: ") and str(path) in last


def test_a_mano_file_that_is_none(tmp_path, hamer_weights):
    bad = tmp_path / "MANO_RIGHT.pkl"
    bad.write_bytes(b"\x80\x02cos\nsystem\nU\x04trueq\x00\x85R.")
    out = run("hamer", "--weights", hamer_weights, "--mano", bad,
              env={"TAPETUM_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert out.returncode == 3, out.stderr
    assert str(bad) in out.stderr.strip().splitlines()[-1]


def test_weights_of_the_environment(tmp_path, hamer_weights, mano):
    server = Server(tmp_path, None, models=["hamer"],
                    environment={"HAMER_WEIGHTS_DIR": str(hamer_weights),
                                 "TAPETUM_MANO": str(mano), "TT_DEVICE_ID": "2"})
    info = server.get("/info").json()
    assert info["weights"]["local_dir"] == str(hamer_weights) and info["mano"]["available"] is True
    assert info["weights"]["revision"] is None
    assert server.get("/health").json()["device"]["id"] == 2
    assert server.stop() == 0, server.log()
