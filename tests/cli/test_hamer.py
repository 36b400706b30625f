"""tapetum hamer: hands against the reference data, boxes in every spelling, pictures and meshes."""

import json
import os
import shutil
import struct

import numpy as np
import pytest
from PIL import Image

from conftest import scene, without_times

BOX = "60,40,200,170"
CORNERS = [60, 40, 200, 170]


@pytest.fixture(scope="session")
def mano(hands):
    return hands / "MANO_RIGHT_synthetic.pkl"


@pytest.fixture()
def quick(tiny):
    """The words of a small, silent run without a mesh."""
    return ("hamer", "-q", "-w", tiny, "--mano", "none")


def lines_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def answer_of(program, *words, **more):
    lines = lines_of(program.run(*words, "--json", **more))
    assert len(lines) == 1
    return lines[0]


# ---- the numbers -------------------------------------------------------------------------------

@pytest.mark.parametrize("policy, prefix", [("served", "e2e_served_tiny"), ("demo", "e2e_tiny")])
def test_golden_hands(program, tiny, hands, mano, policy, prefix):
    cases = json.loads((hands / "cases.json").read_text())[:4]
    golden = {name: np.load(hands / f"{prefix}_{name}.npy") for name in (
        "rotmats", "betas", "cam", "cam_t_full", "joints", "vertices", "kp2d_full_persp")}
    for i, case in enumerate(cases):
        box = ",".join(map(str, case["box"])) + ("" if case["is_right"] else ",left")
        got = answer_of(program, "hamer", "-q", "-w", tiny, "--mano", mano, hands / case["image"],
                        "--bbox", box, "--rescale", str(case["rescale_factor"]),
                        "--policy", policy)
        flip = [1 if case["is_right"] else -1, 1, 1]
        assert got["image_size"] == case["image_size"] and got["is_right"] == case["is_right"]
        assert got["bbox"] == case["box"] and got["bbox_source"] == "given"
        assert got["crop"] == policy and got["mano_available"] is True
        for name in ("rotmats", "betas", "cam"):
            assert np.allclose(got[name], golden[name][i], atol=2e-5), (i, name)
        assert np.allclose(got["cam_t_full"], golden["cam_t_full"][i], atol=1e-3)
        for name in ("joints", "vertices"):
            assert np.allclose(got[name], golden[name][i] * flip, atol=2e-6), (i, name)
        assert np.allclose(got["keypoints_2d"], golden["kp2d_full_persp"][i], atol=2e-2)


@pytest.mark.parametrize("wide", [False, True])
def test_golden_crops(program, quick, hands, tmp_path, wide):
    crops = np.load(hands / "crops_u8.npy")
    for i, crop in enumerate(crops):
        Image.fromarray(np.pad(crop, ((0, 0), (32, 32), (0, 0)), constant_values=77)
                        if wide else crop).save(tmp_path / f"{i}.png")
    answers = lines_of(program.run(*quick, tmp_path / "0.png", tmp_path / "1.png", "--crop",
                                   "--json"))
    assert len(answers) == 2
    for i, answer in enumerate(answers):
        assert answer["bbox_source"] == "crop" and "cam_t_full" not in answer
        for name in ("rotmats", "betas", "cam"):
            assert np.allclose(answer[name], np.load(hands / f"tiny_{name}.npy")[i], atol=1e-5)
    line = program.run(*quick, tmp_path / "0.png", "--crop").stdout
    assert ", a crop, cam (" in line and " m;" not in line


def test_the_camera_projects_the_joints(program, tiny, hands, mano):
    words = ("hamer", "-q", "-w", tiny, "--mano", mano, hands / "test2.jpg", "-b", "318,240,540,452",
             "--left")
    places = []
    for more in ((), ("--camera", "600,640,310,200")):
        got = answer_of(program, *words, *more)
        points = np.array(got["joints"]) + got["cam_t_full"]
        pixels = points[:, :2] / points[:, 2:] * got["focal_length"] + got["principal_point"]
        assert np.allclose(pixels, got["keypoints_2d"], atol=1e-3)
        places.append((got["cam_t_full"], got["focal_length"], got["principal_point"]))
    assert places[0][1:] == ([5000 / 256 * 600] * 2, [300, 225])
    assert places[1][1:] == ([600, 640], [310, 200])
    assert places[0][0][2] / places[1][0][2] == pytest.approx(11718.75 / (600 * 640) ** 0.5)


