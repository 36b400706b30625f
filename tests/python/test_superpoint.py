"""SuperPoint from Python: the reference's points, every way in, every mistake."""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import pickle
import signal
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

SMALL = {"size": (160, 120)}


def same(a, b):
    return (np.array_equal(a.keypoints, b.keypoints) and np.array_equal(a.scores, b.scores) and
            np.array_equal(a.descriptors, b.descriptors))


# ---- right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["china.jpg", "coffee.png", "rocket.jpg"])
def test_the_references_points(real, name):
    folder = "golden/superpoint/real/" + name.replace(".", "_")
    wanted = np.load(shared(folder + ".r4.kp.npy"))
    descriptors = np.load(shared(folder + ".desc.npy")).astype(np.float32)
    points = real(shared(f"golden/superpoint/inputs/{name}"))
    network = points.keypoints / points.scale
    at = {(int(x), int(y)): i for i, (x, y) in enumerate(np.rint(network))}
    found = [(k, at[int(x), int(y)]) for k, (x, y) in enumerate(wanted[:, :2])
             if (int(x), int(y)) in at]
    assert len(points) == len(wanted) and len(found) >= 0.995 * len(wanted)
    theirs, ours = np.array(found).T
    np.testing.assert_allclose(points.scores[ours], wanted[theirs, 2], rtol=0, atol=1e-4)
    have = theirs < len(descriptors)
    # float16 in the file: half a step at 1 is 5e-4
    np.testing.assert_allclose(points.descriptors[ours[have]], descriptors[theirs[have]], rtol=0,
                               atol=6e-4)


def test_a_known_homography(real):
    """A photo and the same one moved by a whole number of cells: matches say so."""
    photo = np.asarray(Image.open(shared("golden/superpoint/inputs/rocket.jpg")).convert("RGB"))
    a, b = photo[:400, :600], photo[24:424, 40:]
    matches = real.match(a[:, :600], b[:, :600], size="native")
    left, right = matches.points
    good = np.abs(left - right - (40, 24)).max(1) <= 2
    assert len(matches) > 200 and good.mean() > 0.8
    assert (np.diff(matches.indices[:, 0]) > 0).all()
    strict = real.match(matches.a, matches.b, min_similarity=0.9)
    assert 0 < len(strict) < len(matches) and strict.similarity.min() >= 0.9
    assert len(real.match(matches.a, matches.b, ratio=0.5)) < len(matches)


# ---- shapes and kinds -------------------------------------------------------------------------


def test_what_a_result_is(model, pixels):
    points = model(pixels, max_keypoints=50, **SMALL)
    assert len(points) == 50 and points.keypoints.shape == (50, 2)
    assert points.descriptors.shape == (50, 256) and points.scores.shape == (50,)
    for array in (points.keypoints, points.scores, points.descriptors):
        assert array.dtype == np.float32 and not array.flags.writeable
    assert (np.diff(points.scores) <= 0).all()
    assert points.original_size == (160, 120) and points.image_size == (160, 120)
    assert points.scale == (1, 1)
    assert set(points.timing_ms) == {"preprocess", "device_forward", "postprocess", "total"}
    assert points.timing_ms["total"] > 0
    assert model(pixels, return_descriptors=False, **SMALL).descriptors is None
    assert model(pixels, size="native").image_size == (160, 120)


def test_no_points_at_all(model):
    points = model(np.zeros((40, 40), np.uint8), keypoint_threshold=1.0)
    assert points.keypoints.shape == (0, 2) and points.descriptors.shape == (0, 256)
    assert len(model.match(points, points)) == 0
    assert points.draw().size == (40, 40)


def test_results_outlive_the_model(weights, pixels):
    model = tapetum.SuperPoint.from_pretrained(weights, threads=1, gate=False)
    points = model(pixels, **SMALL)
    before = points.descriptors.copy()
    descriptors = points.descriptors
    model.close()
    model.close()
    del points, model
    assert np.array_equal(descriptors, before)


def test_every_way_in_is_the_same(model, pixels, tmp_path):
    path = tmp_path / "é中 .png"
    Image.fromarray(pixels).save(path)
    encoded = path.read_bytes()
    wanted = model(pixels, **SMALL)
    wide = np.zeros((120, 170, 4), np.uint8)
    wide[:, 5:165, :3] = pixels
    for image in (path, str(path), os.fsencode(path).decode("utf-8", "surrogateescape"), encoded,
                  bytearray(encoded), memoryview(encoded), Image.fromarray(pixels),
                  wide[:, 5:165], np.asfortranarray(pixels), pixels[::-1].copy()[::-1],
                  tapetum.Picture.open(pixels), tapetum.Picture.open(path)):
        assert same(model(image, **SMALL), wanted), type(image)
    assert same(model(pixels[:, :, ::-1], bgr=True, **SMALL), wanted)
    assert same(model(pixels[:, :, 0], **SMALL), wanted)  # red is what the network reads
    assert same(model(pixels[:, :, :1], **SMALL), wanted)


