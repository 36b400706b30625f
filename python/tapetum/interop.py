"""Keypoints for the programs that people use next: OpenCV, LightGlue, hloc, COLMAP.

None of their packages is imported before its function is called.

Where is a pixel's middle? Here as in OpenCV, LightGlue and hloc at whole numbers: the upper left
pixel's is (0, 0). COLMAP has it at (0.5, 0.5), and its writer adds that. hloc's own extractor maps
points back from the network's size by middles: ask for `coordinates="centres"` to agree with it to
the last digit; "ratio", the default, is up to half a pixel of the network's input off.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np

from .errors import ArgumentError, NotFoundError, UnsupportedError
from .superpoint import Keypoints, Matches

Path = Union[str, "os.PathLike[str]"]
CELL = 8.0  # pixels of the network's input that one descriptor sees at full resolution


def to_opencv(points: Keypoints) -> tuple[list[Any], Any]:
    """(list of `cv2.KeyPoint`, (N, 256) float32 descriptors or None), for `cv2.BFMatcher`,
    `cv2.drawKeypoints` and the rest. response: the score; size: a cell of 8 x 8, in the picture's
    pixels."""
    import cv2

    size = CELL * float(np.mean(points.scale))
    made = [cv2.KeyPoint(float(x), float(y), size, -1.0, float(score))
            for (x, y), score in zip(points.keypoints, points.scores)]  # fmt: skip
    return made, points.descriptors


def matches_to_opencv(matches: Matches) -> list[Any]:
    """A list of `cv2.DMatch`, for `cv2.drawMatches`. distance: Euclidean, sqrt(2 - 2 similarity)."""
    import cv2

    distance = np.sqrt(np.maximum(0, 2 - 2 * matches.similarity))
    return [cv2.DMatch(int(a), int(b), float(d)) for (a, b), d in zip(matches.indices, distance)]


def to_lightglue(points: Keypoints, device: Any = None) -> dict[str, Any]:
    """What `LightGlue(features="superpoint")` takes as image0 or image1: torch tensors keypoints
    (1, N, 2), keypoint_scores (1, N), descriptors (1, N, 256), image_size (1, 2) as (width, height)."""
    import torch

    if points.descriptors is None:
        raise UnsupportedError("to_lightglue: the result has no descriptors; ask for them")
    arrays = {
        "keypoints": points.keypoints,
        "keypoint_scores": points.scores,
        "descriptors": points.descriptors,
        "image_size": np.array(points.original_size, np.float32),
    }
    # A copy: torch has no tensors that can't be written to.
    return {name: torch.tensor(array, device=device)[None] for name, array in arrays.items()}


def write_hloc(path: Path, points: Mapping[str, Keypoints], *, half: bool = True,
               overwrite: bool = False) -> None:  # fmt: skip
    """A features.h5 as hloc's extract_features writes it: for each picture, by its name, keypoints
    (N, 2) with their uncertainty, scores (N,), descriptors (256, N), image_size (width, height).

    half  16-bit floats, hloc's default: above x = 1024 a keypoint is then rounded to whole pixels.
    """
    import h5py

    with _beside(path, overwrite) as part, h5py.File(part, "w", libver="latest") as file:
        for name, result in points.items():
            if result.descriptors is None:
                raise UnsupportedError(f"write_hloc: {name} has no descriptors; ask for them")
            kind = np.float16 if half else np.float32
            group = file.create_group(name)
            keypoints = group.create_dataset("keypoints", data=result.keypoints.astype(kind))
            keypoints.attrs["uncertainty"] = float(np.mean(result.scale)) * 2.0
            group.create_dataset("scores", data=result.scores.astype(kind))
            group.create_dataset("descriptors", data=result.descriptors.T.astype(kind))
            group.create_dataset("image_size", data=np.array(result.original_size))


def write_hloc_matches(path: Path, matches: Mapping[tuple[str, str], Matches], *,
                       overwrite: bool = False) -> None:  # fmt: skip
    """A matches.h5 as hloc's match_features writes it: for each pair matches0 (N of the first, -1:
    none), matching_scores0."""
    import h5py

    with _beside(path, overwrite) as part, h5py.File(part, "w", libver="latest") as file:
        for (name_a, name_b), found in matches.items():
            if max(len(found.a), len(found.b)) > np.iinfo(np.int16).max:
                raise UnsupportedError(f"write_hloc_matches: {name_a}, {name_b}: over 32767 keypoints, "
                                       "which hloc's 16-bit rows can't name")  # fmt: skip
            rows = np.full(len(found.a), -1, np.int16)
            scores = np.zeros(len(found.a), np.float16)
            rows[found.indices[:, 0]] = found.indices[:, 1]
            scores[found.indices[:, 0]] = (found.similarity + 1) / 2  # into 0..1
            group = file.create_group(f"{name_a.replace('/', '-')}/{name_b.replace('/', '-')}")
            group.create_dataset("matches0", data=rows)
            group.create_dataset("matching_scores0", data=scores)


# ---- COLMAP -----------------------------------------------------------------------------------

# The tables of COLMAP 3.0 to 3.9, which newer ones read and add theirs to when they open the file.
# Source: colmap.github.io/database.html. The prior_ columns went in 3.10; older ones want them.
SCHEMA = """
CREATE TABLE cameras (
    camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, params BLOB,
    prior_focal_length INTEGER NOT NULL);