def test_several_boxes_are_each_as_alone(program, quick, photo):
    boxes = [BOX, "10,20,90,100,left", "-30,-20,50,70"]
    together = answer_of(program, *quick, photo, *[w for box in boxes for w in ("--bbox", box)])
    alone = [answer_of(program, *quick, photo, "-b", box) for box in boxes]
    assert together["file"] == str(photo)
    assert list(map(without_times, together["hands"])) == list(map(without_times, alone))
    assert [hand["is_right"] for hand in together["hands"]] == [True, False, True]
    assert [hand["bbox"] for hand in alone] == [CORNERS, [10, 20, 90, 100], [-30, -20, 50, 70]]


@pytest.mark.parametrize("words, right", [
    (("-b", BOX), [True]), (("-b", BOX, "--left"), [False]), (("--left", "-b", BOX), [False]),
    (("-b", BOX, "-b", BOX, "-l"), [True, False]), (("-b", BOX, "-l", "-b", BOX), [False, True]),
    (("--left", "-b", BOX, "-b", BOX), [False, False]),
    (("--left", "-b", BOX + ",right", "-b", BOX), [True, False]),
    (("--left", "-b", BOX, "-r", "-b", BOX), [True, False]), (("--left",), [False]), ((), [True])])
def test_sides(program, quick, photo, words, right):
    answer = answer_of(program, *quick, photo, *words)
    assert [hand["is_right"] for hand in answer.get("hands", [answer])] == right
    assert all(hand["bbox_source"] == ("given" if "-b" in words else "center")
               for hand in answer.get("hands", [answer]))


def test_without_a_box_the_middle_square(program, quick, photo):
    assert answer_of(program, *quick, photo)["bbox"] == pytest.approx([40, 0, 280, 240], abs=1)
    assert "no box: the middle square" in program.run(*quick, photo).stdout