class Tensor:
    """As torch's: all that is asked of one."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.array


def test_tensors(model, pixels):
    wanted = model(pixels, **SMALL)
    for array in (pixels, pixels.transpose(2, 0, 1), (pixels / 255).astype(np.float32),
                  (pixels / 255).astype(np.float32).transpose(2, 0, 1)):
        assert same(model(Tensor(array), **SMALL), wanted)
    with pytest.raises(tapetum.ArgumentError, match="0..1"):
        model(Tensor(pixels.astype(np.float32)))


# ---- wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("image, says", [
    (None, "NoneType"), (3, "int"), ([[1]], "list"),
    (np.zeros((8, 8), np.float32), "float32"), (np.zeros((8, 8), np.int64), "int64"),
    (np.zeros(8, np.uint8), r"\(8,\)"), (np.zeros((8, 8, 2), np.uint8), r"\(8, 8, 2\)"),
    (np.zeros((3, 8, 9), np.uint8), r"\(3, 8, 9\)"), (np.zeros((0, 8), np.uint8), "0"),
    ("a\0b", "zero byte")])
def test_wrong_pictures(model, image, says):
    with pytest.raises(ValueError, match=says) as caught:
        model(image)
    assert caught.value.status == "TAP_ERR_ARGUMENT"


@pytest.mark.parametrize("options, says", [
    ({"max_keypoints": -2}, "max_keypoints"), ({"max_keypoints": 1.5}, "max_keypoints"),
    ({"max_keypoints": True}, "max_keypoints"), ({"max_keypoints": 2**40}, "max_keypoints"),
    ({"nms_radius": 33}, "nms_radius"), ({"nms_radius": -1}, "nms_radius"),
    ({"keypoint_threshold": 2}, "keypoint_threshold"),
    ({"keypoint_threshold": float("nan")}, "keypoint_threshold"),
    ({"size": (641, 480)}, "width"), ({"size": 640}, "size"), ({"size": "huge"}, "native"),
    ({"size": (1, 2, 3)}, "size"), ({"nms": "x"}, "nms"), ({"nms": []}, "nms"),
    ({"exif": "turn"}, "exif"), ({"gray": None}, "gray"), ({"coordinates": 1}, "coordinates"),
    ({"max_pixels": 0}, "max_pixels")])
def test_wrong_options(model, pixels, options, says):
    with pytest.raises(tapetum.ArgumentError, match=says):
        model(pixels, **options)


def test_wrong_files(model, weights, tmp_path):
    with pytest.raises(FileNotFoundError, match="none.png") as caught:
        model(tmp_path / "none.png")
    assert isinstance(caught.value, tapetum.TapetumError)
    with pytest.raises(tapetum.FormatError):
        model(b"not a picture")
    with pytest.raises(tapetum.FormatError):
        model(b"")
    with pytest.raises(tapetum.LimitError, match="pixels"):
        model(np.asarray(bytearray(_png(64, 64))).tobytes(), max_pixels=100)
    with pytest.raises(FileNotFoundError):
        tapetum.SuperPoint.from_pretrained(tmp_path / "none.safetensors")
    (tmp_path / "page.safetensors").write_text("<!DOCTYPE html><html>")
    with pytest.raises(ValueError, match="page.safetensors"):
        tapetum.SuperPoint.from_pretrained(tmp_path / "page.safetensors")
    for options in ({"device": "cuda"}, {"threads": 0}, {"threads": 257}, {"threads": "2"},
                    {"device_id": -1}):
        with pytest.raises(tapetum.ArgumentError, match=next(iter(options))):
            tapetum.SuperPoint.from_pretrained(weights, **options)


def _png(width, height):
    return tapetum.Picture.open(np.zeros((height, width, 3), np.uint8)).encode()


def test_the_hubs_cache(weights, tmp_path, monkeypatch, pixels):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="magic-leap-community/superpoint"):
        tapetum.SuperPoint.from_pretrained()
    commit = "734450e9ffe229074f5998494ddc615475cdb20a"
    folder = tmp_path / "models--magic-leap-community--superpoint" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "model.safetensors").symlink_to(weights)
    (folder / "config.json").write_text('{"architectures": ["SuperPointForKeypointDetection"]}')
    with tapetum.SuperPoint.from_pretrained() as model:
        assert len(model(pixels, **SMALL)) > 0
        assert model.info.path.startswith(str(tmp_path))


# ---- around it --------------------------------------------------------------------------------


def test_info(weights):
    with tapetum.SuperPoint.from_pretrained(weights, threads=2) as model:
        info = model.info
        assert info.path in repr(model) and info.licence
    assert info.kind == "superpoint" and info.backend == "cpu" and info.threads == 2
    assert info.precision == "f32" and info.gate > 0.9999 and info.n_parameters == 1300865
    assert info.dispatch is None and info.num_command_queues is None and info.grid is None
    with pytest.raises(tapetum.ArgumentError, match="closed"):
        model(b"")
    assert "closed" in repr(model)


def test_pictures_show_themselves(model, pixels, tmp_path):
    points = model(pixels, **SMALL)
    drawn = points.draw()
    assert drawn.size == (160, 120) and drawn.array.shape == (120, 160, 3)
    assert (drawn.array != pixels).any()
    assert points._repr_png_().startswith(b"\x89PNG")
    drawn.save(tmp_path / "drawn.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "drawn.png")), drawn.array)
    assert drawn.encode("jpeg").startswith(b"\xff\xd8")
    with pytest.raises(ValueError, match=r"\.gif"):
        drawn.save(tmp_path / "drawn.gif")
    with pytest.raises(OSError):
        drawn.save(tmp_path / "no folder" / "drawn.png")
    with pytest.raises(ValueError, match="read-only"):
        drawn.array[0, 0] = 0
    matches = model.match(points, pixels[:, ::-1].copy(), **SMALL)
    assert matches.draw().size == (320, 120)
    assert matches._repr_png_().startswith(b"\x89PNG")


def test_pickling(model, pixels):
    points = model(pixels, **SMALL)
    again = pickle.loads(pickle.dumps(points))
    assert same(points, again) and again.timing_ms == points.timing_ms
    with pytest.raises(tapetum.ArgumentError, match="picture to draw on"):
        again.draw()
    assert np.array_equal(again.draw(pixels).array, points.draw().array)
    for what in (model, points.draw()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(what)


def test_eight_threads_share_a_model(model, pixels):
    pictures = [np.roll(pixels, 8 * i, 1) for i in range(8)]
    wanted = [model(picture, **SMALL) for picture in pictures]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            answers = list(pool.map(lambda picture: model(picture, **SMALL), pictures))
            assert all(same(a, b) for a, b in zip(answers, wanted))


def test_the_gil_is_let_go(model, pixels):
    """While one call runs, Python counts."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.0001)

    counter = threading.Thread(target=count)
    counter.start()
    before = counted[0]
    model(pixels, size=(1280, 960))
    during = counted[0] - before
    stop.set()
    counter.join()
    assert during > 5


