"""HaMeR from Python: the authors' numbers, the program's answer, every way in and every mistake."""

import concurrent.futures
import dataclasses
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import shared
from PIL import Image

import tapetum
from tapetum import _library

# golden/hamer/cases.json's: picture, box, is_right, rescale_factor.
CASES = [("test2.jpg", (218, 38, 378, 200), True, 2.0), ("test2.jpg", (318, 240, 540, 452), False, 2.0),
         ("test1.jpg", (257, 157, 381, 345), True, 2.0), ("test3.jpg", (300, 190, 640, 560), False, 2.5)]
BOXES = [[20, 20, 90, 90], [60, 30, 130, 110]]


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in (
        "rotmats", "betas", "cam", "cam_t_full", "vertices", "joints", "keypoints_2d"))


# ---- right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy, name", [("served", "e2e_served_tiny"), ("demo", "e2e_tiny")])
@pytest.mark.parametrize("case", range(4))
def test_the_authors_numbers(hamer, policy, name, case):
    """Tolerances: the reference data's README, "Suggested bounds"."""
    picture, box, is_right, factor = CASES[case]
    hand = hamer(shared(f"golden/hamer/{picture}"), box, is_right, factor, policy=policy)
    flip = np.array([1 if is_right else -1, 1, 1])  # the files have the right hand's
    for part, value, tolerance in (
            ("rotmats", hand.rotmats, 1e-5), ("betas", hand.betas, 1e-5), ("cam", hand.cam, 1e-5),
            ("cam_t", hand.cam_t, 1e-4), ("vertices", hand.vertices * flip, 1e-6),
            ("joints", hand.joints * flip, 1e-6), ("kp2d_crop", hand.keypoints_crop, 1e-5),
            ("cam_t_full", hand.cam_t_full, 1e-4), ("kp2d_full_persp", hand.keypoints_2d, 5e-3)):
        wanted = np.load(shared(f"golden/hamer/{name}_{part}.npy"))[case]
        np.testing.assert_allclose(value, wanted.reshape(value.shape), rtol=0, atol=tolerance)


def test_upstreams_forward(hamer):
    """Crops, normalised, as the authors' network takes them."""
    crops = np.load(shared("golden/hamer/crops_u8.npy")).astype(np.float32) / 255
    crops = (crops - np.array([.485, .456, .406], np.float32)) / np.array([.229, .224, .225], np.float32)
    crops = crops.transpose(0, 3, 1, 2)
    out = hamer.forward_crops(crops)
    n = len(crops)
    wanted = np.load(shared("golden/hamer/tiny_rotmats.npy")).reshape(n, 16, 3, 3)
    np.testing.assert_allclose(out["pred_mano_params"]["global_orient"], wanted[:, :1], atol=1e-5)
    np.testing.assert_allclose(out["pred_mano_params"]["hand_pose"], wanted[:, 1:], atol=1e-5)
    np.testing.assert_allclose(out["pred_mano_params"]["betas"],
                               np.load(shared("golden/hamer/tiny_betas.npy")).reshape(n, 10), atol=1e-5)
    np.testing.assert_allclose(out["pred_cam"],
                               np.load(shared("golden/hamer/tiny_cam.npy")).reshape(n, 3), atol=1e-5)
    assert out["pred_vertices"].shape == (n, 778, 3) and out["pred_keypoints_3d"].shape == (n, 21, 3)
    assert out["pred_keypoints_2d"].shape == (n, 21, 2) and (out["focal_length"] == 5000).all()
    assert hamer.forward_crops(crops[:0])["pred_cam"].shape == (0, 3)
    for bad in (crops[0], crops.transpose(0, 2, 3, 1), crops[:, :, :, :100], np.full_like(crops, np.nan)):
        with pytest.raises(tapetum.ArgumentError, match="crops|width"):
            hamer.forward_crops(bad)


def test_the_programs_answer(hamer, hand_weights, tmp_path):
    """`tapetum hamer --json` and the server print the same numbers as to_dict()."""
    picture, box, _, _ = CASES[0]
    program = os.environ.get("TAPETUM_BINARY")
    if not program:
        pytest.skip("no program to compare with (set TAPETUM_BINARY)")
    path = shared(f"golden/hamer/{picture}")
    text = subprocess.run(
        [program, "hamer", path, "--bbox", ",".join(map(str, box)), "--weights", hand_weights,
         "--mano", shared("golden/hamer/MANO_RIGHT_synthetic.pkl"), "--json", "-q"],
        check=True, capture_output=True, env={**os.environ, "TAPETUM_CACHE": str(tmp_path)}).stdout
    theirs, ours = json.loads(text), hamer(path, box).to_dict()
    theirs.pop("file", None)
    assert list(theirs["timing_ms"]) == list(ours["timing_ms"])
    del theirs["timing_ms"], ours["timing_ms"]
    assert theirs == json.loads(json.dumps(ours))