def test_exif_turns_first(program, quick, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    scene(176, 120, 9).save(tmp_path / "turned.jpg", exif=exif.tobytes())
    words = (*quick, tmp_path / "turned.jpg", "-b", "20,20,100,110")
    turned, stored = answer_of(program, *words), answer_of(program, *words, "--exif", "ignore")
    assert (turned["image_size"], turned["exif_applied"]) == ([120, 176], True)
    assert (stored["image_size"], stored["exif_applied"]) == ([176, 120], False)
    assert turned["exif_orientation"] == stored["exif_orientation"] == 6
    assert turned["rotmats"] != stored["rotmats"]


def test_what_json_carries(program, tiny, hands, mano):
    words = ("hamer", "-q", "-w", tiny, "--mano", mano, hands / "test2.jpg", "-b", "218,38,378,200")
    full = answer_of(program, *words, "--faces", "--rotations", "image")
    assert np.shape(full["faces"]) == (1538, 3) and np.shape(full["vertices"]) == (778, 3)
    assert np.shape(full["rotmats_image"]) == (16, 3, 3) and np.shape(full["axis_angle"]) == (16, 3)
    assert full["rotmats_image"] == full["rotmats"], "of a right hand they are the same"
    left = answer_of(program, *words, "--left", "--rotations", "image")
    mirror = np.diag([-1, 1, 1])
    assert np.allclose(left["rotmats_image"], mirror @ np.array(left["rotmats"]) @ mirror)
    less = answer_of(program, *words, "--no-vertices")
    assert not {"vertices", "faces", "rotmats_image", "axis_angle"} & set(less)
    assert np.shape(less["joints"]) == (21, 3)
    assert set(less["timing_ms"]) == {"preprocess", "device", "mano", "total"}


def test_text(program, tiny, photo):
    result = program.run("hamer", photo, "-w", tiny, "-b", BOX)
    answer = answer_of(program, "hamer", photo, "-w", tiny, "-b", BOX)
    x, y, z = answer["cam_t_full"]
    assert result.stdout.startswith(f"{photo}: right hand, box {BOX}, at ({x:.3f}, {y:.3f}, "
                                    f"{z:.3f}) m; ")
    said = result.stderr.splitlines()
    assert said[0].startswith(f"weights: {tiny} (safetensors).") and "non-commercial" in said[0]
    assert said[1].startswith("MANO: none found") and "docs/hamer.md" in said[1] and len(said) == 2
    two = program.run("hamer", photo, "-w", tiny, "-b", BOX, "-b", BOX, "-l", "--mano", "none", "-q")
    assert two.stderr == "" and len(two.stdout.splitlines()) == 3
    assert two.stdout.splitlines()[2].startswith(f"{photo}: 2 hands in 320 x 240; ")


# ---- boxes in files ----------------------------------------------------------------------------

OTHER = [10, 20, 90, 100]
EXPECTED = [(CORNERS, True), (OTHER, False)]


@pytest.mark.parametrize("text", [
    json.dumps([{"bbox": CORNERS}, {"bbox": OTHER, "is_right": False}]),
    json.dumps([CORNERS, {"bbox": OTHER, "is_right": False, "score": 0.5}]),
    json.dumps({"bbox": [CORNERS, OTHER], "is_right": [True, False]}),
    json.dumps({"photo.png": [CORNERS, {"bbox": OTHER, "is_right": False}], "other.png": [OTHER]}),
    json.dumps({"file": "photo.png", "hands": [{"bbox": CORNERS, "is_right": True},
                                               {"bbox": OTHER, "is_right": False}]}),
    '{"bbox": [60, 40, 200, 170], "file": "photo.png"}\n{"bbox": [10, 20, 90, 1e2], '
    '"is_right": false}\n{"image": "x.png", "bbox": [1, 2, 3, 4]}\n',
    "60,40,200,170\n10,20,90,100,left\n",
    "  60 , 40,200.0,17e1,right\r\n\r\n# none\r\n10,20,90,100,LEFT,photo.png\r\n1,2,3,4,,other.png",
    'x1,y1,x2,y2,is_right,file\n60,40,200,170,1,photo.png\n10,20,90,100,false,"photo.png"\n'
    '1,2,3,4,1,"other, and ""more"".png"\n',
    "image,Side,score,Y2,X2,Y1,X1\n,right,0.5,170,200,40,60\n,left,0.5,100,90,20,10\n",
])
def test_boxes_in_every_spelling(program, quick, photo, tmp_path, text):
    (tmp_path / "boxes").write_text(text)
    answer = answer_of(program, *quick, photo, "--boxes", tmp_path / "boxes")
    assert [(hand["bbox"], hand["is_right"]) for hand in answer["hands"]] == EXPECTED
    piped = answer_of(program, *quick, photo, "--boxes", "-", input=text.encode())
    assert without_times(piped).keys() == without_times(answer).keys()
    assert [hand["cam"] for hand in piped["hands"]] == [hand["cam"] for hand in answer["hands"]]


def test_boxes_of_a_folder(program, quick, folder, tmp_path):
    (tmp_path / "boxes.csv").write_text(f"10,10,90,80,left,a.png\n20,20,80,90,,{folder}/b.jpg\n")
    # c.png is no picture, but has no box either: it is complained about all the same.
    answers = lines_of(program.run(*quick, folder, "--boxes", tmp_path / "boxes.csv", "--json",
                                   "--draw", tmp_path, status=1))
    assert [answer["file"] for answer in answers] == [f"{folder}/{name}" for name in (
        "a.png", "b.jpg", "d.PNG")]
    assert answers[0]["is_right"] is False and answers[1]["bbox"] == [20, 20, 80, 90]
    assert answers[2]["hands"] == []
    assert sorted(os.listdir(tmp_path)) == ["a.png.png", "b.jpg.png", "boxes.csv", "d.PNG.png"]
    # Our own answers are boxes.
    (tmp_path / "again.jsonl").write_text("\n".join(map(json.dumps, answers)))
    again = lines_of(program.run(*quick, folder, "--boxes", tmp_path / "again.jsonl", "--json",
                                 status=1))
    assert list(map(without_times, again)) == list(map(without_times, answers))


@pytest.mark.parametrize("box, says", [
    ("5,5,5,9", "empty or reversed"), ("200,40,60,170", "empty or reversed"),
    ("60,170,200,40", "empty or reversed"), ("nan,1,2,3", "x1,y1,x2,y2"),
    ("1,2,inf,3", "x1,y1,x2,y2"), ("1,2,1e400,3", "x1,y1,x2,y2"), ("1,2,1e39,3", "finite"),
    ("1,2,3", "x1,y1,x2,y2"), ("1,2,3,4,5", "x1,y1,x2,y2"), ("1,2,3,4,up", "x1,y1,x2,y2"),
    ("", "x1,y1,x2,y2"), ("0x1,2,3,4", "x1,y1,x2,y2"), ("1,2,3,4,left,x", "x1,y1,x2,y2"),
    ("1 2 3 4", "x1,y1,x2,y2"), ("a,b,c,d", "x1,y1,x2,y2")])
def test_boxes_that_are_none(program, quick, photo, box, says):
    line = program.complaint(*quick, photo, "--bbox", box, status=2)
    assert says in line and "--bbox: " in line


@pytest.mark.parametrize("text, says", [
    ("", "has no box"), ("[]", "has no box"), ("[[1,2,3]]", "box 1: 3 numbers"),
    ("[[1,2,3,4,5]]", "5 numbers"), ("[[1,2,3,4],[5,6,5,9]]", "box 2: 5,6,5,9 is empty"),
    ("[[1,2,NaN,4]]", "finite"), ("[[1,2,1e999,4]]", "finite"), ('[["1",2,3,4]]', "box 1"),
    ('[[1,2,"3",4]]', "no number"), ('{"bbox": 5}', "no list"), ("[[1,2,3,4]", "ends too early"),
    ('{"bbox":[1,2,3,4],"is_right":"no"}', "is_right"), ("[" * 40 + "]" * 40, "not JSON"),
    ('{"bbox":[[1,2,3,4]],"is_right":[true,false]}', "2 values"), ('{"score": 1}', "'score'"),
    ("[[1,2,3,4]] x", "not JSON"), ('{"file": 1, "bbox": [1,2,3,4]}', "file is no string"),
    ("1,2,3\n", "line 1"), ("1,2,3,4\n5,6,x,8\n", "line 2: 'x'"), ("x1,y1,x2\n1,2,3\n", "header"),
    ("1,2,3,4,up\n", "left nor right"), ("1,2,nan,4\n", "'nan'"), ("," * 99, "fields"),
    ("a\0b", "neither JSON nor CSV"), ("[[1,2,3,4,]]", "not JSON"),
    (json.dumps([[0, 0, 9, 9]] * 257), "257 boxes"), (json.dumps({"x.png": [CORNERS]}), "pictures")])
def test_boxes_files_that_are_wrong(program, quick, photo, tmp_path, text, says):
    (tmp_path / "boxes").write_text(text)
    line = program.complaint(*quick, photo, "--boxes", tmp_path / "boxes", status=2)
    assert says in line, line


def test_as_many_boxes_as_are_allowed(program, quick, photo, tmp_path):
    (tmp_path / "boxes").write_text("\n".join(f"{i},0,{i + 40},50" for i in range(256)))
    answer = answer_of(program, *quick, photo, "--boxes", tmp_path / "boxes")
    assert [hand["bbox"][0] for hand in answer["hands"]] == list(range(256))
    words = [word for _ in range(257) for word in ("-b", BOX)]
    assert "257 boxes" in program.complaint(*quick, photo, *words, status=2)


@pytest.mark.parametrize("words, says", [
    (("--crop", "-b", BOX), "--crop"), (("--crop", "--camera", "5,5,1,1"), "--camera"),
    (("--camera", "5,5,1"), "fx,fy,cx,cy"), (("--camera", "0,5,1,1"), "larger than 0"),
    (("--camera", "5,nan,1,1"), "fx,fy,cx,cy"), (("--rescale", "0"), "from 0.01"),
    (("--rescale", "nan"), "from 0.01"), (("--policy", "server"), "served, demo"),
    (("--precision", "f64"), "f32, f16, int8"), (("--style", "nice"), "best, mesh, skeleton, box"),
    (("--rotations", "all"), "network, image"), (("--mesh", "x.stl"), ".obj, .ply or .glb"),
    (("--draw", "x.gif"), ".png"), (("--side", "x"), ".png"),
    (("--draw", "x.png", "--side", "x.png"), "--side"), (("--boxes", "none.json"), "none.json"),
    (("-b",), "needs a value"), (("--bbox=",), "x1,y1,x2,y2")])
def test_wrong_words(program, quick, photo, words, says):
    line = program.complaint(*quick, photo, *words, status=2)
    assert says in line and "tapetum hamer --help" in line


def test_no_picture_and_one_stdin_for_two(program, quick):
    assert "no picture" in program.complaint(*quick, status=2)
    assert "once only" in program.complaint(*quick, "-", "--boxes", "-", status=2, input=b"")
    assert "once only" in program.complaint(*quick, "-", "-", status=2, input=b"")


def test_a_box_that_shows_nothing(program, quick, photo):
    line = program.complaint(*quick, photo, "-b", "900,900,950,950", status=1)
    assert "outside" in line


def test_a_crop_of_another_size(program, quick, photo):
    line = program.complaint(*quick, photo, "--crop", status=1)
    assert "320" in line and "192" in line


def test_standard_input(program, quick, photo):
    piped = answer_of(program, *quick, "-", "-b", BOX, input=photo.read_bytes())
    assert piped["file"] == "-"
    assert without_times(piped) == without_times(answer_of(program, *quick, photo, "-b", BOX))


# ---- pictures and meshes -----------------------------------------------------------------------

def changed(before, after):
    first, second = (np.asarray(Image.open(path).convert("RGB"), int) for path in (before, after))
    assert first.shape == second.shape
    return np.abs(first - second).max(2) > 8


@pytest.mark.parametrize("style", ["best", "mesh", "skeleton", "box"])
def test_draw(program, tiny, hands, mano, tmp_path, style):
    photo = hands / "test2.jpg"
    words = ("hamer", "-q", "-w", tiny, "--mano", mano, photo, "-b", "218,38,378,200", "--style",
             style)
    answer = answer_of(program, *words, "--draw", tmp_path / "hand.png")
    drawn = changed(photo, tmp_path / "hand.png")
    y, x = np.nonzero(drawn)
    assert 50 < len(x) < 0.1 * drawn.size
    points = np.array(answer["keypoints_2d"]) if style != "box" else np.array(
        [[218, 38], [378, 200]])
    low, high = points.min(0) - 16, points.max(0) + 16
    assert (x >= low[0]).all() and (x <= high[0]).all(), "only the hand is drawn"
    assert (y >= low[1]).all() and (y <= high[1]).all()
    assert os.listdir(tmp_path) == ["hand.png"]


def test_without_mano_the_box_is_drawn(program, quick, photo, tmp_path):
    program.run(*quick, photo, "-b", BOX, "-d", tmp_path / "box.jpg")
    drawn = changed(photo, tmp_path / "box.jpg")
    assert drawn[40:170, 58:63].any(1).mean() > 0.8, "its left edge"
    for words in (("--mesh", "x.glb"), ("--side", "x.png"), ("-d", "x.png", "--style", "mesh"),
                  ("-d", "x.png", "--style", "skeleton")):
        line = program.complaint(*quick, photo, "-b", BOX, *words, status=3, cwd=tmp_path)
        assert "MANO_RIGHT.pkl" in line and words[-2 if "--style" not in words else 2] in line
    assert os.listdir(tmp_path) == ["box.jpg"]


def test_side_view(program, tiny, hands, mano, tmp_path):
    program.run("hamer", "-q", "-w", tiny, "--mano", mano, hands / "test2.jpg", "-b",
                "218,38,378,200", "--side", tmp_path / "side.png")
    pixels = np.asarray(Image.open(tmp_path / "side.png"))
    dark = (pixels < 230).all(2)
    assert pixels.shape == (600, 600, 3) and 0.02 < dark.mean() < 0.6
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    assert (edge == 255).all(), "white around"


def test_mesh_files(program, tiny, hands, mano, tmp_path):
    words = ("hamer", "-q", "-w", tiny, "--mano", mano, hands / "test2.jpg", "-b", "218,38,378,200",
             "-b", "318,240,540,452,left")
    expected = np.concatenate([np.array(hand["vertices"]) + hand["cam_t_full"]
                               for hand in answer_of(program, *words)["hands"]])
    for ending in ("obj", "ply", "glb"):
        program.run(*words, "--mesh", tmp_path / f"hands.{ending}")
    lines = (tmp_path / "hands.obj").read_text().splitlines()
    points = np.array([line.split()[1:4] for line in lines if line.startswith("v ")], float)
    faces = sum(line.startswith("f ") for line in lines)
    assert points.shape == (2 * 778, 3) and faces == 2 * (1538 + 14)
    # A mesh file has y up and looks along -z.
    assert np.allclose(points * [1, -1, -1], expected, atol=1e-4)
    head = (tmp_path / "hands.ply").read_bytes()[:400].decode(errors="replace")
    assert head.startswith("ply\n") and "element vertex 1556\n" in head
    raw = (tmp_path / "hands.glb").read_bytes()
    magic, version, length = struct.unpack("<4sII", raw[:12])
    assert (magic, version, length) == (b"glTF", 2, len(raw))
    size = struct.unpack("<I", raw[12:16])[0]
    assert len(json.loads(raw[20:20 + size])["meshes"]) >= 1


def test_results_of_several_pictures(program, tiny, hands, mano, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("test1.jpg", "test2.jpg", "test3.jpg"):
        shutil.copy(hands / name, tmp_path / "in")
    (tmp_path / "out").mkdir()
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps({"test1.jpg": [[257, 157, 381, 345]],
                                 "test2.jpg": [[218, 38, 378, 200], [318, 240, 540, 452]]}))
    out = tmp_path / "out"
    program.run("hamer", "-q", "-w", tiny, "--mano", mano, tmp_path / "in", "--boxes", boxes,
                "--draw", out, "--side", out, "--mesh", out)
    assert sorted(os.listdir(out)) == sorted(
        [f"test{i}.jpg{ending}" for i in (1, 2) for ending in (".png", ".side.png", ".glb")] +
        ["test3.jpg.png"]), "no hands, no mesh"


@pytest.mark.parametrize("words, status", [
    (("--draw", "none/x.png"), 1), (("--draw", "folder.png"), 2), (("--draw", "fifo.png"), 2)])
def test_what_cant_be_written(program, quick, photo, tmp_path, words, status):
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "fifo.png")
    line = program.complaint(*quick, photo, "-b", BOX, *words, status=status, cwd=tmp_path)
    assert words[1] in line
    assert sorted(os.listdir(tmp_path)) == ["fifo.png", "folder.png"]


