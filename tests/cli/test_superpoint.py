"""tapetum superpoint: what is found, and what every option does to it."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

import reference
from conftest import SMALL, scene, without_times
from test_synth import read_safetensors


def network_points(answer):
    """The points in network pixels."""
    scale = answer["scale"]
    return np.array(answer["keypoints"]).reshape(-1, 2) / [scale["x"], scale["y"]]


def shared_points(points, others):
    """How many of the first are among the others, to a tenth of a pixel."""
    known = {(round(x * 10), round(y * 10)) for x, y in others}
    return sum((round(x * 10), round(y * 10)) in known for x, y in points)


# ---- the answer --------------------------------------------------------------------------------

def test_fields(program, weights, photo):
    answer = program.points(photo, "-w", weights, "-k", "50")
    assert list(answer)[0] == "file" and answer["file"] == str(photo)
    assert set(answer) >= {"num_keypoints", "keypoints", "scores", "original_size", "image_size",
                           "scale", "params", "timing_ms", "descriptors"}
    assert answer["original_size"] == {"height": 240, "width": 320}
    assert answer["image_size"] == {"height": 480, "width": 640}
    assert answer["scale"] == {"x": 0.5, "y": 0.5}
    assert {name: answer["params"][name] for name in (
        "max_keypoints", "keypoint_threshold", "nms_radius", "border_removal_distance")} == {
            "max_keypoints": 50, "keypoint_threshold": 0.005, "nms_radius": 4,
            "border_removal_distance": 4}
    times = answer["timing_ms"]
    assert set(times) == {"preprocess", "device_forward", "postprocess", "total"}
    parts = times["preprocess"] + times["device_forward"] + times["postprocess"]
    assert 0 < parts <= times["total"] + 0.01
    assert answer["num_keypoints"] == len(answer["keypoints"]) == len(answer["scores"]) == 50
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
    assert all(4 <= x < 636 and 4 <= y < 476 for x, y in network_points(answer))
    block = answer["descriptors"]
    assert {name: block[name] for name in ("format", "key", "dtype", "shape")} == {
        "format": "npz", "key": "descriptors", "dtype": "float16", "shape": [50, 256]}
    with np.load(io.BytesIO(base64.b64decode(block["data"], validate=True))) as arrays:
        assert arrays.files == ["descriptors"]
        found = arrays["descriptors"]
    assert found.dtype == np.float16 and found.shape == (50, 256)
    assert np.allclose(np.linalg.norm(found.astype(float), axis=1), 1, atol=2e-3)


def test_npz_and_json_are_the_same_numbers(program, weights, photo, tmp_path):
    out = tmp_path / "points.npz"
    answer = program.points(photo, "-w", weights, *SMALL, "--npz", out)
    with np.load(out) as arrays:
        assert set(arrays.files) == {"keypoints", "scores", "descriptors"}
        points, scores, descriptors = (arrays[name] for name in ("keypoints", "scores",
                                                                 "descriptors"))
    n = answer["num_keypoints"]
    assert n > 100
    assert (points.dtype, scores.dtype, descriptors.dtype) == (np.float32,) * 3
    assert (points.shape, scores.shape, descriptors.shape) == ((n, 2), (n,), (n, 256))
    assert np.array_equal(np.float32(answer["keypoints"]), points)
    assert np.array_equal(np.float32(answer["scores"]), scores)
    half = np.load(io.BytesIO(base64.b64decode(answer["descriptors"]["data"])))["descriptors"]
    assert np.array_equal(half, descriptors.astype(np.float16))
    assert np.allclose(np.linalg.norm(descriptors.astype(float), axis=1), 1, atol=1e-6)


def test_no_descriptors(program, weights, photo, tmp_path):
    out = tmp_path / "points.npz"
    answer = program.points(photo, "-w", weights, *SMALL, "--no-descriptors", "--npz", out)
    assert "descriptors" not in answer
    with np.load(out) as arrays:
        assert set(arrays.files) == {"keypoints", "scores"}
    full = program.points(photo, "-w", weights, *SMALL)
    assert answer["keypoints"] == full["keypoints"] and answer["scores"] == full["scores"]


def test_nothing_found(program, weights, photo, tmp_path):
    out = tmp_path / "none.npz"
    answer = program.points(photo, "-w", weights, *SMALL, "--threshold", "1", "--npz", out)
    assert (answer["num_keypoints"], answer["keypoints"], answer["scores"]) == (0, [], [])
    with np.load(out) as arrays:
        assert [arrays[name].shape for name in ("keypoints", "scores", "descriptors")] == [
            (0, 2), (0,), (0, 256)]


def test_text(program, weights, photo):
    result = program.run("superpoint", photo, "-w", weights, *SMALL)
    answer = program.points(photo, "-w", weights, *SMALL)
    (x, y), score = answer["keypoints"][0], answer["scores"][0]
    assert result.stdout.startswith(f"{photo}: {answer['num_keypoints']} points in 320 x 240, best "
                                    f"{score:.3f} at ({x:.1f}, {y:.1f}); ")
    # Which weights these are, and what their licence asks, is said beside the results.
    assert result.stderr.startswith(f"weights: {weights} (safetensors).")
    assert "non-commercial" in result.stderr and result.stderr.count("\n") == 1


# ---- against NumPy -----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def computed(weights, tmp_path_factory):
    """A picture of 96x72, and its score map and descriptors in double precision."""
    path = tmp_path_factory.mktemp("computed") / "picture.png"
    picture = scene(96, 72, 5)
    picture.save(path)
    red = np.asarray(picture)[:, :, 0] / 255
    return path, *reference.forward(read_safetensors(weights), red)


@pytest.mark.parametrize("radius, threshold, nms", [(4, 0.005, "single"), (2, 0.02, "single"),
                                                    (0, 0.01, "single"), (3, 0.005, "iterative"),
                                                    (32, 0.0, "single")])
def test_points_are_numpys(program, weights, computed, radius, threshold, nms):
    path, scores, _ = computed
    answer = program.points(path, "-w", weights, "--size", "native", "--nms", nms,
                            "--max-keypoints", "-1", "--threshold", str(threshold),
                            "--nms-radius", str(radius))
    kept = (reference.iterative if nms == "iterative" else reference.single_pass)(scores, radius)
    points, values = reference.keypoints(scores, kept, threshold)
    assert answer["params"]["nms"] == nms and answer["params"]["nms_radius"] == radius
    assert len(points) > (20 if radius < 32 else 0)
    shared = shared_points(answer["keypoints"], points)
    assert shared >= 0.99 * max(len(points), answer["num_keypoints"]), "but for near ties"
    n = min(len(values), answer["num_keypoints"])
    assert np.allclose(answer["scores"][:n], values[:n], atol=1e-4)


def test_descriptors_are_numpys(program, weights, computed, tmp_path):
    path, _, features = computed
    program.points(path, "-w", weights, "--size", "native", "--npz", tmp_path / "points.npz")
    with np.load(tmp_path / "points.npz") as arrays:
        expected = reference.sample(features, arrays["keypoints"].astype(float))
        assert len(expected) > 20
        assert np.abs(arrays["descriptors"] - expected).max() < 1e-4


# ---- the input ---------------------------------------------------------------------------------

def test_default_size_and_sizes(program, weights, photo):
    for words, size in (((), (640, 480)), (("--size", "160x120"), (160, 120)),
                        (("-s", "200x8"), (200, 8)), (("--size", "native"), (320, 240))):
        answer = program.points(photo, "-w", weights, "-k", "5", *words)
        assert answer["image_size"] == {"width": size[0], "height": size[1]}
        assert answer["scale"] == {"x": 320 / size[0], "y": 240 / size[1]}
        assert answer["params"]["max_keypoints"] == 5


def test_native_is_cut_down_to_eights(program, weights, tmp_path):
    scene(173, 129, 6).save(tmp_path / "odd.png")
    answer = program.points(tmp_path / "odd.png", "-w", weights, "--size", "native")
    assert answer["image_size"] == {"width": 168, "height": 128}
    assert answer["original_size"] == {"width": 173, "height": 129}


def test_the_resize_is_pillows(program, weights, tmp_path):
    picture = scene(301, 215, 8)
    picture.save(tmp_path / "big.png")
    picture.getchannel(0).resize((160, 120), Image.BILINEAR).save(tmp_path / "small.png")
    resized = program.points(tmp_path / "big.png", "-w", weights, *SMALL)
    native = program.points(tmp_path / "small.png", "-w", weights, "--size", "native")
    assert resized["scores"] == native["scores"] and resized["descriptors"] == native["descriptors"]
    assert np.allclose(network_points(resized), network_points(native), atol=1e-3)


def test_gray(program, weights, photo, tmp_path):
    picture = Image.open(photo)
    answers = {}
    for how, gray in (("first", picture.getchannel(0)), ("luma", picture.convert("L"))):
        gray.save(tmp_path / f"{how}.png")
        answers[how] = program.points(photo, "-w", weights, *SMALL, "--gray", how)
        expected = program.points(tmp_path / f"{how}.png", "-w", weights, *SMALL)
        assert answers[how]["scores"] == expected["scores"]
        assert answers[how]["keypoints"] == expected["keypoints"]
        assert answers[how]["params"]["gray"] == how
    assert answers["first"]["scores"] != answers["luma"]["scores"]
    assert program.points(photo, "-w", weights, *SMALL)["scores"] == answers["first"]["scores"]


def test_exif(program, weights, tmp_path):
    picture = scene(176, 120, 9)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise
    picture.save(tmp_path / "plain.jpg", quality=95)
    picture.save(tmp_path / "turned.jpg", quality=95, exif=exif.tobytes())
    with Image.open(tmp_path / "turned.jpg") as stored:
        stored.transpose(Image.ROTATE_270).save(tmp_path / "upright.png")

    def run(name, *words):
        return program.points(tmp_path / name, "-w", weights, "-s", "native", *words)

    plain, upright = run("plain.jpg"), run("upright.png")
    ignored, applied = run("turned.jpg"), run("turned.jpg", "--exif", "apply")
    assert ignored == run("turned.jpg", "--exif", "ignore") | {"timing_ms": ignored["timing_ms"]}
    assert (ignored["exif_orientation"], ignored["exif_applied"]) == (6, False)
    assert ignored["keypoints"] == plain["keypoints"] and ignored["scores"] == plain["scores"]
    assert (applied["exif_orientation"], applied["exif_applied"]) == (6, True)
    assert applied["original_size"] == {"width": 120, "height": 176}
    assert applied["keypoints"] == upright["keypoints"] and applied["scores"] == upright["scores"]
    assert (plain["exif_orientation"], plain["exif_applied"]) == (1, False)


def test_coordinates(program, weights, photo):
    ratio = program.points(photo, "-w", weights, *SMALL, "--coordinates", "ratio")
    centres = program.points(photo, "-w", weights, *SMALL, "--coordinates", "centres")
    assert without_times(ratio) == without_times(program.points(photo, "-w", weights, *SMALL))
    cells = np.array(ratio["keypoints"]) / 2  # 320x240 from 160x120
    assert np.array_equal(cells, np.round(cells)), "whole network pixels"
    assert np.allclose(centres["keypoints"], (cells + 0.5) * 2 - 0.5, atol=1e-4)
    assert ratio["scores"] == centres["scores"]
    assert ratio["descriptors"] == centres["descriptors"]


def test_max_pixels(program, weights, photo):
    assert program.points(photo, "-w", weights, *SMALL, "--max-pixels", str(320 * 240))
    line = program.complaint("superpoint", photo, "-w", weights, "--max-pixels",
                             str(320 * 240 - 1), status=1)
    assert "320 x 240" in line and str(photo) in line


# ---- which points ------------------------------------------------------------------------------

def test_max_keypoints_cuts_the_list(program, weights, photo):
    everything = program.points(photo, "-w", weights, *SMALL, "-k", "-1")
    some = program.points(photo, "-w", weights, *SMALL, "--max-keypoints", "17")
    none = program.points(photo, "-w", weights, *SMALL, "-k", "0")
    assert some["keypoints"] == everything["keypoints"][:17]
    assert some["scores"] == everything["scores"][:17]
    assert none["num_keypoints"] == 0 and everything["num_keypoints"] > 17


def test_threshold_and_radius(program, weights, photo):
    everything = program.points(photo, "-w", weights, *SMALL, "-k", "-1", "--threshold", "0")
    limit = everything["scores"][len(everything["scores"]) // 2]
    half = program.points(photo, "-w", weights, *SMALL, "-k", "-1", "--threshold", repr(limit))
    assert half["scores"] == [s for s in everything["scores"] if s > limit]
    counts = []
    for radius in (0, 1, 4, 9, 32):
        answer = program.points(photo, "-w", weights, *SMALL, "-k", "-1", "--nms-radius",
                                str(radius))
        points = network_points(answer)
        if radius > 0:
            apart = np.abs(points[:, None] - points[None]).max(2) + 1e9 * np.eye(len(points))
            assert apart.min() > radius + 0.9
        counts.append(len(points))
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[2] > counts[4] > 0


def test_iterative_keeps_more(program, weights, photo):
    single = program.points(photo, "-w", weights, *SMALL, "-k", "-1")
    more = program.points(photo, "-w", weights, *SMALL, "-k", "-1", "--nms", "iterative")
    assert {*map(tuple, single["keypoints"])} < {*map(tuple, more["keypoints"])}


# ---- the same numbers --------------------------------------------------------------------------

def test_threads_and_runs_change_no_bit(program, weights, photo, tmp_path):
    files, answers = [], []
    for run, threads in enumerate(("1", "2", "3", "3")):
        path = tmp_path / f"{run}.npz"
        answer = program.points(photo, "-w", weights, "-t", threads, "--npz", path)
        assert answer["serving_path"]["threads"] == int(threads)
        answers.append(without_times(answer))
        files.append(path.read_bytes())
    assert answers[0]["num_keypoints"] > 500
    assert all(answer == answers[0] for answer in answers)
    assert all(file == files[0] for file in files), "the archive has no time stamp either"


def test_plain_c_agrees(program, weights, photo):
    best = program.points(photo, "-w", weights, *SMALL)
    for plain in (program.points(photo, "-w", weights, *SMALL, "--isa", "scalar"),
                  program.points(photo, "-w", weights, *SMALL,
                                 environment={"TAPETUM_CPU": "scalar"})):
        assert plain["serving_path"]["isa"] == "scalar"
        shared = shared_points(plain["keypoints"], best["keypoints"])
        assert shared >= 0.99 * best["num_keypoints"], "but for near ties"


# ---- reference data ----------------------------------------------------------------------------

def test_golden_points_with_synthetic_weights(program, weights, golden, tmp_path):
    picture = Image.fromarray(np.load(golden / "photo_640x480_rgb_u8.npy"))
    picture.save(tmp_path / "photo.png")
    out = tmp_path / "points.npz"
    program.points(tmp_path / "photo.png", "-w", weights, "--npz", out)
    with np.load(out) as got, np.load(golden / "single_r4_k1024.npz") as expected:
        assert len(got["keypoints"]) == len(expected["keypoints"]) == 1024
        assert shared_points(got["keypoints"], expected["keypoints"]) >= 0.995 * 1024
        assert np.allclose(got["scores"], expected["scores"], atol=1e-4)
        at = {tuple(point): i for i, point in enumerate(expected["keypoints"].tolist())}
        both = [(i, at[point]) for i, point in enumerate(map(tuple, got["keypoints"].tolist()))
                if point in at]
        ours, theirs = (arrays["descriptors"].astype(float)[list(index)]
                        for arrays, index in zip((got, expected), zip(*both)))
        cosine = (ours * theirs).sum(1) / np.linalg.norm(theirs, axis=1)  # theirs are halves
        assert cosine.min() > 0.99999


def test_real_weights_on_a_photo(program, golden, real_weights):
    expected = json.loads((golden / "real" / "expected.json").read_text())["coffee.png"]
    answer = program.points(golden / "inputs" / "coffee.png", "-w", real_weights)
    wanted = expected["variants"]["r4"]
    assert answer["original_size"] == expected["original_size"]
    assert answer["scale"] == expected["scale"]
    assert answer["num_keypoints"] == wanted["num_keypoints"]
    assert np.allclose(answer["keypoints"][:5], wanted["first_client"], atol=1e-3)
    assert sum(answer["scores"]) == pytest.approx(wanted["score_sum"], abs=2e-3)


def test_a_detector(program, golden, real_weights):
    words = (golden / "inputs" / "gray.png", "-w", real_weights / "magicpoint-detector.safetensors")
    result = program.run("superpoint", *words)
    assert " points in 321 x 243" in result.stdout and "no descriptors" in result.stderr
    assert program.points(*words, "--no-descriptors")["num_keypoints"] > 0
    assert "descriptor head" in program.complaint("superpoint", *words, "--json", status=1)