# ---- shapes and kinds -------------------------------------------------------------------------


def test_what_a_hand_is(hamer, pixels):
    hand = hamer(pixels, BOXES[0])
    for name, shape in {"rotmats": (16, 3, 3), "betas": (10,), "cam": (3,), "cam_t_full": (3,),
                        "vertices": (778, 3), "joints": (21, 3), "keypoints_2d": (21, 2),
                        "rotmats_image": (16, 3, 3), "axis_angle": (16, 3)}.items():
        array = getattr(hand, name)
        assert array.shape == shape and array.dtype == np.float32 and not array.flags.writeable
    assert hand.faces.shape == (1538, 3) and hand.mano_available and hand.is_right
    assert hand.bbox == tuple(BOXES[0]) and hand.bbox_source == "given"
    assert hand.image_size == (160, 120) and hand.rescale_factor == 2
    assert hand.principal_point == (80, 60) and hand.focal_length == (3125, 3125)
    at = hand.joints + hand.cam_t_full
    projected = at[:, :2] / at[:, 2:] * hand.focal_length + hand.principal_point
    np.testing.assert_allclose(projected, hand.keypoints_2d, atol=1e-3)
    mine = hamer(pixels, BOXES[0], camera=(500, 600, 70, 50))
    assert mine.focal_length == (500, 600) and mine.principal_point == (70, 50)
    bare = hamer(pixels, BOXES[0], return_vertices=False)
    assert bare.vertices is None and bare.joints is not None and "vertices" not in bare.to_dict()


def test_without_mano(bare, pixels):
    hand = bare(pixels, BOXES[0])
    assert hand.vertices is None and hand.joints is None and hand.keypoints_2d is None
    assert not hand.mano_available and not bare.info.mano_available and bare.info.mano_path is None
    assert "joints" not in hand.to_dict() and hand.draw().size == (160, 120)
    assert set(bare.forward_crops(np.zeros((1, 3, 256, 192)))) == {
        "pred_cam", "pred_mano_params", "pred_cam_t", "focal_length"}
    with pytest.raises(tapetum.UnsupportedError, match="MANO"):
        hand.mesh()
    with pytest.raises(tapetum.ArgumentError, match="MANO"):
        hand.draw(drawing="skeleton")


def test_lists_of_boxes(hamer, pixels):
    hands = hamer(pixels, BOXES, is_right=[True, False])
    assert isinstance(hands, list) and len(hands) == 2
    assert [hand.is_right for hand in hands] == [True, False]
    assert same(hands[0], hamer(pixels, BOXES[0])) and same(hands[1], hamer(pixels, BOXES[1], False))
    assert [h.is_right for h in hamer(pixels, np.array(BOXES), is_right=False)] == [False, False]
    assert len(hamer(pixels, BOXES[:1])) == 1 and hamer(pixels, []) == []
    middle = hamer(pixels)
    assert middle.bbox_source == "center" and middle.bbox == (20, 0, 140, 120)


def test_every_way_in_is_the_same(hamer, pixels, tmp_path):
    path = tmp_path / "frame.png"
    Image.fromarray(pixels).save(path)
    wanted = hamer(pixels, BOXES[0])
    for image in (path, str(path), path.read_bytes(), Image.open(path)):
        assert same(hamer(image, BOXES[0]), wanted)
    assert same(hamer(pixels[:, :, ::-1], BOXES[0], bgr=True), wanted)
    crop = np.zeros((256, 192, 3), np.uint8)
    left, right = hamer.run_crop(crop, is_right=False), hamer.run_crop(crop)
    assert right.cam_t_full is None and right.bbox_source == "crop"
    assert np.array_equal(left.rotmats, right.rotmats)  # grey is its own mirror image


# ---- wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bbox, is_right, says", [
    ([1, 2, 3], True, "bbox"), ([1, 2, 3, 4, 5], True, "bbox"), ("box", True, "bbox"),
    ([[1, 2, 3, 4], [1, 2]], True, "bbox"), ([50, 50, 50, 90], True, "box 1"),
    ([50, 50, 40, 90], True, "box 1"), ([0, 0, float("nan"), 9], True, "box 1"),
    ([0, 0, float("inf"), 9], True, "box 1"), ([500, 500, 600, 600], True, "outside"),
    (BOXES, [True], "is_right: 1 of them for 2"), (BOXES, [True, 1], "is_right"),
    (None, [True], "is_right"), (BOXES[0], 1, "is_right"), (BOXES[0], None, "is_right"),
    ([[0, 0, 9, 9]] * 257, True, "257")])
