"""Pictures in, pictures out.

A picture is given as a path, as encoded bytes (JPEG, PNG, WebP), as a uint8 array of shape
(H, W), (H, W, 3) or (H, W, 4), as a PIL image or as a torch tensor; neither PIL nor torch is
imported here. Colours are RGB; arrays that OpenCV read are BGR, which `bgr=True` says.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import numpy as np

from . import _library as c
from .errors import ArgumentError, FileError, NotFoundError

if TYPE_CHECKING:
    import numpy.typing as npt

#: What a picture may be given as. Any: PIL's images and torch's tensors.
PictureLike = Union[str, "os.PathLike[str]", "os.PathLike[bytes]", bytes, bytearray, memoryview, Any]

library = c.library


class Source(NamedTuple):
    """A picture as the C functions take it: one of a path, encoded bytes, pixels."""

    path: Optional[bytes] = None
    encoded: Optional[npt.NDArray[np.uint8]] = None
    pixels: Optional[npt.NDArray[np.uint8]] = None  # (H, W) or (H, W, C), pixels dense
    image: Any = None  # c.Image of pixels


GRAY = c.CONSTANTS["TAP_PIXELS_GRAY"]
FORMATS = {
    (channels, bgr): c.CONSTANTS[f"TAP_PIXELS_{'BGR' if bgr else 'RGB'}{'A' if channels == 4 else ''}"]
    for channels in (3, 4)
    for bgr in (False, True)
}


def _pixels(array: npt.NDArray[np.uint8], bgr: bool) -> Source:
    height, width = array.shape[:2]
    form = GRAY if array.ndim == 2 else FORMATS[array.shape[2], bool(bgr)]
    return Source(None, None, array, c.Image(c.address(array), width, height, array.strides[0], form))


UINT8 = np.dtype(np.uint8)
MOST_PIXELS = 2**31 - 1  # in a row or a column


def _from_torch(tensor: Any) -> Any:
    array = tensor.detach().cpu().numpy()
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise ArgumentError("image: a tensor of floats must lie in 0..1")
        array = np.rint(array * 255).astype(np.uint8)
    return np.ascontiguousarray(array)


def _check_array(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.dtype is not UINT8 and array.dtype != UINT8:
        raise ArgumentError(f"image: an array must be of uint8, this one is of {array.dtype}")
    shape, strides = array.shape, array.strides
    if max(shape, default=0) > MOST_PIXELS:
        raise ArgumentError(f"image: a side of {shape} is too long")
    # Rows may be apart, or backwards, but not on top of each other; one row has no stride.
    if len(shape) == 3 and shape[2] in (3, 4) and strides[1:] == (shape[2], 1):
        if abs(strides[0]) >= shape[1] * shape[2]:
            return array
    elif len(shape) == 2 and strides[1] == 1 and abs(strides[0]) >= shape[1]:
        return array
    if len(shape) == 3 and shape[2] == 1:
        return _check_array(array[:, :, 0])
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)):
        return np.ascontiguousarray(array)
    raise ArgumentError(f"image: an array must be (H, W), (H, W, 3) or (H, W, 4), this one is {shape}")


def read(image: PictureLike, bgr: bool = False) -> Source:
    """Anything that shows a picture, as the library takes it. Arrays are not copied."""
    if type(image) is np.ndarray:
        return _pixels(_check_array(image), bgr)
    if isinstance(image, (str, os.PathLike)):
        path = encode_path("image", image)
        return Source(path=b"./-" if path == b"-" else path)  # no standard input
    if isinstance(image, (bytes, bytearray, memoryview)):
        if isinstance(image, memoryview) and not image.c_contiguous:
            image = bytes(image)
        return Source(encoded=np.frombuffer(image, np.uint8))
    if isinstance(image, Picture):
        return _pixels(image.array, False)
    if hasattr(image, "detach") and hasattr(image, "cpu"):
        image = _from_torch(image)
    elif hasattr(image, "convert") and hasattr(image, "getbands"):
        image = np.asarray(image.convert("L" if image.mode == "L" else "RGB"))
    if isinstance(image, (list, tuple)):
        raise ArgumentError("image: this is a list; give one picture, or several to batch()")
    if not isinstance(image, np.ndarray):
        raise ArgumentError(
            "image: give a path, encoded bytes, a uint8 array, a PIL image or a torch tensor, not "
            f"a {type(image).__name__}"
        )
    return _pixels(_check_array(image), bgr)


def encode_path(name: str, path: Any) -> bytes:
    """A path for C, where a zero byte would end it."""
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise ArgumentError(f"{name}: must be a path, not a {type(path).__name__}") from None
    if b"\0" in encoded:
        raise ArgumentError(f"{name}: a path cannot hold a zero byte")
    return encoded


def read_file(path: bytes) -> npt.NDArray[np.uint8]:
    """A file's bytes."""
    try:
        with open(path, "rb") as file:
            return np.frombuffer(file.read(), np.uint8)
    except FileNotFoundError as error:
        raise NotFoundError(f"{os.fsdecode(path)}: cannot open: {error.strerror}; check the path") from None
    except OSError as error:
        raise FileError(f"{os.fsdecode(path)}: cannot read: {error.strerror}") from None


