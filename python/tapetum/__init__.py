"""Vision models, run natively: HaMeR's hands, SuperPoint's keypoints.

>>> import tapetum
>>> model = tapetum.SuperPoint.from_pretrained()        # doctest: +SKIP
>>> points = model("photo.jpg", max_keypoints=500)      # doctest: +SKIP
>>> points.keypoints.shape, points.descriptors.shape    # doctest: +SKIP
((500, 2), (500, 256))
"""

from __future__ import annotations

from ._library import library as _c
from ._model import ModelInfo, write_synthetic_weights
from .client import Client
from .errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    FileError,
    FormatError,
    InternalError,
    LimitError,
    NotFoundError,
    OutOfMemoryError,
    ServerError,
    TapetumError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from .hamer import HamerModel, Hand, Hands, Mesh
from .pictures import Picture
from .superpoint import Keypoints, Matches, SuperPoint

__version__: str = _c.tap_version().decode()

__all__ = [
    "ArgumentError", "CancelledError", "Client", "DeviceError", "FileError", "FormatError",
    "HamerModel", "Hand", "Hands", "InternalError", "Keypoints", "LimitError", "Matches", "Mesh",
    "ModelInfo", "NotFoundError", "OutOfMemoryError", "Picture", "ServerError", "SuperPoint",
    "TapetumError", "TimedOutError", "UnreachableError", "UnsupportedError", "__version__",
    "write_synthetic_weights",
]  # fmt: skip