def test_wrong_boxes(bare, pixels, bbox, is_right, says):
    with pytest.raises(ValueError, match=says):
        bare(pixels, bbox, is_right)


@pytest.mark.parametrize("options, says", [
    ({"rescale_factor": 0}, "rescale_factor"), ({"rescale_factor": "2"}, "rescale_factor"),
    ({"max_pixels": -1}, "max_pixels"), ({"max_pixels": 1.5}, "max_pixels"),
    ({"rescale_factor": float("nan")}, "rescale_factor"),
    ({"policy": "best"}, "policy"), ({"exif": None}, "exif"), ({"camera": (1, 2, 3)}, "camera"),
    ({"camera": (0, 0, 0, 0)}, "camera"), ({"camera": (-1, 1, 0, 0)}, "fx"),
    ({"camera": 5}, "camera")])
def test_wrong_options(bare, pixels, options, says):
    with pytest.raises(tapetum.ArgumentError, match=says):
        bare(pixels, BOXES[0], **options)


def test_wrong_models(hand_weights, weights, tmp_path):
    load = tapetum.HamerModel.from_pretrained
    for options, kind in (({"mano_path": tmp_path / "none.pkl"}, FileNotFoundError),
                          ({"precision": "f8"}, ValueError), ({"precision": 8}, ValueError),
                          ({"device": "tt"}, ValueError)):
        with pytest.raises(kind):
            load(hand_weights, **options)
    with pytest.raises(tapetum.TapetumError, match="hamer"):
        load(weights)
    with pytest.raises(tapetum.TapetumError):
        tapetum.SuperPoint.from_pretrained(hand_weights)


# ---- around it --------------------------------------------------------------------------------


def test_drawing_and_meshes(hamer, pixels, tmp_path):
    hands = hamer(pixels, BOXES, is_right=[True, False])
    pictures = [hands.draw().array, hands[0].draw(drawing="mesh").array,
                hands[0].draw(drawing="skeleton").array, hands[0].draw(drawing="box").array]
    for i, picture in enumerate(pictures):
        assert picture.shape == pixels.shape and (picture != pixels).any()
        assert all((picture != other).any() for other in pictures[:i])
    assert hands._repr_png_().startswith(b"\x89PNG") and hands[0]._repr_png_().startswith(b"\x89PNG")
    assert hands.side_view(200, 100).size == (200, 100)
    mesh = hands[1].mesh()
    assert mesh.vertices.shape == (778, 3) and mesh.faces.max() == 777
    np.testing.assert_allclose(mesh.vertices, hands[1].vertices + hands[1].cam_t_full)
    for name in ("hand.obj", "hand.ply", "hand.glb"):
        mesh.save(tmp_path / name)
    assert (tmp_path / "hand.obj").read_text().count("\nv ") >= 778
    magic, version, size = struct.unpack("<4sII", (tmp_path / "hand.glb").read_bytes()[:12])
    assert magic == b"glTF" and version == 2 and size == (tmp_path / "hand.glb").stat().st_size
    with pytest.raises(ValueError, match="stl"):
        mesh.save(tmp_path / "hand.stl")
    with pytest.raises(ValueError, match="drawing"):
        hands.draw(drawing="oil")
    for width in (0, -1, 2**32 + 64):
        with pytest.raises(ValueError, match="width"):
            hands.side_view(width, 64)
    with pytest.raises(ValueError, match="zero byte"):
        mesh.save("hand.glb\0.obj")
    assert hamer.run_crop(np.zeros((256, 192, 3), np.uint8))._repr_png_() is None


def test_a_licence_is_said_once(hand_weights):
    """In a process of its own: here, other tests have heard it."""
    script = ("import sys, tapetum\n"
              "for _ in range(2):\n"
              "    tapetum.HamerModel.from_pretrained(sys.argv[1], mano_path=sys.argv[2], cache='')")
    mano = shared("golden/hamer/MANO_RIGHT_synthetic.pkl")
    said = subprocess.run([sys.executable, "-c", script, hand_weights, mano], check=True, text=True,
                          capture_output=True).stderr.splitlines()
    assert [line.split(":")[0] for line in said] == ["weights", "MANO"]
    assert all("non-commercial" in line for line in said)


