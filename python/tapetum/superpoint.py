"""SuperPoint: keypoints and descriptors of a picture, and matches between two."""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import io
import os
import sys
import zipfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from . import _library as c
from ._hub import resolve
from ._model import Deferred, Network, Pretrained, Progress, check_device, run
from .errors import ArgumentError, FormatError, UnsupportedError
from .pictures import EXIF, Picture, PictureLike, Shown, choice, floats, number, read, view_of, whole

if TYPE_CHECKING:
    import numpy.typing as npt

library = c.library

REPOSITORY = "magic-leap-community/superpoint"
NMS = {"single": 0, "iterative": 1}
GRAY = {"first": 0, "luma": 1}
COORDINATES = {"ratio": 0, "centres": 1}
MOST_BYTES = 1 << 28  # of a server's descriptors
REVISION = "734450e9ffe229074f5998494ddc615475cdb20a"


def _descriptors(answer: Optional[dict[str, Any]], n: int) -> Optional[npt.NDArray[np.float32]]:
    """A server's, which are a NumPy file in base64. Its header is read first: a small file may claim
    to hold terabytes."""
    if answer is None:
        return None
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(answer["data"], validate=True)))
    member = archive.getinfo(answer.get("key", "descriptors") + ".npy")
    if member.file_size > MOST_BYTES:
        raise ValueError(f"descriptors of {member.file_size} bytes")
    file = io.BytesIO(archive.read(member))
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"a NumPy file of version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if len(shape) != 2 or shape[0] != n or fortran or dtype.str not in ("<f2", "<f4"):
        raise ValueError(f"descriptors of shape {shape}, {dtype}")
    return np.frombuffer(file.read(), dtype).reshape(shape).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Keypoints(Deferred):
    """The keypoints of one picture, best first. Arrays are float32 and can't be written to."""

    #: (N, 2): x to the right, y down, in the picture's pixels.
    keypoints: npt.NDArray[np.float32]
    #: (N,), in 0..1, descending.
    scores: npt.NDArray[np.float32]
    #: (N, 256) of unit length; None if they were not asked for.
    descriptors: Optional[npt.NDArray[np.float32]]
    #: (width, height) of the picture, and of the network's input.
    original_size: tuple[int, int]
    image_size: tuple[int, int]
    #: Original over input, x and y.
    scale: tuple[float, float]
    #: preprocess, device_forward, postprocess, total.
    timing_ms: dict[str, float]
    _image: Optional[Shown] = dataclasses.field(default=None, repr=False)

    @classmethod
    def from_dict(cls, answer: dict[str, Any], image: Optional[PictureLike] = None) -> Keypoints:
        """A server's answer (the card's too); image: the picture, for draw()."""
        try:
            xy = np.array(answer["keypoints"], np.float32).reshape(-1, 2)
            scores = np.array(answer["scores"], np.float32).reshape(len(xy))
            sizes = [(int(answer[name]["width"]), int(answer[name]["height"]))
                     for name in ("original_size", "image_size")]  # fmt: skip
            rows = _descriptors(answer.get("descriptors"), len(xy))
            for array in (xy, scores, rows):
                if array is not None:
                    array.flags.writeable = False
            scale = float(answer["scale"]["x"]), float(answer["scale"]["y"])
            timing = {name: float(ms) for name, ms in answer.get("timing_ms", {}).items()}
            return cls(
                xy,
                scores,
                rows,
                sizes[0],
                sizes[1],
                scale,
                timing,
                image if image is None else Shown(image),
            )
        except Exception as error:  # noqa: BLE001 -- whatever a stranger's answer may provoke
            raise FormatError(f"no answer with keypoints: {type(error).__name__}: {error}") from None

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        rows = (
            "no descriptors" if self.descriptors is None else f"descriptors of {self.descriptors.shape[1]}"
        )
        return "<tapetum.Keypoints: {} in {}x{}, {}>".format(len(self), *self.original_size, rows)

    def _view(self) -> Any:
        view = c.sized(c.KeypointsView)
        view.count = n = len(self)
        view.kept = floats("keypoints", self.keypoints, n, 2), floats("scores", self.scores, n)
        view.xy, view.scores = map(c.address, view.kept)
        view.original_width, view.original_height = self.original_size
        return view

    def draw(self, image: Optional[PictureLike] = None, *, bgr: bool = False) -> Picture:
        """The points on the picture (by default the one they were found in, as it was read then),
        coloured and sized by score. Not changed: the picture that was given."""
        picture = self._picture(image, bgr)
        view = self._view()
        c.call("tap_draw_keypoints", picture._handle, ctypes.byref(view))
        return picture

    def _picture(self, image: Optional[PictureLike], bgr: bool) -> Picture:
        if image is not None:
            return Picture.open(image, bgr=bgr)
        if self._image is None:
            raise ArgumentError("image: give the picture to draw on")
        return self._image.open()

    def _repr_png_(self) -> Optional[bytes]:
        return None if self._image is None else self.draw()._repr_png_()


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """Pairs of keypoints of two pictures that show the same place."""

    a: Keypoints
    b: Keypoints
    #: (M, 2) int64: rows of a and of b, in order of a.
    indices: npt.NDArray[np.int64]
    #: (M,) float32: dot products of the descriptors, in -1..1.
    similarity: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<tapetum.Matches: {len(self)} of {len(self.a)} and {len(self.b)} keypoints>"

    @property
    def points(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Both ends, (M, 2) each: what `cv2.findHomography` takes."""
        return self.a.keypoints[self.indices[:, 0]], self.b.keypoints[self.indices[:, 1]]

    def draw(self, image_a: Optional[PictureLike] = None, image_b: Optional[PictureLike] = None, *,
             bgr: bool = False) -> Picture:  # fmt: skip
        """Both pictures side by side, lines between what matches."""
        left, right = self.a._picture(image_a, bgr), self.b._picture(image_b, bgr)
        pairs = (c.MatchPair * max(1, len(self)))()
        for pair, (a, b), similarity in zip(pairs, self.indices, self.similarity):
            pair.a, pair.b, pair.similarity = a, b, similarity
        out = ctypes.POINTER(c.Picture)()
        c.call("tap_draw_matches", ctypes.byref(out), left._handle, ctypes.byref(self.a._view()),
               right._handle, ctypes.byref(self.b._view()), pairs, len(self))  # fmt: skip
        return Picture(out)

    def _repr_png_(self) -> Optional[bytes]:
        if self.a._image is None or self.b._image is None:
            return None
        return self.draw()._repr_png_()


class _Result:
    """A result in C, which arrays look into."""

    def __init__(self) -> None:
        self.handle = ctypes.POINTER(c.Keypoints)()
        c.call("tap_keypoints_create", ctypes.byref(self.handle))

    def __del__(self, free: Any = library.tap_keypoints_free) -> None:
        free(self.handle)

    def read(self) -> dict[str, Any]:
        """Keypoints' fields."""
        view = c.sized(c.KeypointsView)
        library.tap_keypoints_get(self.handle, ctypes.byref(view))
        n, dim = view.count, view.descriptor_dim
        return {
            "keypoints": view_of(view.xy, ctypes.c_float, (n, 2), self),
            "scores": view_of(view.scores, ctypes.c_float, (n,), self),
            "descriptors": view_of(view.descriptors, ctypes.c_float, (n, dim), self) if dim else None,
            "original_size": (view.original_width, view.original_height),
            "image_size": (view.input_width, view.input_height),
            "scale": (view.scale_x, view.scale_y),
            "timing_ms": {
                "preprocess": view.decode_ms + view.preprocess_ms,
                "device_forward": view.forward_ms,
                "postprocess": view.postprocess_ms,
                "total": view.total_ms,
            },
        }


class SuperPoint(Pretrained):
    """SuperPoint (DeTone, Malisiewicz, Rabinovich, 2018). Any number of threads may call it."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @classmethod
    def from_pretrained(
        cls,
        repo_or_path: Union[str, os.PathLike[str], None] = None,
        *,
        device_id: int = 0,
        device: Optional[str] = None,
        threads: Optional[int] = None,
        revision: Optional[str] = None,
        gate: bool = True,
        progress: Optional[Progress] = None,
    ) -> SuperPoint:
        """Loads weights: a folder, a .safetensors or a PyTorch file, by path; or by the name of a
        repository (None: magic-leap-community/superpoint), out of the Hugging Face cache, where
        they are fetched to if they are missing.

        threads   None: the CPUs this process may use.
        gate      compares the network with its reference before it is used.
        Errors    NotFoundError, FormatError, UnsupportedError; InternalError if the gate fails.
        """
        check_device(device, device_id)
        files = ("config.json", "model.safetensors")
        path = resolve(repo_or_path, REPOSITORY, REVISION, revision, files, progress)
        return cls(Network(path, kind="superpoint", precision=None, mano=None, cache=None,
                           threads=threads, gate=gate, progress=progress))  # fmt: skip

    def __call__(
        self,
        image: PictureLike,
        *,
        max_keypoints: int = 1024,
        keypoint_threshold: float = 0.005,
        nms_radius: int = 4,
        border: int = 4,
        return_descriptors: bool = True,
        size: Union[tuple[int, int], str] = (640, 480),
        nms: str = "single",
        gray: str = "first",
        coordinates: str = "ratio",
        exif: str = "ignore",
        max_pixels: int = 64_000_000,
        bgr: bool = False,
    ) -> Keypoints:
        """The keypoints of a picture.

        max_keypoints  the best so many; -1: all.
        size           (width, height) of the network's input, multiples of 8, or "native": the
                       picture's own, cut down to multiples of 8.
        nms            "single" or "iterative"; gray: "first" or "luma"; coordinates: "ratio" or
                       "centres"; exif: "ignore" or "apply": docs/superpoint.md, docs/formats.md.
        Errors         ArgumentError names the parameter; FormatError, LimitError, NotFoundError of
                       the picture.
        """
        source = read(image, bgr)
        options = c.sized(c.SuperPointOptions, "tap_superpoint_options_init")
        if isinstance(size, str):
            options.native = bool(choice("size", size, {"native": 1}))
        else:
            try:
                width, height = size
            except (TypeError, ValueError):
                raise ArgumentError(f"size: must be (width, height) or 'native', not {size!r}") from None
            options.width, options.height = whole("size", width), whole("size", height)
        options.max_keypoints = whole("max_keypoints", max_keypoints, -1, 2**31 - 1)
        options.keypoint_threshold = number("keypoint_threshold", keypoint_threshold)
        options.nms_radius = whole("nms_radius", nms_radius)
        options.border = whole("border", border)
        options.descriptors = return_descriptors
        options.nms = choice("nms", nms, NMS)
        options.gray = choice("gray", gray, GRAY)
        options.coordinates = choice("coordinates", coordinates, COORDINATES)
        options.exif = choice("exif", exif, EXIF)
        options.max_pixels = whole("max_pixels", max_pixels, 1, 2**63 - 1)
        result = _Result()
        session = self._network.borrow()
        try:
            run("superpoint", session, source, options, result.handle)
        finally:
            self._network.give_back(session)
        points: Keypoints = Keypoints._deferred(result.read, Shown(image, bgr, exif, max_pixels))
        return points

    def batch(
        self,
        images: Sequence[PictureLike],
        *,
        progress: Union[bool, Callable[[Sequence[PictureLike]], Iterable[PictureLike]]] = False,
        **options: Any,
    ) -> list[Keypoints]:
        """The keypoints of several pictures, of any sizes: each the same to the bit as alone.

        progress  True: a bar on the terminal; or what wraps a sequence, such as `tqdm.tqdm`.
        options   __call__'s.
        """
        if isinstance(images, (str, bytes, os.PathLike)):
            raise ArgumentError("images: this is one picture; give a list")
        images = list(images)
        wrapped = bar(images) if progress is True else progress(images) if progress else images
        return [self(image, **options) for image in wrapped]

    def match(
        self,
        a: Union[Keypoints, PictureLike],
        b: Union[Keypoints, PictureLike],
        *,
        min_similarity: float = -1.0,
        ratio: float = 0.0,
        **options: Any,
    ) -> Matches:
        """Mutual nearest neighbours of two results, or of two pictures (options: __call__'s).

        min_similarity  keeps dot products of at least this, in -1..1.
        ratio           Lowe's test, in (0, 1]; 0: off.
        """
        if options and isinstance(a, Keypoints) and isinstance(b, Keypoints):
            raise ArgumentError(f"{', '.join(options)}: no options of match; both results are there")
        points_a = a if isinstance(a, Keypoints) else self(a, **options)
        points_b = b if isinstance(b, Keypoints) else self(b, **options)
        if points_a.descriptors is None or points_b.descriptors is None:
            raise UnsupportedError("match: a result has no descriptors; ask for them")
        rows = [np.ascontiguousarray(p.descriptors, np.float32) for p in (points_a, points_b)]
        if rows[0].shape[1] != rows[1].shape[1]:
            raise ArgumentError("match: descriptors of different lengths: "
                                f"{rows[0].shape[1]} and {rows[1].shape[1]}")  # fmt: skip
        match_options = c.sized(c.MatchOptions, "tap_match_options_init")
        match_options.min_similarity = number("min_similarity", min_similarity)
        match_options.ratio = number("ratio", ratio)
        pairs = np.empty(min(len(rows[0]), len(rows[1])),
                         [("a", np.uint32), ("b", np.uint32), ("similarity", np.float32)])  # fmt: skip
        n = ctypes.c_size_t()
        engine = self._network.engine()
        c.call("tap_match", engine.handle, rows[0].ctypes.data_as(c.floats), len(rows[0]),
               rows[1].ctypes.data_as(c.floats), len(rows[1]), rows[0].shape[1],
               ctypes.byref(match_options), pairs.ctypes.data_as(ctypes.POINTER(c.MatchPair)),
               ctypes.byref(n))  # fmt: skip
        pairs = pairs[: n.value]
        indices = np.stack([pairs["a"], pairs["b"]], 1).astype(np.int64)
        return Matches(points_a, points_b, indices, pairs["similarity"].copy())


def bar(items: Sequence[Any], width: int = 30) -> Iterable[Any]:
    """The items, and on standard error, where that is a terminal, how far they have been taken."""
    shown = sys.stderr.isatty()
    for done, item in enumerate(items):
        if shown:
            filled = width * done // len(items)
            line = f"\r[{'#' * filled:<{width}}] {done} of {len(items)}"
            print(line, end="", file=sys.stderr, flush=True)
        yield item
    if shown and items:
        print(f"\r[{'#' * width}] {len(items)} of {len(items)}", file=sys.stderr)