def _in_a_child(model, pixels, sender):
    sender.send_bytes(model(pixels, **SMALL).descriptors.tobytes())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_uses_the_model(model, pixels):
    wanted = model(pixels, **SMALL).descriptors.tobytes()
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_in_a_child, args=(model, pixels, sender))
        child.start()
        assert receiver.poll(60) and receiver.recv_bytes() == wanted
        child.join(60)
        assert child.exitcode == 0
    assert model(pixels, **SMALL).descriptors.tobytes() == wanted


def test_a_thousand_calls_take_no_memory(model, pixels, resident):
    def calls(n):
        for _ in range(n):
            model(pixels, size=(80, 64))

    calls(100)
    before = resident()
    calls(1000)
    assert resident() - before < 4 << 20


def test_ctrl_c(weights, pixels):
    """It is heard after the call that runs, and the model goes on."""
    script = f"""
import sys, numpy, tapetum
model = tapetum.SuperPoint.from_pretrained({str(weights)!r}, gate=False)
picture = numpy.zeros((960, 1280), numpy.uint8)
print("ready", flush=True)
try:
    while True:
        model(picture, size=(1280, 960))
except KeyboardInterrupt:
    print(len(model(picture, keypoint_threshold=1.0)), "after", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "0 after\n" and child.returncode == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_load_can_be_stopped(weights, kind):
    """What a progress callback raises comes out of from_pretrained."""
    told = []

    def progress(what, share):
        told.append((what, share))
        raise kind

    with pytest.raises(kind):
        tapetum.SuperPoint.from_pretrained(weights, progress=progress)
    assert len(told) == 1 and told[0][0] == "packing" and 0 < told[0][1] <= 1


def test_a_missing_library_is_explained():
    environment = {**os.environ, "TAPETUM_LIBRARY": "/nowhere/libtapetum.so"}
    result = subprocess.run([sys.executable, "-c", "import tapetum"], env=environment, text=True,
                            capture_output=True)
    assert result.returncode == 1 and "TAPETUM_LIBRARY" in result.stderr


def test_rows_on_top_of_each_other(model):
    """A broadcast array's rows are one row: C must not take them for many."""
    def copied(array):
        picture = tapetum.Picture.open(array).array  # RGB, whatever it was
        return picture if array.ndim == 3 else picture[:, :, 0]

    row = np.arange(160, dtype=np.uint8)
    for shape, array in (((120, 160), row), ((120, 160, 3), np.repeat(row[:, None], 3, 1))):
        wide = np.broadcast_to(array, shape)
        assert np.array_equal(copied(wide), wide)
        memory = np.arange(10**6, dtype=np.uint8)
        overlapping = np.lib.stride_tricks.as_strided(memory, shape, (1, *wide.strides[1:]))
        assert np.array_equal(copied(overlapping), overlapping)
    backwards = np.arange(120 * 160, dtype=np.uint8).reshape(120, 160)[::-1]
    assert np.array_equal(copied(backwards), backwards) and np.array_equal(copied(row[None]), row[None])