class Shown(NamedTuple):
    """A picture, and how it was read: what a result draws itself on."""

    image: PictureLike
    bgr: bool = False
    exif: str = "ignore"
    max_pixels: int = 64_000_000

    def open(self) -> Picture:
        return Picture.open(self.image, bgr=self.bgr, exif=self.exif, max_pixels=self.max_pixels)


class Picture:
    """A picture in the library's memory: what drawing returns. Shows itself in notebooks."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._owner = c.Owner(handle, library.tap_picture_free)

    @classmethod
    def open(cls, image: PictureLike, *, bgr: bool = False, exif: str = "ignore",
             max_pixels: int = 64_000_000) -> Picture:  # fmt: skip
        """Decodes or copies. exif: "apply" turns an encoded picture upright, "ignore" does not."""
        source = read(image, bgr)
        handle = ctypes.POINTER(c.Picture)()
        if source.image is not None:
            c.call("tap_picture_copy", ctypes.byref(handle), ctypes.byref(source.image))
            return cls(handle)
        encoded = source.encoded
        if source.path is not None:
            encoded = read_file(source.path)
        assert encoded is not None
        options = c.sized(c.DecodeOptions, "tap_decode_options_init")
        options.exif = choice("exif", exif, EXIF)
        options.max_pixels = whole("max_pixels", max_pixels, 1, 2**63 - 1)
        c.call("tap_picture_decode", ctypes.byref(handle), c.address(encoded), encoded.size,
               ctypes.byref(options))  # fmt: skip
        return cls(handle)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """(H, W, 3) RGB or (H, W) grey, a view that can't be written to."""
        view = library.tap_picture_view(self._handle)
        gray = view.format == GRAY
        shape = (view.height, view.width) if gray else (view.height, view.width, 3)
        return view_of(view.data, ctypes.c_uint8, shape, self)

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), as PIL has it."""
        view = library.tap_picture_view(self._handle)
        return view.width, view.height

    def encode(self, encoding: str = "png") -> bytes:
        """The bytes of a file: "png" or "jpeg" (quality 92)."""
        data, n = ctypes.POINTER(ctypes.c_uint8)(), ctypes.c_size_t()
        code = choice("encoding", encoding, {"png": 0, "jpeg": 1})
        c.call("tap_picture_encode", self._handle, code, ctypes.byref(data), ctypes.byref(n))
        try:
            return ctypes.string_at(data, n.value)
        finally:
            library.tap_free(data)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """A .png, .jpg or .jpeg file, whole or not at all."""
        c.call("tap_picture_write", self._handle, encode_path("path", path))

    def _repr_png_(self) -> bytes:
        return self.encode("png")

    def __repr__(self) -> str:
        return "<tapetum.Picture {}x{}>".format(*self.size)

    def __reduce__(self) -> Any:
        raise TypeError("a tapetum.Picture cannot be pickled; send its encode() or its array")


EXIF = {"ignore": 0, "apply": 1}


def choice(name: str, value: str, of: dict[str, int]) -> int:
    """One of some words, as the C library's number."""
    try:
        return of[value]
    except (KeyError, TypeError):
        words = ", ".join(repr(word) for word in of)
        raise ArgumentError(f"{name}: must be one of {words}, not {value!r}") from None


def whole(name: str, value: Any, least: int = 0, most: int = 2**32 - 1) -> int:
    """A whole number in a range; ctypes would wrap it round."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        number = value.__index__()
    except AttributeError:
        raise ArgumentError(f"{name}: must be a whole number, not {value!r}") from None
    if isinstance(value, (bool, np.bool_)) or not least <= number <= most:
        raise ArgumentError(f"{name}: must be a whole number of {least} to {most}, not {value!r}")
    return int(number)


def number(name: str, value: Any) -> float:
    """A real number."""
    if not isinstance(value, (str, bytes)):  # which float() would read
        with contextlib.suppress(TypeError, ValueError):
            return float(value)
    raise ArgumentError(f"{name}: must be a number, not {value!r}")


def floats(name: str, value: Any, *shape: int) -> npt.NDArray[np.float32]:
    """An array for C, which takes its length and type for granted; copied only where it must be."""
    array = np.ascontiguousarray(value, np.float32)
    if array.shape != shape:
        raise ArgumentError(f"{name}: must be of shape {shape}, this is {array.shape}")
    return array


class _Memory:
    """C memory for NumPy to look into, and who owns it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, where: int, shape: tuple[int, ...], kind: str, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": kind, "data": (where, True),
        }  # fmt: skip


def view_of(where: Optional[int], kind: Any, shape: tuple[int, ...], owner: object) -> npt.NDArray[Any]:
    """C memory as an array that can't be written to and keeps its owner alive."""
    if not where or 0 in shape:
        return np.empty(shape, kind)
    return np.asarray(_Memory(where, shape, TYPES[kind], owner))


TYPES = {kind: np.dtype(kind).str for kind in (ctypes.c_float, ctypes.c_uint32, ctypes.c_uint8)}
