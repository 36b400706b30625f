"""A client of a tapetum server, or of the card's: the same results, from another machine.

>>> client = tapetum.Client("http://robot:20000")                       # doctest: +SKIP
>>> points = client.superpoint("photo.jpg", max_keypoints=500)          # doctest: +SKIP
>>> hand = client.hamer("photo.jpg", bbox=[20, 170, 295, 260])          # doctest: +SKIP
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np

from .errors import (
    ArgumentError,
    FormatError,
    ServerError,
    TapetumError,
    TimedOutError,
    UnreachableError,
)
from .hamer import Hand, Hands
from .pictures import Picture, PictureLike, Shown, number, read, read_file
from .superpoint import Keypoints, Matches

MOST_BYTES = 1 << 28  # of an answer
PIECE = 1 << 20
MOST_SECONDS = 86400
MOST_RETRIES = 1000
POINTS = {"max_keypoints", "keypoint_threshold", "nms_radius", "return_descriptors", "size", "nms", "gray",
          "coordinates", "exif"}  # fmt: skip


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
        if not 0 < timeout <= MOST_SECONDS:
            raise ArgumentError(f"timeout: must be seconds above 0, a day at most, not {timeout!r}")
        if not 0 <= retries <= MOST_RETRIES:
            raise ArgumentError(f"retries: must be 0 to {MOST_RETRIES}, not {retries!r}")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self.url, self.timeout, self.retries, self._token = url, timeout, retries, token

    # ---- models -------------------------------------------------------------------------------

    def superpoint(self, image: PictureLike, *, bgr: bool = False, **options: Any) -> Keypoints:
        """`SuperPoint.__call__` over HTTP, with its options by the same names; size may be a pair.
        Descriptors have travelled as 16-bit floats."""
        answer = self._predict("superpoint", {"image": _encode(image, bgr), **_options(options, POINTS)})
        _expect(answer, "keypoints", "SuperPoint")
        points: Keypoints = _shown(Keypoints.from_dict(answer), image, bgr, options.get("exif", "ignore"))
        return points

    def match(self, image_a: PictureLike, image_b: PictureLike, *, bgr: bool = False,
              **options: Any) -> Matches:  # fmt: skip
        """`SuperPoint.match` over HTTP; the results have no descriptors."""
        body = {"image_a": _encode(image_a, bgr), "image_b": _encode(image_b, bgr)}
        allowed = POINTS - {"return_descriptors"} | {"min_similarity", "ratio"}
        answer = self._post("superpoint", "match", {**body, **_options(options, allowed)})
        _expect(answer, "matches", "SuperPoint")
        with _understanding(answer):
            a, b = (_shown(Keypoints.from_dict(answer[x]), image, bgr, options.get("exif", "ignore"))
                    for x, image in (("a", image_a), ("b", image_b)))  # fmt: skip
            indices = np.array(answer["matches"], np.int64).reshape(-1, 2)
            similarity = np.array(answer["similarity"], np.float32).reshape(len(indices))
            if len(indices) and ((indices < 0).any() or (indices.max(0) >= (len(a), len(b))).any()):
                raise ValueError("a match of a keypoint that there is not")
            return Matches(a, b, indices, similarity)

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
            "rescale_factor": number("rescale_factor", rescale_factor),
            "return_vertices": bool(return_vertices), "return_faces": bool(return_vertices),
            "rotations": "image", "crop": policy, "exif": exif,
        }  # fmt: skip
        if bbox is not None:
            try:
                body["bbox"] = np.asarray(bbox, np.float64).tolist()
            except (TypeError, ValueError):
                raise ArgumentError(
                    f"bbox: must be (x1, y1, x2, y2) or a list of such, not {bbox!r}"
                ) from None
        if camera is not None:
            try:
                fx, fy, cx, cy = map(float, camera)
            except (TypeError, ValueError):
                raise ArgumentError(f"camera: must be (fx, fy, cx, cy), not {camera!r}") from None
            body.update(fx=fx, fy=fy, cx=cx, cy=cy)
        answer = self._predict("hamer", body)
        _expect(answer, "rotmats" if "hands" not in answer else "hands", "HaMeR")
        with _understanding(answer):
            if "hands" not in answer:
                return _shown(Hand.from_dict(answer), image, bgr, exif)
            return Hands(_shown(Hand.from_dict(hand), image, bgr, exif) for hand in answer["hands"])

    # ---- the server itself ----------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """GET /health: "status" is "ok" or "starting"."""
        return self._get("/health")

    def info(self) -> dict[str, Any]:
        """GET /info: model, weights, licence, defaults, limits."""
        return self._get("/info")

    def models(self) -> list[dict[str, Any]]:
        """GET /v1/models: what is served."""
        answer = self._get("/v1/models")
        with _understanding(answer):
            return [dict(model) for model in answer["data"]]

    # ---- HTTP -----------------------------------------------------------------------------------

    def _get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path, None, time.monotonic() + self.timeout)

    def _predict(self, model: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._post(model, "predict", body)

    def _post(self, model: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """By the model's own route; the card's server has only the plain one."""
        until = time.monotonic() + self.timeout
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"an option is nothing that JSON has: {error}") from None
        try:
            return self._call("POST", f"/{model}/{verb}", data, until)
        except ServerError as error:
            if error.code != 404:
                raise
        return self._call("POST", f"/{verb}", data, until)

    def _call(self, method: str, path: str, body: Optional[bytes], until: float) -> dict[str, Any]:
        status, after, data = self._once(method, path, body, until)
        for _ in range(self.retries):
            wait = min(float(after), 60.0) if re.fullmatch(r"[0-9]{1,9}", after, re.ASCII) else 1.0
            if status != 503 or time.monotonic() + wait >= until:
                break
            time.sleep(wait)
            status, after, data = self._once(method, path, body, until)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            detail = answer.get("detail") if isinstance(answer, dict) else None
            raise ServerError(f"{self.url}{path}: {status}: {detail or 'no reason was given'}", status)
        if not isinstance(answer, dict):
            raise FormatError(f"{self.url}{path}: the answer is no JSON object")
        return answer

    def _once(self, method: str, path: str, body: Optional[bytes], until: float) -> tuple[int, str, bytes]:
        """One request. A socket's time-out bounds each of its reads; that all of them together end in
        time, a clock sees to that hangs up."""
        connection = self._connection(until)
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        clock: Optional[threading.Timer] = None
        try:
            connection.connect()
            clock = threading.Timer(max(0, until - time.monotonic()), _hang_up, [connection.sock])
            clock.daemon = True
            clock.start()
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            data = bytearray()
            while piece := response.read1(PIECE):
                data += piece
                if len(data) > MOST_BYTES:
                    raise FormatError(f"{self.url}{path}: the answer is over {MOST_BYTES >> 20} MiB")
            if time.monotonic() >= until:  # what ended may have been hung up on
                raise TimeoutError
            if response.length:  # of what was announced, so much did not come
                raise http.client.IncompleteRead(bytes(data[:0]), response.length)
            return response.status, response.headers.get("Retry-After") or "", bytes(data)
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() >= until or isinstance(error, socket.timeout):
                raise TimedOutError(
                    f"{self.url}{path}: no whole answer in {self.timeout:g} s; give a longer timeout, or "
                    "look at the server's log"
                ) from None
            raise UnreachableError(f"{self.url}{path}: {error or type(error).__name__}; is the server "
                                   "running? `tapetum serve` starts one") from None  # fmt: skip
        finally:
            if clock is not None:
                clock.cancel()
            connection.close()

    def _connection(self, until: float) -> http.client.HTTPConnection:
        left = max(0.001, until - time.monotonic())
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=left, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=left)

    def __repr__(self) -> str:
        return f"<tapetum.Client {self.url!r}>"


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _understanding(answer: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except TapetumError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a stranger's answer may provoke
        keys = ", ".join(list(answer)[:5])
        raise FormatError(f"no answer ({keys}): {type(error).__name__}: {error}") from None


def _shown(result: Any, image: PictureLike, bgr: bool, exif: str) -> Any:
    return dataclasses.replace(result, _image=Shown(image, bgr, exif))


def _encode(image: PictureLike, bgr: bool) -> str:
    """Files and bytes as they are, arrays as PNG."""
    source = read(image, bgr)
    if source.path is not None:
        return base64.b64encode(read_file(source.path).tobytes()).decode()
    if source.encoded is not None:
        return base64.b64encode(source.encoded.tobytes()).decode()
    return base64.b64encode(Picture.open(image, bgr=bgr).encode()).decode()


def _options(options: dict[str, Any], known: set[str]) -> dict[str, Any]:
    for name in options:
        if name not in known:
            raise ArgumentError(f"{name}: no option of this call; there are {', '.join(sorted(known))}")
    options = {name: value.item() if isinstance(value, np.generic) else value
               for name, value in options.items()}  # fmt: skip
    size = options.get("size")
    if isinstance(size, (tuple, list)) and len(size) == 2:
        options["size"] = "{}x{}".format(*size)
    return options


def _expect(answer: dict[str, Any], key: str, model: str) -> None:
    if key not in answer:
        raise FormatError(f"the answer has no {key!r}: is it {model} that the server runs? "
                          "client.models() says")  # fmt: skip