CREATE TABLE images (
    image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE,
    camera_id INTEGER NOT NULL, prior_qw REAL, prior_qx REAL, prior_qy REAL, prior_qz REAL,
    prior_tx REAL, prior_ty REAL, prior_tz REAL,
    CONSTRAINT image_id_check CHECK (image_id >= 0 AND image_id < 2147483647),
    FOREIGN KEY (camera_id) REFERENCES cameras (camera_id));
CREATE UNIQUE INDEX index_name ON images (name);
CREATE TABLE keypoints (
    image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY (image_id) REFERENCES images (image_id) ON DELETE CASCADE);
CREATE TABLE descriptors (
    image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY (image_id) REFERENCES images (image_id) ON DELETE CASCADE);
CREATE TABLE matches (
    pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB);
CREATE TABLE two_view_geometries (
    pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB);
"""
SIMPLE_RADIAL = 2  # COLMAP's number of the model f, cx, cy, k
MOST_IMAGES = 2147483647  # pair_id = first * MOST_IMAGES + second, the smaller id first


def write_colmap(path: Path, points: Mapping[str, Keypoints],
                 matches: Optional[Mapping[tuple[str, str], Matches]] = None, *,
                 shared_camera: bool = False, overwrite: bool = False) -> None:  # fmt: skip
    """A database.db for COLMAP: pictures by their names, keypoints (half a pixel added), and
    matches, to be verified (`pycolmap.geometric_verification`, or `colmap geometric_verifier`).

    Cameras are SIMPLE_RADIAL with 1.2 times the longer side as a first focal length, one a picture,
    or with shared_camera one a size. Descriptors stay out: COLMAP's are SIFT's.
    """
    ids = {name: i for i, name in enumerate(points, 1)}
    for pair in matches or {}:
        for name in pair:
            if name not in ids:
                raise ArgumentError(f"matches: {name} is none of the pictures in points")
    with _beside(path, overwrite) as part:
        database = sqlite3.connect(part)
        try:
            database.executescript(SCHEMA)
            cameras: dict[tuple[int, int], int] = {}
            for name, result in points.items():
                camera = cameras.get(result.original_size) if shared_camera else None
                if camera is None:
                    camera = _write_camera(database, result.original_size)
                    cameras[result.original_size] = camera
                database.execute("INSERT INTO images (image_id, name, camera_id) VALUES (?, ?, ?)",
                                 (ids[name], name, camera))  # fmt: skip
                xy = (result.keypoints + np.float32(0.5)).astype("<f4")
                database.execute("INSERT INTO keypoints VALUES (?, ?, 2, ?)",
                                 (ids[name], len(xy), xy.tobytes()))  # fmt: skip
            for (name_a, name_b), found in (matches or {}).items():
                _write_matches(database, ids[name_a], ids[name_b], found)
            database.commit()
        finally:
            database.close()


def _write_camera(database: sqlite3.Connection, size: tuple[int, int]) -> int:
    width, height = size
    params = np.array([1.2 * max(size), width / 2, height / 2, 0], "<f8")
    row = database.execute(
        "INSERT INTO cameras (model, width, height, params, prior_focal_length) VALUES (?, ?, ?, ?, 0)",
        (SIMPLE_RADIAL, width, height, params.tobytes())).lastrowid  # fmt: skip
    assert row is not None
    return row


def _write_matches(database: sqlite3.Connection, a: int, b: int, found: Matches) -> None:
    rows = found.indices
    if a == b:
        raise ArgumentError("matches: a picture is not matched with itself")
    if a > b:
        a, b, rows = b, a, rows[:, ::-1]
    database.execute("INSERT OR REPLACE INTO matches VALUES (?, ?, 2, ?)",
                     (a * MOST_IMAGES + b, len(rows), rows.astype("<u4").tobytes()))  # fmt: skip


@contextlib.contextmanager
def _beside(path: Path, overwrite: bool) -> Iterator[str]:
    """A name to write at, which gets the real one at the end: never half a file."""
    target = pathlib.Path(path)
    if not target.parent.is_dir():
        raise NotFoundError(f"path: there is no folder {target.parent}")
    if target.exists() and not overwrite:
        raise ArgumentError(f"path: {target} is there already; overwrite=True replaces it")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        yield os.fspath(part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