def test_whatever_is_asked_first(hamer, pixels, tmp_path):
    """Fields are read when one is asked for: a mesh may be the first thing that anybody wants."""
    wanted = hamer(pixels, BOXES).draw(drawing="mesh").array
    for first in (lambda hands: hands[0].mesh(), lambda hands: hands.save_mesh(tmp_path / "first.glb"),
                  lambda hands: hands.side_view(),
                  lambda hands: np.array_equal(hands.draw().array, wanted),
                  lambda hands: hands[1]._repr_png_(), lambda hands: hands[0].to_dict()["vertices"]):
        assert first(hamer(pixels, BOXES)) is not False


def test_hands_that_were_changed(hamer, pixels):
    """What C takes for granted is made so, or refused."""
    hand = hamer(pixels, BOXES[0])
    wanted = hand.draw().array
    doubles = dataclasses.replace(
        hand, cam_t_full=hand.cam_t_full.astype(np.float64), rotmats=np.asfortranarray(hand.rotmats),
        faces=hand.faces.astype(np.int64))
    assert np.array_equal(doubles.draw().array, wanted)
    larger = dataclasses.replace(hand, vertices=hand.vertices * 2)
    assert not np.array_equal(larger.draw().array, wanted)
    for field, value in (("joints", np.zeros((20, 3))), ("cam", np.zeros(4)),
                         ("vertices", np.zeros((9, 3))), ("faces", np.zeros((1, 3), np.uint32))):
        with pytest.raises(ValueError, match=field):
            dataclasses.replace(hand, **{field: value}).draw()


def test_any_signal_waits_for_c(bare, pixels):
    """Another signal's exception, again and again, still finds every session in one call alone."""
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.003, 0.0005)
            try:
                with pytest.raises(Alarm):
                    try:
                        bare(pixels, [BOXES[0]] * 256)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                pass  # the last one, before the timer was stopped
            end = time.monotonic() + 10  # an alarm in the wrong place may have driven us out early
            while any(thread.name == "tapetum" for thread in threading.enumerate()):
                assert time.monotonic() < end
                time.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(bare(pixels, BOXES)) == 2


def test_pickling(hamer, pixels):
    hands = hamer(pixels, BOXES)
    again = pickle.loads(pickle.dumps(hands))
    assert all(same(a, b) for a, b in zip(hands, again))
    assert np.array_equal(again.draw(pixels).array, hands.draw().array)
    with pytest.raises(tapetum.ArgumentError, match="picture to draw on"):
        again.draw()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(hamer)


def test_eight_threads_share_a_model(bare, pixels):
    wanted = bare(pixels, BOXES[0]).rotmats
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: bare(pixels, BOXES[0]).rotmats, range(64)))
    assert all(np.array_equal(answer, wanted) for answer in answers)


def test_ctrl_c_between_hands(bare, pixels):
    """A signal that comes while hands are found ends the call before the next one."""
    many = [BOXES[0]] * 256
    bare(pixels, many)
    begun = threading.Event()

    def interrupt():
        begun.wait()
        threading.Event().wait(0.02)
        os.kill(os.getpid(), 2)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        for _ in range(1000):
            bare(pixels, many)
    helper.join()
    assert len(bare(pixels, BOXES)) == 2


def test_a_thousand_calls_take_no_memory(hamer, pixels, resident):
    def calls(n):
        for _ in range(n):
            hamer(pixels, BOXES[0])

    calls(100)
    before = resident()
    calls(1000)
    assert resident() - before < 4 << 20


def test_the_example_of_the_card(hand_weights, tmp_path, monkeypatch, pixels):
    """Weights in the Hugging Face cache, packed ones in ours."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TAPETUM_MANO", str(shared("golden/hamer/MANO_RIGHT_synthetic.pkl")))
    with pytest.raises(FileNotFoundError, match="changh95/hamer-weights"):
        tapetum.HamerModel.from_pretrained(device_id=0)
    folder = tmp_path / "hub" / "models--changh95--hamer-weights"
    (folder / "snapshots" / "0123").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123")
    (folder / "snapshots" / "0123" / "hamer.ckpt").symlink_to(hand_weights)
    for cached in (False, True):
        with tapetum.HamerModel.from_pretrained(device_id=0, precision="f16",
                                                cache=str(tmp_path / "packed")) as model:
            model.warmup(frame_size=(160, 120))
            hand = model.open_device()(pixels, bbox=BOXES[0], is_right=True)
            assert hand.rotmats.shape == (16, 3, 3) and hand.cam_t_full.shape == (3,)
            assert model.info.cached is cached and model.info.precision == "f16"
            assert model.info.kind == "hamer" and model.info.gate > 0.9999
    assert _library.library.tap_version().decode() == tapetum.__version__
