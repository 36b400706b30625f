"""Mesh files, read back by parsers of the formats' own: Wavefront OBJ, PLY 1.0, glTF 2.0 binary."""

import json
import os
import shutil
import struct
import subprocess

import numpy as np
import pytest

TOOL = os.environ["MESH_TOOL"]


def make_mesh(seed, n_vertices, n_faces):
    random = np.random.default_rng(seed)
    vertices = random.normal(0, 0.1, (n_vertices, 3)).astype("<f4")
    faces = random.integers(0, n_vertices, (n_faces, 3)).astype("<u4")
    faces[0] = 0, 1, 2
    translation = random.normal(0, 1, 3).astype("<f4") + np.float32([0, 0, 5])
    return vertices, faces, translation


def write(path, meshes, env=None):
    parts = [struct.pack("<I", len(meshes))]
    for vertices, faces, translation in meshes:
        parts += [struct.pack("<II", len(vertices), len(faces)), translation.tobytes()]
        parts += [vertices.tobytes(), faces.tobytes()]
    return subprocess.run([TOOL, str(path)], input=b"".join(parts), capture_output=True, env=env)


def normals_of(vertices, faces):
    """Sums of the triangles' cross products, in double."""
    v = vertices.astype(float)
    cross = np.cross(v[faces[:, 1]] - v[faces[:, 0]], v[faces[:, 2]] - v[faces[:, 0]])
    sums = np.zeros_like(v)
    for corner in range(3):
        np.add.at(sums, faces[:, corner], cross)
    return sums


def check_normals(ours, wanted):
    length = np.linalg.norm(wanted, axis=1, keepdims=True)
    clear = length[:, 0] > 1e-3 * length.max()
    np.testing.assert_allclose(ours[clear], (wanted / np.maximum(length, 1e-30))[clear], atol=1e-3)
    assert np.all(ours[length[:, 0] == 0] == 0)


TURN = np.float32([1, -1, -1])
MESHES = [make_mesh(1, 778, 1538), make_mesh(2, 5, 4), make_mesh(3, 300, 9)]


def check_together(vertices, normals, faces):
    """All meshes in one list, placed before the camera and turned."""
    base = 0
    done = 0
    for points, corners, translation in MESHES:
        n, m = len(points), len(corners)
        np.testing.assert_array_equal(vertices[base : base + n], (points + translation) * TURN)
        check_normals(normals[base : base + n], normals_of(points, corners) * TURN)
        np.testing.assert_array_equal(faces[done : done + m], corners + base)
        base += n
        done += m
    assert (base, done) == (len(vertices), len(faces))


def read_obj(path):
    rows = {"v": [], "vn": [], "f": [], "o": []}
    for line in path.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            kind, *fields = line.split(" ")
            rows[kind].append(fields)
    faces = [[corner.split("//") for corner in face] for face in rows["f"]]
    assert all(a == b for face in faces for a, b in face)
    numbers = np.array([[int(corner[0]) for corner in face] for face in faces])
    return np.array(rows["v"], dtype="f4"), np.array(rows["vn"], dtype="f4"), numbers - 1, rows["o"]


def check_obj(path):
    vertices, normals, faces, names = read_obj(path)
    check_together(vertices, normals, faces)
    assert names == [["hand1"], ["hand2"], ["hand3"]]


def test_obj(tmp_path):
    path = tmp_path / "hands.obj"
    assert write(path, MESHES).returncode == 0
    check_obj(path)


def test_obj_where_the_decimal_point_is_a_comma(tmp_path):
    made = tmp_path / "de_DE.UTF-8"
    if shutil.which("localedef") is None:
        pytest.skip("no localedef to make a locale with")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(made)], capture_output=True)
    if not (made / "LC_NUMERIC").exists():
        pytest.skip("localedef finds no sources of German conventions")
    path = tmp_path / "hands.obj"
    env = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8", "MESH_COMMA": "1"}
    assert write(path, MESHES, env).returncode == 0
    check_obj(path)