def test_a_mesh_that_cant_be_written(program, tiny, hands, mano, tmp_path):
    line = program.complaint("hamer", "-q", "-w", tiny, "--mano", mano, hands / "test2.jpg",
                             "--mesh", tmp_path / "none" / "x.glb", status=1)
    assert "none/x.glb" in line and os.listdir(tmp_path) == []


# ---- weights -----------------------------------------------------------------------------------

def test_no_weights(program, photo):
    line = program.complaint("hamer", photo, status=3)
    for word in ("--weights", "$HAMER_WEIGHTS_DIR", "tapetum fetch hamer", "tapetum synth hamer",
                 "non-commercial"):
        assert word in line


def test_weights_of_another_model(program, tiny, weights, photo):
    assert "not a HaMeR" in program.complaint("hamer", photo, "-w", weights, status=3)
    assert "not a SuperPoint" in program.complaint("superpoint", photo, "-w", tiny, status=3)


def test_weights_from_the_environment(program, quick, tiny, hands, photo, tmp_path):
    given = answer_of(program, *quick, photo, "-b", BOX)
    shutil.copy(tiny, tmp_path / "model.safetensors")
    for path in (tiny, tmp_path, hands / "tiny.ckpt"):
        found = answer_of(program, "hamer", "-q", "--mano", "none", photo, "-b", BOX,
                          environment={"HAMER_WEIGHTS_DIR": str(path)})
        assert without_times(found) == without_times(given)


