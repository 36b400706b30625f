"""tapetum match: pairs against NumPy's, and the picture of both."""

import json

import numpy as np
import pytest
from PIL import Image

from conftest import SMALL, scene


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two pictures, one a part of the other's scene, of different sizes."""
    folder = tmp_path_factory.mktemp("pair")
    whole = scene(240, 180, 7)
    whole.save(folder / "a.png")
    whole.crop((16, 8, 216, 158)).save(folder / "b.png")
    return folder / "a.png", folder / "b.png"


def match(program, weights, a, b, *words, **more):
    text = program.run("match", a, b, "-w", weights, "-q", "--json", *SMALL, *words, **more).stdout
    assert text.count("\n") == 1
    return json.loads(text)


def descriptors(program, weights, path, folder):
    out = folder / (path.name + ".npz")
    program.run("superpoint", path, "-q", "-w", weights, *SMALL, "--npz", out)
    return np.load(out)["descriptors"].astype(np.float64)


def test_the_same_picture(program, weights, pair):
    answer = match(program, weights, pair[0], pair[0])
    n = answer["a"]["num_keypoints"]
    assert n > 100 and answer["num_matches"] == n
    assert sorted(answer["matches"]) == [[i, i] for i in range(n)]
    assert np.allclose(answer["similarity"], 1, atol=1e-5)


def test_mutual_nearest_neighbours(program, weights, pair, tmp_path):
    answer = match(program, weights, *pair)
    a, b = (descriptors(program, weights, path, tmp_path) for path in pair)
    products = a @ b.T
    to_b, to_a = products.argmax(1), products.argmax(0)
    expected = {(i, j) for i, j in enumerate(to_b) if to_a[j] == i}
    got = {(i, j) for i, j in answer["matches"]}
    assert answer["num_matches"] == len(answer["matches"]) == len(answer["similarity"]) == len(got)
    assert len(expected) > 20 and len(expected ^ got) <= 0.01 * len(expected), "but for near ties"
    for (i, j), similarity in zip(answer["matches"], answer["similarity"]):
        assert similarity == pytest.approx(products[i, j], abs=1e-5)
    assert answer["params"]["ratio"] == 0 and answer["params"]["min_similarity"] == -1
    for side, path in zip("ab", pair):
        size = Image.open(path).size
        assert answer[side]["original_size"] == {"width": size[0], "height": size[1]}
        assert "descriptors" not in answer[side]
    assert set(answer["timing_ms"]) == {"preprocess", "device_forward", "postprocess", "match",
                                        "total"}


def test_ratio_and_similarity(program, weights, pair, tmp_path):
    a, b = (descriptors(program, weights, path, tmp_path) for path in pair)
    products = a @ b.T
    best, second = (np.sort(products, 1)[:, -k] for k in (1, 2))
    plain = match(program, weights, *pair)
    some = match(program, weights, *pair, "--ratio", "0.9")
    lowe = np.sqrt(2 - 2 * np.minimum(best, 1)) < 0.9 * np.sqrt(2 - 2 * np.minimum(second, 1))
    expected = [[i, j] for i, j in plain["matches"] if lowe[i]]
    assert 0 < len(expected) < plain["num_matches"]
    assert len({*map(tuple, expected)} ^ {*map(tuple, some["matches"])}) <= 1, "but for a near tie"
    limit = float(np.median(plain["similarity"]))
    half = match(program, weights, *pair, "--min-similarity", repr(limit))
    assert half["num_matches"] == pytest.approx(plain["num_matches"] / 2, abs=1)
    assert min(half["similarity"]) >= np.float32(limit)


def test_draw_side_by_side(program, weights, pair, tmp_path):
    sizes = [Image.open(path).size for path in pair]
    for name, kind in (("both.png", "PNG"), ("both.jpg", "JPEG")):
        program.run("match", *pair, "-q", "-w", weights, *SMALL, "-d", tmp_path / name)
        with Image.open(tmp_path / name) as both:
            assert both.format == kind
            assert both.size == (sizes[0][0] + sizes[1][0], max(sizes[0][1], sizes[1][1]))
    # With nothing to draw both are there unchanged, one beside the other.
    program.run("match", *pair, "-q", "-w", weights, *SMALL, "-d", tmp_path / "none.png",
                "--threshold", "1")
    both = Image.open(tmp_path / "none.png").convert("RGB")
    for left, path in ((0, pair[0]), (sizes[0][0], pair[1])):
        part = Image.open(path)
        cut = both.crop((left, 0, left + part.width, part.height))
        assert np.array_equal(np.asarray(cut), np.asarray(part))
    drawn = np.asarray(Image.open(tmp_path / "both.png").convert("RGB"), int)
    assert (np.abs(drawn - np.asarray(both, int)).max(2) > 0).mean() > 0.02


def test_draw_turns_with_the_points(program, weights, pair, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(pair[0]).save(tmp_path / "turned.jpg", exif=exif.tobytes())
    program.run("match", tmp_path / "turned.jpg", pair[1], "-q", "-w", weights, *SMALL, "--exif",
                "apply", "-d", tmp_path / "both.png")
    with Image.open(tmp_path / "both.png") as both:
        assert both.size == (180 + 200, 240)


def test_text(program, weights, pair):
    text = program.run("match", *pair, "-q", "-w", weights, *SMALL).stdout
    answer = match(program, weights, *pair)
    lines = text.splitlines()
    assert lines[0] == f"{pair[0]}: {answer['a']['num_keypoints']} points"
    assert lines[1] == f"{pair[1]}: {answer['b']['num_keypoints']} points"
    assert lines[2].startswith(f"{answer['num_matches']} matches, mean similarity ")


def test_standard_input(program, weights, pair):
    expected = match(program, weights, *pair)
    got = match(program, weights, "-", pair[1], input=pair[0].read_bytes())
    assert got["matches"] == expected["matches"] and got["similarity"] == expected["similarity"]


def test_no_points_no_matches(program, weights, pair):
    answer = match(program, weights, *pair, "--threshold", "1")
    assert answer["num_matches"] == 0 and answer["matches"] == [] and answer["similarity"] == []


def test_failures(program, weights, pair, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff but no picture")
    for words in ((pair[0], tmp_path / "broken.jpg"), (tmp_path / "broken.jpg", pair[0])):
        assert "broken.jpg" in program.complaint("match", *words, "-w", weights, status=1)
    line = program.complaint("match", *pair, "-w", weights, "-d", tmp_path / "no" / "x.png", *SMALL,
                             status=1)
    assert str(tmp_path / "no" / "x.png") in line
    assert "tapetum fetch superpoint" in program.complaint("match", *pair, status=3)


def test_a_detector_has_nothing_to_match(program, real_weights, pair):
    line = program.complaint("match", *pair, "-w",
                             real_weights / "magicpoint-detector.safetensors", *SMALL, status=1)
    assert "descriptor head" in line
