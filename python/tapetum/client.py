"""A client of a tapetum server, or of the card's: the same results, from another machine.

>>> client = tapetum.Client("http://robot:20000")                       # doctest: +SKIP
>>> points = client.superpoint("photo.jpg", max_keypoints=500)          # doctest: +SKIP
>>> hand = client.hamer("photo.jpg", bbox=[20, 170, 295, 260])          # doctest: +SKIP
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import time
import urllib.parse
from typing import Any, Optional

import numpy as np

from .errors import ArgumentError, FormatError, ServerError, TimedOutError, UnreachableError
from .hamer import Hand, Hands
from .pictures import Picture, PictureLike, read
from .superpoint import Keypoints, Matches

MOST_BYTES = 1 << 28  # of an answer
PIECE = 1 << 20


class Client:
    """Speaks to a server. Holds no connection between calls, so threads may share it and a fork
    may keep it.

    url       "http://host:port", or https with the system's certificates.
    timeout   seconds that a call may take in all, waiting for a busy server included.
    retries   how often a 503 is asked again, after as long as its Retry-After says.
    token     the server's --token, if it has one.
    """

    def __init__(self, url: str = "http://127.0.0.1:20000", *, timeout: float = 60.0, retries: int = 5,
                 token: Optional[str] = None) -> None:  # fmt: skip
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ArgumentError(f"url: must be http://host:port, not {url!r}")
        try:
            self._port = parts.port
        except ValueError:
            raise ArgumentError(f"url: the port of {url!r} is none") from None
        if not timeout > 0:
            raise ArgumentError(f"timeout: must be seconds above 0, not {timeout!r}")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self.url, self.timeout, self.retries, self._token = url, timeout, retries, token

    # ---- models -------------------------------------------------------------------------------

    def superpoint(self, image: PictureLike, *, bgr: bool = False, **options: Any) -> Keypoints:
        """`SuperPoint.__call__` over HTTP, with its options by the same names; size may be a pair.
        Descriptors have travelled as 16-bit floats."""
        answer = self._predict("superpoint", {"image": _encode(image, bgr), **_options(options)})
        _expect(answer, "keypoints", "SuperPoint")
        return Keypoints.from_dict(answer, image)

    def match(self, image_a: PictureLike, image_b: PictureLike, *, bgr: bool = False,
              **options: Any) -> Matches:  # fmt: skip
        """`SuperPoint.match` over HTTP; the results have no descriptors."""
        body = {"image_a": _encode(image_a, bgr), "image_b": _encode(image_b, bgr)}
        answer = self._post("superpoint", "match", {**body, **_options(options)})
        _expect(answer, "matches", "SuperPoint")
        a, b = (Keypoints.from_dict(answer[x], i) for x, i in (("a", image_a), ("b", image_b)))
        indices = np.array(answer["matches"], np.int64).reshape(-1, 2)
        return Matches(a, b, indices, np.array(answer["similarity"], np.float32))

    def hamer(
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
        bgr: bool = False,
    ) -> Any:
        """`HamerModel.__call__` over HTTP: a `Hand`, or with a list of boxes `Hands`."""
        body: dict[str, Any] = {
            "image": _encode(image, bgr), "is_right": np.asarray(is_right).tolist(),
            "rescale_factor": rescale_factor, "return_vertices": return_vertices,
            "return_faces": return_vertices, "rotations": "image", "crop": policy, "exif": exif,
        }  # fmt: skip
        if bbox is not None:
            body["bbox"] = np.asarray(bbox, np.float64).tolist()
        if camera is not None:
            body.update(zip(("fx", "fy", "cx", "cy"), camera))
        answer = self._predict("hamer", body)
        _expect(answer, "rotmats" if "hands" not in answer else "hands", "HaMeR")
        if "hands" in answer:
            return Hands(Hand.from_dict(hand, image) for hand in answer["hands"])
        return Hand.from_dict(answer, image)

    # ---- the server itself ----------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """GET /health: "status" is "ok" or "starting"."""
        return self._get("/health")

    def info(self) -> dict[str, Any]:
        """GET /info: model, weights, licence, defaults, limits."""
        return self._get("/info")

    def models(self) -> list[dict[str, Any]]:
        """GET /v1/models: what is served."""
        models: list[dict[str, Any]] = self._get("/v1/models")["data"]
        return models

    # ---- HTTP -----------------------------------------------------------------------------------

    def _get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path, None)

    def _predict(self, model: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._post(model, "predict", body)

    def _post(self, model: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """By the model's own route; the card's server has only the plain one."""
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"an option is nothing that JSON has: {error}") from None
        try:
            return self._call("POST", f"/{model}/{verb}", data)
        except ServerError as error:
            if error.code != 404:
                raise
        return self._call("POST", f"/{verb}", data)

    def _call(self, method: str, path: str, body: Optional[bytes]) -> dict[str, Any]:
        until = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            status, after, data = self._once(method, path, body, until)
            if status != 503 or attempt == self.retries:
                break
            wait = min(float(after), 60.0) if after.isdigit() else 1.0
            if time.monotonic() + wait >= until:
                break
            time.sleep(wait)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if status != 200:
            detail = answer.get("detail") if isinstance(answer, dict) else None
            raise ServerError(f"{self.url}{path}: {status}: {detail or 'no reason was given'}", status)
        if not isinstance(answer, dict):
            raise FormatError(f"{self.url}{path}: the answer is no JSON object")
        return answer

    def _once(self, method: str, path: str, body: Optional[bytes], until: float) -> tuple[int, str, bytes]:
        connection = self._connection(until)
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            data = bytearray()
            while piece := response.read1(PIECE):
                data += piece
                if len(data) > MOST_BYTES:
                    raise FormatError(f"{self.url}{path}: the answer is over {MOST_BYTES >> 20} MiB")
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if connection.sock is not None:
                    connection.sock.settimeout(left)
            return response.status, response.headers.get("Retry-After") or "", bytes(data)
        except (TimeoutError, socket.timeout):  # two things in Python 3.9
            raise TimedOutError(f"{self.url}{path}: no whole answer in {self.timeout:g} s; give a longer "
                                "timeout, or look at the server's log") from None  # fmt: skip
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self.url}{path}: {error or type(error).__name__}; is the server "
                                   "running? `tapetum serve` starts one") from None  # fmt: skip
        finally:
            connection.close()

    def _connection(self, until: float) -> http.client.HTTPConnection:
        left = max(0.001, until - time.monotonic())
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=left, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=left)

    def __repr__(self) -> str:
        return f"<tapetum.Client {self.url!r}>"


def _encode(image: PictureLike, bgr: bool) -> str:
    """Files and bytes as they are, arrays as PNG."""
    source = read(image, bgr)
    if source.path is not None:
        with open(os.fsdecode(source.path), "rb") as file:
            return base64.b64encode(file.read()).decode()
    if source.encoded is not None:
        return base64.b64encode(source.encoded.tobytes()).decode()
    return base64.b64encode(Picture.open(image, bgr=bgr).encode()).decode()


def _options(options: dict[str, Any]) -> dict[str, Any]:
    size = options.get("size")
    if isinstance(size, (tuple, list)) and len(size) == 2:
        options = {**options, "size": "{}x{}".format(*size)}
    return options


def _expect(answer: dict[str, Any], key: str, model: str) -> None:
    if key not in answer:
        raise FormatError(f"the answer has no {key!r}: is it {model} that the server runs? "
                          "client.models() says")  # fmt: skip