def test_mano_from_the_environment(program, tiny, photo, mano):
    words = ("hamer", photo, "-w", tiny, "-b", BOX, "--json")
    result = program.run(*words, environment={"TAPETUM_MANO": str(mano)})
    assert json.loads(result.stdout)["mano_available"] is True
    assert f"MANO: {mano}." in result.stderr and result.stderr.count("\n") == 2
    none = program.run(*words, "--mano", "none", environment={"TAPETUM_MANO": str(mano)})
    assert json.loads(none.stdout)["mano_available"] is False and "MANO:" not in none.stderr


def test_a_mano_file_that_is_none(program, tiny, photo, tmp_path):
    (tmp_path / "MANO_RIGHT.pkl").write_bytes(b"\x80\x02cos\nsystem\nU\x04true\x85R.")
    line = program.complaint("hamer", photo, "-w", tiny, "--mano", tmp_path / "MANO_RIGHT.pkl",
                             status=3)
    assert "MANO_RIGHT.pkl" in line


def test_info(program, tiny, mano):
    text = program.run("info", "--plan", tiny, environment={"TAPETUM_MANO": str(mano)}).stdout
    for line in ("model      hamer", "precision  f32", f"mano       {mano}"):
        assert line in text.splitlines()
    assert "parameters 213370" in text and "MMAC" in text and "non-commercial" in text
    assert "mano       none" in program.run("info", "--plan", tiny).stdout
    line = program.run("info", "--plan", tiny, "--size", "640x480", status=3).stderr
    assert "one size" in line
