"""HaMeR: a frame and a hand's box in; pose, shape, place, and with MANO the mesh out."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import _library as c
from ._hub import resolve
from ._model import Deferred, Network, Pretrained, Progress, check_device, run, stoppable
from .errors import ArgumentError, FormatError, LimitError, UnsupportedError
from .pictures import (
    EXIF,
    Picture,
    PictureLike,
    Shown,
    choice,
    encode_path,
    floats,
    number,
    read,
    view_of,
    whole,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

library = c.library

REPOSITORY = "changh95/hamer-weights"
CHECKPOINT = "hamer.ckpt"
SHAPES = {"rotmats": (16, 3, 3), "betas": (10,), "cam": (3,), "cam_t_full": (3,), "vertices": (778, 3),
          "joints": (21, 3), "faces": (1538, 3)}  # fmt: skip
DRAWINGS = {"best": 0, "mesh": 1, "skeleton": 2, "box": 3}


def _decimal(array: Floats) -> Any:
    """Nested lists of the shortest decimals that give these float32 again: the numbers that the
    server prints."""
    return array.astype("U32").astype(np.float64).tolist()


def _parsed(answer: dict[str, Any]) -> dict[str, Any]:
    """Hand's fields out of a server's answer; what the card's server leaves out follows from the
    rest (docs/hamer.md)."""

    def array(name: str, *shape: int, kind: Any = np.float32) -> Any:
        if answer.get(name) is None:
            return None
        value = np.array(answer[name], kind).reshape(shape)
        value.flags.writeable = False
        return value

    width, height = map(int, answer["image_size"])
    x1, y1, x2, y2 = map(float, answer["bbox"])
    factor, policy = float(answer.get("rescale_factor", 2.0)), str(answer.get("crop", "served"))
    tall = 4 / 3 if policy == "demo" else 1  # its box is first made 192 : 256
    scale, tx, ty = array("cam", 3)
    crop_place = np.array([tx, ty, 2 * 5000 / (256 * float(scale) + 1e-9)], np.float32)
    crop_place.flags.writeable = False
    focal, vertices = 5000 / 256 * max(width, height), array("vertices", 778, 3)
    return {
        "rotmats": array("rotmats", 16, 3, 3), "betas": array("betas", 10), "cam": array("cam", 3),
        "cam_t_full": array("cam_t_full", 3), "vertices": vertices, "_vertices": vertices,
        "joints": array("joints", 21, 3), "keypoints_2d": array("keypoints_2d", 21, 2),
        "faces": array("faces", 1538, 3, kind=np.uint32),
        "rotmats_image": array("rotmats_image", 16, 3, 3), "axis_angle": array("axis_angle", 16, 3),
        "cam_t": crop_place,
        "keypoints_crop": None, "is_right": bool(answer["is_right"]), "bbox": (x1, y1, x2, y2),
        "bbox_source": str(answer.get("bbox_source", "given")), "image_size": (width, height),
        "focal_length": tuple(answer.get("focal_length", (focal, focal))),
        "principal_point": tuple(answer.get("principal_point", (width / 2, height / 2))),
        "rescale_factor": factor, "policy": policy,
        "exif_orientation": int(answer.get("exif_orientation", 1)),
        "exif_applied": bool(answer.get("exif_applied", False)),
        "timing_ms": {name: float(ms) for name, ms in answer["timing_ms"].items()},
        "_square": ((x1 + x2) / 2, (y1 + y2) / 2, factor * max(x2 - x1, y2 - y1, tall * (x2 - x1))),
    }  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Mesh:
    """A hand's surface in metres, before the camera: (778, 3) float32 and (1538, 3) uint32."""

    vertices: Floats
    faces: npt.NDArray[np.uint32]
    _hand: Hand = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        return f"<tapetum.Mesh: {len(self.vertices)} vertices, {len(self.faces)} faces>"

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """A .obj, .ply or .glb file, closed at the wrist, whole or not at all."""
        Hands([self._hand]).save_mesh(path)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Hand(Deferred):
    """One hand. Arrays are float32 and can't be written to. rotmats, betas and cam are the
    network's, of a right hand; all else is of the hand itself. Metres; x right, y down, z away."""

    #: (16, 3, 3): the whole hand's rotation, then MANO's 15 joints'.
    rotmats: Floats
    #: (10,): MANO's shape.
    betas: Floats
    #: (3,): s, tx, ty before the crop.
    cam: Floats
    #: (3,): the hand's place before the frame's camera; None of a crop.
    cam_t_full: Optional[Floats]
    #: (778, 3), (21, 3) in OpenPose's order, (21, 2) pixels; None without MANO.
    vertices: Optional[Floats]
    joints: Optional[Floats]
    keypoints_2d: Optional[Floats]
    #: (1538, 3) uint32, clockwise seen from outside; None without MANO.
    faces: Optional[npt.NDArray[np.uint32]]
    #: (16, 3, 3) and (16, 3): the rotations in the picture's frame, and as axis times angle; None
    #: out of a server's answer that has none.
    rotmats_image: Optional[Floats]
    axis_angle: Optional[Floats]
    #: (3,): upstream's pred_cam_t; (21, 2): upstream's pred_keypoints_2d.
    cam_t: Floats
    keypoints_crop: Optional[Floats]
    is_right: bool
    #: (x1, y1, x2, y2) as it was given.
    bbox: tuple[float, float, float, float]
    #: "given", "center" (there was none: the camera is not to be trusted) or "crop".
    bbox_source: str
    #: (width, height) of the picture.
    image_size: tuple[int, int]
    #: (fx, fy) and (cx, cy) that were used.
    focal_length: tuple[float, float]
    principal_point: tuple[float, float]
    rescale_factor: float
    policy: str
    exif_orientation: int
    exif_applied: bool
    #: preprocess, device, mano, total: of the whole call.
    timing_ms: dict[str, float]
    _square: tuple[float, float, float] = dataclasses.field(repr=False)
    #: vertices, though they may not have been asked for. (No default: it would hide what is deferred.)
    _vertices: Optional[Floats] = dataclasses.field(repr=False)
    _image: Optional[Shown] = dataclasses.field(default=None, repr=False)

    def __repr__(self) -> str:
        side = "right" if self.is_right else "left"
        box = ", ".join(f"{corner:g}" for corner in self.bbox)
        return f"<tapetum.Hand: {side}, box [{box}], {'with' if self.mano_available else 'without'} MANO>"

    @property
    def _whole(self) -> bool:
        return self._vertices is not None and self.faces is not None

    @property
    def mano_available(self) -> bool:
        """There is a MANO file, so there are joints and a mesh."""
        return self.joints is not None

    @classmethod
    def from_dict(cls, answer: dict[str, Any], image: Optional[PictureLike] = None) -> Hand:
        """A server's answer for one hand (the card's too); image: the picture, for draw()."""
        try:
            exif = "apply" if answer.get("exif_applied") else "ignore"
            return cls(**_parsed(answer), _image=image if image is None else Shown(image, exif=exif))
        except Exception as error:  # noqa: BLE001 -- whatever a stranger's answer may provoke
            raise FormatError(f"no answer for a hand: {type(error).__name__}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The server's answer for this hand, number for number."""
        answer: dict[str, Any] = {
            "image_size": list(self.image_size),
            "bbox": _decimal(np.array(self.bbox, np.float32)),
            "is_right": self.is_right,
            "rotmats": _decimal(self.rotmats),
            "betas": _decimal(self.betas),
            "cam": _decimal(self.cam),
        }
        if self.cam_t_full is not None:
            answer["cam_t_full"] = _decimal(self.cam_t_full)
        answer["mano_available"] = self.mano_available
        answer["trace_active"] = False
        answer["timing_ms"] = {name: round(ms, 3) for name, ms in self.timing_ms.items()}
        for name in ("joints", "vertices", "keypoints_2d"):
            array = getattr(self, name)
            if array is not None:
                answer[name] = _decimal(array)
        answer.update(
            bbox_source=self.bbox_source,
            rescale_factor=_decimal(np.array(self.rescale_factor, np.float32)),
            crop=self.policy,
            focal_length=list(self.focal_length),
            principal_point=list(self.principal_point),
            exif_orientation=self.exif_orientation,
            exif_applied=self.exif_applied,
        )
        return answer

    def draw(self, image: Optional[PictureLike] = None, drawing: str = "best", *,
             bgr: bool = False) -> Picture:  # fmt: skip
        """This hand on the picture (by default the one it was found in): "mesh", "skeleton",
        "box", or "best": the first of these that there is."""
        return Hands([self]).draw(image, drawing, bgr=bgr)

    def side_view(self, width: int = 512, height: int = 512) -> Picture:
        """The mesh from its side."""
        return Hands([self]).side_view(width, height)

    def mesh(self) -> Mesh:
        """Vertices (placed before the camera) and faces: `trimesh.Trimesh(mesh.vertices,
        mesh.faces[:, ::-1])`, or mesh.save("hand.glb"). UnsupportedError without MANO."""
        if self._vertices is None or self.faces is None:
            raise UnsupportedError("mesh: there is none for want of a MANO file: give mano_path to "
                                   "from_pretrained")  # fmt: skip
        place = self.cam_t if self.cam_t_full is None else self.cam_t_full
        return Mesh(self._vertices + place, self.faces, self)

    def _repr_png_(self) -> Optional[bytes]:
        return Hands([self])._repr_png_()


class Hands(list[Hand]):
    """The hands of one picture, in the order of their boxes: a list that can be drawn."""

    def _assemble(self, skeleton: bool = False) -> _Result:
        """The C library's result with these hands, to be drawn or written. It takes joints only with
        a mesh; for a skeleton alone, one of no size will do."""
        result = _Result()
        view = c.sized(c.HandsView)
        given = (c.HandView * max(1, len(self)))()
        kept: list[Any] = []
        view.count, view.camera = len(self), c.HandCamera(1, 1, 0, 0)
        view.mano_available = all(hand.joints is not None if skeleton else hand._whole for hand in self)
        no_mesh = {"vertices": np.zeros((778, 3), np.float32), "faces": np.zeros((1538, 3), np.uint32)}
        for to, hand in zip(given, self):
            if hand.cam_t_full is None:
                raise UnsupportedError("draw: a hand of a crop alone has no place in a picture")
            view.camera = c.HandCamera(*hand.focal_length, *hand.principal_point)
            to.size = ctypes.sizeof(c.HandView)
            to.box = c.HandBox(*hand.bbox, hand.is_right)
            to.is_right = hand.is_right
            to.center_x, to.center_y, to.side = hand._square
            for name, shape in SHAPES.items():
                array: Any = getattr(hand, name)
                if name == "vertices" and array is None:
                    array = hand._vertices
                if array is None and skeleton:
                    array = no_mesh.get(name)
                if array is None:
                    continue
                if name == "faces":
                    array = np.ascontiguousarray(array, np.uint32)
                    if array.shape != shape:
                        raise ArgumentError(f"faces: must be of shape {shape}, this is {array.shape}")
                else:
                    array = floats(name, array, *shape)
                kept.append(array)
                setattr(to, name, c.address(array))
        c.call("tap_hands_assemble", result.handle, ctypes.byref(view), given)
        return result

    def draw(self, image: Optional[PictureLike] = None, drawing: str = "best", *,
             bgr: bool = False) -> Picture:  # fmt: skip
        """All of them on one picture, by default the one they were found in."""
        code = choice("drawing", drawing, DRAWINGS)
        if drawing == "best" and self and not all(hand._whole for hand in self):
            code = DRAWINGS["skeleton" if all(hand.joints is not None for hand in self) else "box"]
        if image is not None:
            exif = "apply" if self and self[0].exif_applied else "ignore"
            picture = Picture.open(image, bgr=bgr, exif=exif)
        elif self and self[0]._image is not None:
            picture = self[0]._image.open()
        else:
            raise ArgumentError("image: give the picture to draw on")
        result = self._assemble(code == DRAWINGS["skeleton"])  # frees its memory when it goes
        c.call("tap_draw_hands", picture._handle, result.handle, code)
        return picture

    def side_view(self, width: int = 512, height: int = 512) -> Picture:
        """The meshes from their side, white around."""
        result, out = self._assemble(), ctypes.POINTER(c.Picture)()
        c.call("tap_draw_hands_side", ctypes.byref(out), result.handle, whole("width", width, 1),
               whole("height", height, 1))  # fmt: skip
        return Picture(out)

    def save_mesh(self, path: Union[str, os.PathLike[str]]) -> None:
        """All meshes in one .obj, .ply or .glb file."""
        result = self._assemble()
        c.call("tap_hands_write_mesh", result.handle, encode_path("path", path))

    def _repr_png_(self) -> Optional[bytes]:
        if not self or self[0]._image is None or self[0].cam_t_full is None:
            return None
        return self.draw()._repr_png_()


class _Result:
    """A result in C, which arrays look into."""

    def __init__(self) -> None:
        self.handle = ctypes.POINTER(c.Hands)()
        c.call("tap_hands_create", ctypes.byref(self.handle))
        self.view = c.sized(c.HandsView)

    def __del__(self, free: Any = library.tap_hands_free) -> None:
        free(self.handle)

    def floats(self, pointer: Any, *shape: int) -> Any:
        return view_of(pointer, ctypes.c_float, shape, self) if pointer else None

    def read(self, i: int, vertices: bool) -> dict[str, Any]:
        """Hand's fields."""
        view, hand = self.view, c.sized(c.HandView)
        library.tap_hands_at(self.handle, i, ctypes.byref(hand))
        source = "given" if view.box_given else "center" if hand.cam_t_full else "crop"
        camera, box = view.camera, hand.box
        faces = view_of(hand.faces, ctypes.c_uint32, (1538, 3), self) if hand.faces else None
        return {
            "rotmats": self.floats(hand.rotmats, 16, 3, 3), "betas": self.floats(hand.betas, 10),
            "cam": self.floats(hand.cam, 3), "cam_t_full": self.floats(hand.cam_t_full, 3),
            "vertices": self.floats(hand.vertices, 778, 3) if vertices else None,
            "joints": self.floats(hand.joints, 21, 3),
            "keypoints_2d": self.floats(hand.keypoints_2d, 21, 2), "faces": faces,
            "rotmats_image": self.floats(hand.rotmats_image, 16, 3, 3),
            "axis_angle": self.floats(hand.axis_angle, 16, 3), "cam_t": self.floats(hand.cam_t, 3),
            "keypoints_crop": self.floats(hand.keypoints_crop, 21, 2), "is_right": hand.is_right,
            "bbox": (box.x1, box.y1, box.x2, box.y2), "bbox_source": source,
            "image_size": (view.image_width, view.image_height),
            "focal_length": (camera.fx, camera.fy), "principal_point": (camera.cx, camera.cy),
            "rescale_factor": view.rescale_factor, "policy": "demo" if view.policy else "served",
            "exif_orientation": view.exif_orientation, "exif_applied": view.exif_applied,
            "timing_ms": {"preprocess": view.decode_ms + view.preprocess_ms,
                       "device": view.network_ms, "mano": view.mano_ms, "total": view.total_ms},
            "_square": (hand.center_x, hand.center_y, hand.side),
            "_vertices": self.floats(hand.vertices, 778, 3),
        }  # fmt: skip

    def hands(self, image: Any, vertices: bool = True) -> Hands:
        library.tap_hands_get(self.handle, ctypes.byref(self.view))
        n = range(self.view.count)
        return Hands(Hand._deferred(functools.partial(self.read, i, vertices), image) for i in n)


def _boxes(bbox: Any, is_right: Any) -> tuple[Optional[Any], bool]:
    """The C library's boxes, None without one; and whether a list was given."""
    if bbox is None:
        if not isinstance(is_right, (bool, np.bool_)):
            raise ArgumentError("is_right: must be True or False where there is no box")
        return None, False
    try:
        array = np.asarray(bbox, np.float32)
    except (TypeError, ValueError):
        raise ArgumentError(f"bbox: must be (x1, y1, x2, y2) or a list of such, not {bbox!r}") from None
    several = array.ndim == 2 or array.size == 0
    if array.size == 0:
        array = array.reshape(0, 4)
    elif array.shape == (4,):
        array = array[None]
    elif array.ndim != 2 or array.shape[1] != 4:
        raise ArgumentError(f"bbox: must be (x1, y1, x2, y2) or a list of such; its shape is {array.shape}")
    if len(array) > c.CONSTANTS["TAP_HANDS_MAX"]:
        raise LimitError(f"bbox: {len(array)} boxes: at most {c.CONSTANTS['TAP_HANDS_MAX']} in one call")
    if isinstance(is_right, (bool, np.bool_)):
        sides = [is_right] * len(array)
    elif isinstance(is_right, Iterable):
        sides = list(is_right)
    else:
        raise ArgumentError(f"is_right: must be True or False, or a list of them, not {is_right!r}")
    if len(sides) != len(array):
        raise ArgumentError(f"is_right: {len(sides)} of them for {len(array)} boxes")
    if not all(isinstance(side, (bool, np.bool_)) for side in sides):
        raise ArgumentError("is_right: must be True or False, or a list of them")
    boxes = (c.HandBox * max(1, len(array)))()
    for box, corners, side in zip(boxes, array.tolist(), sides):
        box.x1, box.y1, box.x2, box.y2 = corners
        box.is_right = bool(side)
    return (boxes, len(array)), several


class HamerModel(Pretrained):
    """HaMeR (Pavlakos and others, CVPR 2024). Any number of threads may call it.

    >>> with HamerModel.from_pretrained("hamer.ckpt") as model:         # doctest: +SKIP
    ...     hand = model("photo.jpg", bbox=[20, 170, 295, 260], is_right=True)
    ...     print(hand.rotmats.shape, hand.cam_t_full)
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    @classmethod
    def from_pretrained(
        cls,
        repo_or_path: Union[str, os.PathLike[str], None] = None,
        *,
        device_id: int = 0,
        device: Optional[str] = None,
        mano_path: Union[str, os.PathLike[str], None] = None,
        dispatch: Optional[str] = None,
        precision: Optional[str] = None,
        threads: Optional[int] = None,
        warmup_variants: Optional[Sequence[Any]] = None,
        cache: Optional[str] = None,
        revision: Optional[str] = None,
        gate: bool = True,
        progress: Optional[Progress] = None,
    ) -> HamerModel:
        """Loads a checkpoint: upstream's hamer.ckpt or a .safetensors of the same names, by path; or
        by the name of a repository that has a hamer.ckpt (None: changh95/hamer-weights), out of the
        Hugging Face cache, where it is fetched to if it is missing.

        mano_path  the user's MANO_RIGHT.pkl or .npz; None: looked for where docs/hamer.md says;
                   "": none.
        precision  "f32" (None), "f16" or "int8".
        cache      folder of packed weights, which later loads map; None: the usual one; "": none.
        device_id, dispatch, warmup_variants  belong to the accelerator card and mean nothing here.
        Errors     NotFoundError, FormatError, UnsupportedError; InternalError if the gate fails.
        """
        check_device(device, device_id)
        del dispatch, warmup_variants
        path = resolve(repo_or_path, REPOSITORY, "main", revision, (CHECKPOINT,), progress)
        if (path / CHECKPOINT).is_file():
            path /= CHECKPOINT
        mano = None if mano_path is None else os.fsdecode(encode_path("mano_path", mano_path))
        return cls(Network(path, kind="hamer", precision=precision, mano=mano, cache=cache,
                           threads=threads, gate=gate, progress=progress))  # fmt: skip

    def __call__(
        self,
        image: PictureLike,
        bbox: Any = None,
        is_right: Any = True,
        rescale_factor: float = 2.0,
        return_vertices: bool = True,
        *,
        policy: str = "served",
        camera: Optional[tuple[float, float, float, float]] = None,
        exif: str = "apply",
        max_pixels: int = 64_000_000,
        bgr: bool = False,
    ) -> Any:
        """The hand in a box, a `Hand`; with a list of boxes `Hands`, a list.

        bbox      (x1, y1, x2, y2) in pixels, a list of such, or None: the square in the middle.
        is_right  True or False, or a list with one a box.
        policy    "served" or "demo": how a box becomes a square (docs/hamer.md).
        camera    (fx, fy, cx, cy) in pixels; None: what HaMeR assumes.
        exif      "apply" turns a file upright first, "ignore" does not. A PIL image and an array are
                  taken as they are.
        Ctrl-C    is heard between two hands.
        Errors    ArgumentError names the parameter or the box; FormatError, LimitError,
                  NotFoundError of the picture.
        """
        boxes, several = _boxes(bbox, is_right)
        options = c.sized(c.HamerOptions, "tap_hamer_options_init")
        if boxes is None:
            options.is_right = bool(is_right)
        else:
            options.boxes, options.n_boxes = boxes
        options.rescale_factor = number("rescale_factor", rescale_factor)
        options.policy = choice("policy", policy, {"served": 0, "demo": 1})
        if camera is not None:
            try:
                options.camera = c.HandCamera(*map(float, camera))
            except (TypeError, ValueError):
                raise ArgumentError(f"camera: must be (fx, fy, cx, cy), not {camera!r}") from None
            if len(camera) != 4 or not any(camera):
                raise ArgumentError(f"camera: must be (fx, fy, cx, cy), not {camera!r}")
        options.exif = choice("exif", exif, EXIF)
        options.max_pixels = whole("max_pixels", max_pixels, 1, 2**63 - 1)
        hands = self._run(Shown(image, bgr, exif, max_pixels), options, return_vertices)
        return hands if several else hands[0]

    def run_crop(self, image: PictureLike, is_right: bool = True, *, bgr: bool = False) -> Hand:
        """The picture is the network's input, 192 x 256 (or 256 x 256 whose sides are left out):
        no box, and no place in a frame."""
        options = c.sized(c.HamerOptions, "tap_hamer_options_init")
        options.ready, options.is_right = True, bool(is_right)
        return self._run(Shown(image, bgr), options, True)[0]

    def _run(self, shown: Shown, options: Any, vertices: bool) -> Hands:
        source = read(shown.image, shown.bgr)
        result = _Result()

        def call() -> None:
            session = self._network.borrow()
            try:
                run("hamer", session, source, options, result.handle)
            finally:
                self._network.give_back(session)

        def work(stop: threading.Event) -> None:
            options.proceed = c.ProceedCallback(lambda _user: not stop.is_set())
            call()

        if options.n_boxes <= 1:
            call()
        else:
            stoppable(work)
        return result.hands(shown, vertices)

    def forward_crops(self, crops: Any) -> dict[str, Any]:
        """Upstream's HAMER.forward: normalised crops (B, 3, 256, 256) or (B, 3, 256, 192), float32
        or a torch tensor, to pred_cam (B, 3), pred_cam_t (B, 3), focal_length (B, 2),
        pred_mano_params {global_orient (B, 1, 3, 3), hand_pose (B, 15, 3, 3), betas (B, 10)} and
        with MANO pred_keypoints_3d (B, 21, 3), pred_vertices (B, 778, 3), pred_keypoints_2d
        (B, 21, 2)."""
        if hasattr(crops, "detach"):
            crops = crops.detach().cpu().numpy()
        array = np.ascontiguousarray(crops, np.float32)
        if array.ndim != 4 or array.shape[1:3] != (3, 256):
            raise ArgumentError(f"crops: must be (B, 3, 256, 256 or 192), not {array.shape}")
        result = _Result()
        session = self._network.borrow()
        try:
            c.call("tap_hamer_crops", session, array.ctypes.data_as(c.floats), len(array),
                   array.shape[3], result.handle)  # fmt: skip
        finally:
            self._network.give_back(session)
        hands = result.hands(None)

        def stack(name: str, *shape: int) -> Any:
            if not hands:
                return np.empty((0, *shape), np.float32)
            return np.stack([getattr(hand, name) for hand in hands])

        rotmats = stack("rotmats", 16, 3, 3)
        answer = {
            "pred_cam": stack("cam", 3),
            "pred_mano_params": {"global_orient": rotmats[:, :1], "hand_pose": rotmats[:, 1:],
                                 "betas": stack("betas", 10)},
            "pred_cam_t": stack("cam_t", 3),
            "focal_length": np.full((len(hands), 2), 5000, np.float32),
        }  # fmt: skip
        if self.info.mano_available:
            answer["pred_keypoints_3d"] = stack("joints", 21, 3)
            answer["pred_vertices"] = stack("vertices", 778, 3)
            answer["pred_keypoints_2d"] = stack("keypoints_crop", 21, 2)
        return answer

    def warmup(self, frame_size: tuple[int, int] = (640, 480)) -> None:
        """One call on a grey frame of this (width, height), so that later ones allocate nothing."""
        width, height = frame_size
        self(np.full((height, width), 128, np.uint8))

    def open_device(self) -> HamerModel:
        """The card's name for what from_pretrained has done here."""
        return self