def test_points_that_were_changed(model, pixels):
    """`dataclasses.replace` is how one filters: what C takes for granted is made so, or refused."""
    points = model(pixels, **SMALL)
    half = dataclasses.replace(points, keypoints=points.keypoints[::2], scores=points.scores[::2],
                               descriptors=points.descriptors[::2])
    dense = dataclasses.replace(half, keypoints=half.keypoints.copy(),
                                scores=half.scores.astype(np.float64))
    assert np.array_equal(half.draw().array, dense.draw().array)
    with pytest.raises(ValueError, match="keypoints"):
        dataclasses.replace(points, scores=np.ones(5 * 10**6, np.float32)).draw()


def test_it_is_drawn_as_it_was_read(model, pixels, tmp_path):
    path = tmp_path / "turned.jpg"
    picture = Image.fromarray(pixels)
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(path, exif=exif)
    turned = model(path, exif="apply", size="native")
    assert turned.original_size == (120, 160) == turned.draw().size
    points = model(pixels[:, :, ::-1], bgr=True, **SMALL)
    assert np.array_equal(points.draw().array, model(pixels, **SMALL).draw().array)
    assert np.array_equal(points.draw(pixels).array, points.draw().array)


def test_what_was_let_pass(model, pixels, tmp_path):
    points = model(pixels, **SMALL)
    for call, says in (
            (lambda: model.match(points, points, min_similarty=.9), "min_similarty"),
            (lambda: model.match(points, points, ratio="no"), "ratio"),
            (lambda: model(pixels, keypoint_threshold="0.1"), "keypoint_threshold"),
            (lambda: model.batch("rocket.jpg"), "images"),
            (lambda: points.draw().save("a.png\0.jpg"), "zero byte"),
            (lambda: tapetum.SuperPoint.from_pretrained(tmp_path / "a\0b"), "zero byte"),
            (lambda: tapetum.Picture.open(pixels, bgr=True).encode("gif"), "encoding")):
        with pytest.raises(tapetum.ArgumentError, match=says):
            call()
    for call in (lambda: tapetum.Picture.open(tmp_path / "none.png"), lambda: points.draw("none.png"),
                 lambda: model("-")):
        with pytest.raises(tapetum.NotFoundError):
            call()
    encoded = points.draw(pixels).encode()
    spaced = memoryview(bytes(b for byte in encoded for b in (byte, 0)))[::2]
    assert np.array_equal(tapetum.Picture.open(spaced).array, points.draw(pixels).array)


def test_the_interpreters_end(weights):
    """Exit handlers, and threads that are never joined, may use a model and a picture to the last."""
    script = f"""
import atexit, threading, time
def last():
    time.sleep(0.2)
    print(len(model(picture, keypoint_threshold=1.0)), kept.sum() >= 0, flush=True)
atexit.register(last)
import numpy as np, tapetum
model = tapetum.SuperPoint.from_pretrained({str(weights)!r}, threads=1)
picture = np.zeros((48, 64), np.uint8)
kept = tapetum.Picture.open(picture).array
def forever():
    while True:
        model(picture, size=(64, 48))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
"""
    for _ in range(3):
        child = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=60)
        assert child.returncode == 0 and child.stdout == "0 True\n", child.stderr


def test_closing_while_a_call_begins(weights, pixels, monkeypatch):
    """In the moment before the session is made, another thread closes the model."""
    model = tapetum.SuperPoint.from_pretrained(weights, threads=1)
    real = _library.call

    def call(name, *arguments):
        if name == "tap_session_create":
            model.close()
        real(name, *arguments)

    monkeypatch.setattr(_library, "call", call)
    assert len(model(pixels, **SMALL)) > 0
    with pytest.raises(tapetum.ArgumentError, match="closed"):
        model(pixels)
