"""The C library and its declarations, as `tapetum.h` has them.

ctypes takes a declaration's word for it, so `tests/python/test_declarations.py` has a C compiler
compare every one here with the header.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from .errors import BY_CODE, InternalError

CONSTANTS = {
    "TAP_PIXELS_GRAY": 1, "TAP_PIXELS_RGB": 3, "TAP_PIXELS_RGBA": 4, "TAP_PIXELS_BGR": 5,
    "TAP_PIXELS_BGRA": 6, "TAP_EXIF_IGNORE": 0, "TAP_EXIF_APPLY": 1, "TAP_ENCODING_PNG": 0,
    "TAP_ENCODING_JPEG": 1, "TAP_NMS_SINGLE": 0, "TAP_NMS_ITERATIVE": 1, "TAP_GRAY_FIRST": 0,
    "TAP_GRAY_LUMA": 1, "TAP_COORDINATES_RATIO": 0, "TAP_COORDINATES_CENTRES": 1,
    "TAP_HAND_ROTATIONS": 16, "TAP_HAND_BETAS": 10, "TAP_HAND_JOINTS": 21,
    "TAP_HAND_VERTICES": 778, "TAP_HAND_FACES": 1538, "TAP_HANDS_MAX": 256, "TAP_HAND_SERVED": 0,
    "TAP_HAND_DEMO": 1, "TAP_DRAW_BEST": 0, "TAP_DRAW_MESH": 1, "TAP_DRAW_SKELETON": 2,
    "TAP_DRAW_BOX": 3, "TAP_ERR_ARGUMENT": 1, "TAP_ERR_FORMAT": 2, "TAP_ERR_LIMIT": 3,
    "TAP_ERR_UNSUPPORTED": 4, "TAP_ERR_NOT_FOUND": 5, "TAP_ERR_IO": 6, "TAP_ERR_MEMORY": 7,
    "TAP_ERR_DEVICE": 8, "TAP_ERR_CANCELLED": 9, "TAP_ERR_INTERNAL": 10,
}  # fmt: skip

floats = POINTER(c_float)
# In a result's view an address is read as a number, which costs less than a ctypes pointer.
array = c_void_p

# ---- opaque handles ---------------------------------------------------------------------------


class Engine(Structure):
    c_name = "tap_engine"


class Model(Structure):
    c_name = "tap_model"


class Session(Structure):
    c_name = "tap_session"


class Picture(Structure):
    c_name = "tap_picture"


class Keypoints(Structure):
    c_name = "tap_keypoints"


class Hands(Structure):
    c_name = "tap_hands"


HANDLES: tuple[type[Structure], ...] = (Engine, Model, Session, Picture, Keypoints, Hands)

# ---- callbacks --------------------------------------------------------------------------------

LogCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ProgressCallback = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_uint64, c_uint64)
ProceedCallback = CFUNCTYPE(c_bool, c_void_p)

# ---- structs ----------------------------------------------------------------------------------


class Error(Structure):
    c_name = "tap_error"
    _fields_ = [("status", c_int), ("message", c_char * 512)]


class EngineOptions(Structure):
    c_name = "tap_engine_options"
    _fields_ = [
        ("size", c_size_t), ("backend", c_char_p), ("isa", c_char_p), ("n_threads", c_uint32),
        ("log", LogCallback), ("log_user", c_void_p),
    ]  # fmt: skip


class EngineInfo(Structure):
    c_name = "tap_engine_info"
    _fields_ = [
        ("size", c_size_t), ("backend", c_char_p), ("isa", c_char_p), ("isa_reason", c_char_p),
        ("kernels", c_char_p), ("n_threads", c_uint32), ("threads_reason", c_char_p),
    ]  # fmt: skip


class ModelOptions(Structure):
    c_name = "tap_model_options"
    _fields_ = [
        ("size", c_size_t), ("skip_gate", c_bool), ("kind", c_char_p), ("precision", c_char_p),
        ("mano", c_char_p), ("cache", c_char_p), ("progress", ProgressCallback),
        ("progress_user", c_void_p),
    ]  # fmt: skip


class ModelInfo(Structure):
    c_name = "tap_model_info"
    _fields_ = [
        ("size", c_size_t), ("kind", c_char_p), ("path", c_char_p), ("format", c_char_p),
        ("licence", c_char_p), ("n_parameters", c_uint64), ("has_descriptors", c_bool),
        ("descriptor_dim", c_uint32), ("gate_correlation", c_double), ("load_ms", c_double),
        ("packed_bytes", c_size_t), ("precision", c_char_p), ("cached", c_bool),
        ("mano_available", c_bool), ("mano_path", c_char_p), ("mano_licence", c_char_p),
    ]  # fmt: skip


class Image(Structure):
    c_name = "tap_image"
    _fields_ = [
        ("data", c_void_p), ("width", c_uint32), ("height", c_uint32),
        ("stride_bytes", c_ssize_t), ("format", c_int),
    ]  # fmt: skip


class DecodeOptions(Structure):
    c_name = "tap_decode_options"
    _fields_ = [("size", c_size_t), ("exif", c_int), ("max_pixels", c_uint64)]


class SuperPointOptions(Structure):
    c_name = "tap_superpoint_options"
    _fields_ = [
        ("size", c_size_t), ("width", c_uint32), ("height", c_uint32), ("native", c_bool),
        ("max_keypoints", c_int32), ("keypoint_threshold", c_float), ("nms_radius", c_uint32),
        ("border", c_uint32), ("descriptors", c_bool), ("nms", c_int), ("gray", c_int),
        ("coordinates", c_int), ("exif", c_int), ("max_pixels", c_uint64),
    ]  # fmt: skip


class KeypointsView(Structure):
    c_name = "tap_keypoints_view"
    _fields_ = [
        ("size", c_size_t), ("count", c_size_t), ("xy", array), ("scores", array),
        ("descriptors", array), ("descriptor_dim", c_uint32), ("original_width", c_uint32),
        ("original_height", c_uint32), ("input_width", c_uint32), ("input_height", c_uint32),
        ("scale_x", c_double), ("scale_y", c_double), ("exif_orientation", c_int),
        ("exif_applied", c_bool), ("decode_ms", c_double), ("preprocess_ms", c_double),
        ("forward_ms", c_double), ("postprocess_ms", c_double), ("total_ms", c_double),
    ]  # fmt: skip


class HandBox(Structure):
    c_name = "tap_hand_box"
    _fields_ = [
        ("x1", c_float), ("y1", c_float), ("x2", c_float), ("y2", c_float), ("is_right", c_bool),
    ]  # fmt: skip


class HandCamera(Structure):
    c_name = "tap_hand_camera"
    _fields_ = [("fx", c_double), ("fy", c_double), ("cx", c_double), ("cy", c_double)]


class HamerOptions(Structure):
    c_name = "tap_hamer_options"
    _fields_ = [
        ("size", c_size_t), ("boxes", POINTER(HandBox)), ("n_boxes", c_size_t),
        ("is_right", c_bool), ("rescale_factor", c_float), ("policy", c_int), ("ready", c_bool),
        ("camera", HandCamera), ("exif", c_int), ("max_pixels", c_uint64),
        ("proceed", ProceedCallback), ("proceed_user", c_void_p),
    ]  # fmt: skip


class HandsView(Structure):
    c_name = "tap_hands_view"
    _fields_ = [
        ("size", c_size_t), ("count", c_size_t), ("image_width", c_uint32),
        ("image_height", c_uint32), ("box_given", c_bool), ("mano_available", c_bool),
        ("policy", c_int), ("rescale_factor", c_float), ("camera", HandCamera),
        ("exif_orientation", c_int), ("exif_applied", c_bool), ("decode_ms", c_double),
        ("preprocess_ms", c_double), ("network_ms", c_double), ("mano_ms", c_double),
        ("total_ms", c_double),
    ]  # fmt: skip


class HandView(Structure):
    c_name = "tap_hand_view"
    _fields_ = [
        ("size", c_size_t), ("box", HandBox), ("is_right", c_bool), ("center_x", c_double),
        ("center_y", c_double), ("side", c_double), ("rotmats", array),
        ("rotmats_image", array), ("axis_angle", array), ("betas", array), ("cam", array),
        ("cam_t", array), ("cam_t_full", array), ("vertices", array), ("joints", array),
        ("keypoints_2d", array), ("keypoints_crop", array), ("faces", array),
    ]  # fmt: skip


class MatchOptions(Structure):
    c_name = "tap_match_options"
    _fields_ = [("size", c_size_t), ("min_similarity", c_float), ("ratio", c_float)]


class MatchPair(Structure):
    c_name = "tap_match_pair"
    _fields_ = [("a", c_uint32), ("b", c_uint32), ("similarity", c_float)]


STRUCTS: tuple[type[Structure], ...] = (
    Error, EngineOptions, EngineInfo, ModelOptions, ModelInfo, Image, DecodeOptions,
    SuperPointOptions, KeypointsView, HandBox, HandCamera, HamerOptions, HandsView, HandView,
    MatchOptions, MatchPair,
)  # fmt: skip

# ---- functions --------------------------------------------------------------------------------

p_error = POINTER(Error)
out_bytes = POINTER(POINTER(c_uint8))

#: Those that return tap_status; the last parameter is the tap_error.
FALLIBLE: dict[str, list[Any]] = {
    "tap_engine_open": [POINTER(POINTER(Engine)), POINTER(EngineOptions), p_error],
    "tap_model_load": [POINTER(POINTER(Model)), POINTER(Engine), c_char_p, POINTER(ModelOptions),
                       p_error],
    "tap_session_create": [POINTER(POINTER(Session)), POINTER(Model), p_error],
    "tap_picture_decode": [POINTER(POINTER(Picture)), c_void_p, c_size_t, POINTER(DecodeOptions),
                           p_error],
    "tap_picture_copy": [POINTER(POINTER(Picture)), POINTER(Image), p_error],
    "tap_picture_write": [POINTER(Picture), c_char_p, p_error],
    "tap_picture_encode": [POINTER(Picture), c_int, out_bytes, POINTER(c_size_t), p_error],
    "tap_keypoints_create": [POINTER(POINTER(Keypoints)), p_error],
    "tap_superpoint_file": [POINTER(Session), c_char_p, POINTER(SuperPointOptions),
                            POINTER(Keypoints), p_error],
    "tap_superpoint_encoded": [POINTER(Session), c_void_p, c_size_t, POINTER(SuperPointOptions),
                               POINTER(Keypoints), p_error],
    "tap_superpoint_pixels": [POINTER(Session), POINTER(Image), POINTER(SuperPointOptions),
                              POINTER(Keypoints), p_error],
    "tap_match": [POINTER(Engine), floats, c_size_t, floats, c_size_t, c_size_t,
                  POINTER(MatchOptions), POINTER(MatchPair), POINTER(c_size_t), p_error],
    "tap_draw_keypoints": [POINTER(Picture), POINTER(KeypointsView), p_error],
    "tap_draw_matches": [POINTER(POINTER(Picture)), POINTER(Picture), POINTER(KeypointsView),
                         POINTER(Picture), POINTER(KeypointsView), POINTER(MatchPair), c_size_t,
                         p_error],
    "tap_hands_create": [POINTER(POINTER(Hands)), p_error],
    "tap_hands_assemble": [POINTER(Hands), POINTER(HandsView), POINTER(HandView), p_error],
    "tap_hamer_file": [POINTER(Session), c_char_p, POINTER(HamerOptions), POINTER(Hands), p_error],
    "tap_hamer_encoded": [POINTER(Session), c_void_p, c_size_t, POINTER(HamerOptions),
                          POINTER(Hands), p_error],
    "tap_hamer_pixels": [POINTER(Session), POINTER(Image), POINTER(HamerOptions), POINTER(Hands),
                         p_error],
    "tap_hamer_crops": [POINTER(Session), floats, c_size_t, c_uint32, POINTER(Hands), p_error],
    "tap_draw_hands": [POINTER(Picture), POINTER(Hands), c_int, p_error],
    "tap_draw_hands_side": [POINTER(POINTER(Picture)), POINTER(Hands), c_uint32, c_uint32, p_error],
    "tap_hands_write_mesh": [POINTER(Hands), c_char_p, p_error],
    "tap_synth_write": [c_char_p, c_char_p, p_error],
}  # fmt: skip

#: Those that can't fail but for a programmer's mistake here: what they return, and of what.
PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "tap_version": (c_char_p, []),
    "tap_build_info": (c_char_p, []),
    "tap_free": (None, [c_void_p]),
    "tap_engine_options_init": (None, [POINTER(EngineOptions)]),
    "tap_engine_release": (None, [POINTER(Engine)]),
    "tap_engine_describe": (c_int, [POINTER(Engine), POINTER(EngineInfo)]),
    "tap_model_options_init": (None, [POINTER(ModelOptions)]),
    "tap_model_release": (None, [POINTER(Model)]),
    "tap_model_describe": (c_int, [POINTER(Model), POINTER(ModelInfo)]),
    "tap_session_free": (None, [POINTER(Session)]),
    "tap_decode_options_init": (None, [POINTER(DecodeOptions)]),
    "tap_picture_free": (None, [POINTER(Picture)]),
    "tap_picture_view": (Image, [POINTER(Picture)]),
    "tap_superpoint_options_init": (None, [POINTER(SuperPointOptions)]),
    "tap_keypoints_free": (None, [POINTER(Keypoints)]),
    "tap_keypoints_get": (c_int, [POINTER(Keypoints), POINTER(KeypointsView)]),
    "tap_match_options_init": (None, [POINTER(MatchOptions)]),
    "tap_hamer_options_init": (None, [POINTER(HamerOptions)]),
    "tap_hands_free": (None, [POINTER(Hands)]),
    "tap_hands_get": (c_int, [POINTER(Hands), POINTER(HandsView)]),
    "tap_hands_at": (c_int, [POINTER(Hands), c_size_t, POINTER(HandView)]),
}  # fmt: skip


def find() -> pathlib.Path:
    """The shared library: $TAPETUM_LIBRARY, else the one in this package."""
    named = os.environ.get("TAPETUM_LIBRARY")
    return pathlib.Path(named) if named else pathlib.Path(__file__).parent / "libtapetum.so"


def load() -> ctypes.CDLL:
    path = find()
    try:
        library = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(
            f"tapetum: cannot load {path}: {error}; install the wheel (pip install .), or name "
            "libtapetum.so in TAPETUM_LIBRARY"
        ) from None
    try:
        for name, parameters in FALLIBLE.items():
            function = getattr(library, name)
            function.restype, function.argtypes = c_int, parameters
        for name, (result, parameters) in PLAIN.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
    except AttributeError as error:
        raise ImportError(f"tapetum: {path} is another version: {error}") from None
    return library


library = load()
functions = {name: getattr(library, name) for name in (*FALLIBLE, *PLAIN)}
defaults: dict[str, Any] = {}


class _Local(threading.local):
    def __init__(self) -> None:
        self.error = Error()
        self.to_error = ctypes.byref(self.error)


_local = _Local()


def call(name: str, *arguments: Any) -> None:
    """Calls a fallible function, without the GIL, and raises what it says."""
    local = _local
    code = functions[name](*arguments, local.to_error)
    if code != 0:
        message = local.error.message.decode(errors="replace")
        raise BY_CODE.get(code, InternalError)(message)


def sized(kind: Any, initialise: str | None = None) -> Any:
    """A struct that knows its size, with its defaults if there is a function for them."""
    if initialise is None:
        value = kind()
        value.size = ctypes.sizeof(kind)
        return value
    if initialise not in defaults:
        value = kind()
        functions[initialise](ctypes.byref(value))
        defaults[initialise] = value
    return kind.from_buffer_copy(defaults[initialise])


def address(array: Any) -> int:
    """Where a contiguous array's memory begins, by the shortest of NumPy's ways."""
    if array.flags.writeable and array.flags.c_contiguous and array.nbytes:
        return ctypes.addressof(c_char.from_buffer(array))
    where: int = array.__array_interface__["data"][0]
    return where


class Owner:
    """Frees a handle when nothing looks at it any more. Not at the interpreter's exit (as
    weakref.finalize would), when other exit handlers and threads may still use it."""

    __slots__ = ("free", "handle")

    def __init__(self, handle: Any, free: Any) -> None:
        self.handle, self.free = handle, free

    def __del__(self) -> None:
        self.free(self.handle)