def test_ply(tmp_path):
    path = tmp_path / "hands.PLY"
    assert write(path, MESHES).returncode == 0
    head, body = path.read_bytes().split(b"end_header\n", 1)
    lines = [line for line in head.decode().splitlines() if not line.startswith("comment")]
    n = sum(len(mesh[0]) for mesh in MESHES)
    m = sum(len(mesh[1]) for mesh in MESHES)
    assert lines == (
        ["ply", "format binary_little_endian 1.0", f"element vertex {n}"]
        + [f"property float {name}" for name in ("x", "y", "z", "nx", "ny", "nz")]
        + [f"element face {m}", "property list uchar int vertex_indices"]
    )
    points = np.frombuffer(body, "<f4", 6 * n).reshape(n, 6)
    faces = np.frombuffer(body, np.dtype([("n", "u1"), ("v", "<i4", 3)]), offset=24 * n)
    assert len(faces) == m and np.all(faces["n"] == 3)
    check_together(points[:, :3], points[:, 3:], faces["v"])


def read_glb(path):
    data = path.read_bytes()
    magic, version, length = struct.unpack_from("<4sII", data)
    assert (magic, version, length) == (b"glTF", 2, len(data))
    size, kind = struct.unpack_from("<I4s", data, 12)
    assert kind == b"JSON" and size % 4 == 0
    document = json.loads(data[20 : 20 + size])
    binary_size, kind = struct.unpack_from("<I4s", data, 20 + size)
    assert kind == b"BIN\0" and binary_size % 4 == 0
    binary = data[28 + size :]
    assert len(binary) == binary_size == document["buffers"][0]["byteLength"]
    return document, binary


def accessor(document, binary, index):
    entry = document["accessors"][index]
    view = document["bufferViews"][entry["bufferView"]]
    dtype = {5126: "<f4", 5125: "<u4"}[entry["componentType"]]
    width = {"VEC3": 3, "SCALAR": 1}[entry["type"]]
    assert view["byteOffset"] % 4 == 0 and view["byteLength"] == 4 * width * entry["count"]
    assert view["target"] == (34963 if width == 1 else 34962)
    values = np.frombuffer(binary, dtype, entry["count"] * width, view["byteOffset"])
    return values.reshape(-1, 3), entry


def test_glb(tmp_path):
    path = tmp_path / "hands.glb"
    assert write(path, MESHES).returncode == 0
    document, binary = read_glb(path)
    assert document["asset"]["version"] == "2.0"
    assert document["scenes"][document["scene"]]["nodes"] == [0, 1, 2]
    for node, (points, corners, translation) in zip(document["nodes"], MESHES):
        np.testing.assert_array_equal(np.float32(node["translation"]), translation * TURN)
        (primitive,) = document["meshes"][node["mesh"]]["primitives"]
        positions, entry = accessor(document, binary, primitive["attributes"]["POSITION"])
        np.testing.assert_array_equal(positions, points * TURN)
        np.testing.assert_array_equal(np.float32(entry["min"]), positions.min(axis=0))
        np.testing.assert_array_equal(np.float32(entry["max"]), positions.max(axis=0))
        normals, _ = accessor(document, binary, primitive["attributes"]["NORMAL"])
        check_normals(normals, normals_of(points, corners) * TURN)
        faces, _ = accessor(document, binary, primitive["indices"])
        np.testing.assert_array_equal(faces, corners)
        assert len(document["materials"]) > primitive["material"]
    assert len(document["bufferViews"]) == len(document["accessors"]) == 9


def test_the_old_file_stays(tmp_path):
    path = tmp_path / "hands.glb"
    path.write_bytes(b"old")
    vertices, faces, translation = make_mesh(4, 8, 8)
    vertices[3, 1] = np.nan
    result = write(path, [MESHES[0], (vertices, faces, translation)])
    assert result.returncode == 1
    assert result.stdout.startswith(b"TAP_ERR_ARGUMENT mesh 2: vertex 3 is not finite")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["hands.glb"]


def test_no_such_folder(tmp_path):
    result = write(tmp_path / "absent" / "hands.ply", MESHES)
    assert result.returncode == 1 and b"absent" in result.stdout
