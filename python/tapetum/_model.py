"""What the two models share: loading, the pool of sessions, what is said of a model."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import logging
import math
import os
import threading
from typing import Any, Callable, Optional, Union

from . import _library as c
from .errors import ArgumentError, CancelledError
from .pictures import Source, encode_path

library = c.library
log = logging.getLogger("tapetum")

#: Called now and then while a model loads, from another thread, with what is done and how much of
#: it, 0 to 1. What it raises ends the load.
Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What was loaded, and how it runs. The last three belong to the accelerator card; on a CPU
    they are None."""

    kind: str
    path: str
    format: str
    licence: str
    n_parameters: int
    backend: str
    isa: str
    threads: int
    precision: str
    gate: Optional[float]
    load_ms: float
    packed_bytes: int
    cached: bool
    descriptor_dim: int
    mano_available: bool
    mano_path: Optional[str]
    dispatch: Optional[str] = None
    num_command_queues: Optional[int] = None
    grid: Optional[tuple[int, int]] = None


def text(value: Optional[bytes]) -> str:
    return os.fsdecode(value) if value else ""


_said: set[str] = set()


def say_once(licence: str) -> None:
    """A licence, on the log "tapetum", for the first model of the process that has it."""
    if licence not in _said:
        _said.add(licence)
        log.warning("%s", licence)


def encode(name: str, value: Optional[str]) -> Optional[bytes]:
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"{name}: must be a str or None, not a {type(value).__name__}")
    return None if value is None else encode_path(name, value)


def check_device(device: Optional[str], device_id: int) -> None:
    if device not in (None, "cpu"):
        raise ArgumentError(f"device: 'cpu' is what this build runs on, not {device!r}")
    if isinstance(device_id, bool) or not isinstance(device_id, int) or device_id < 0:
        raise ArgumentError(f"device_id: must be a whole number of at least 0, not {device_id!r}")


def stoppable(work: Callable[[threading.Event], None]) -> None:
    """Runs work, which hands the event to a callback of C, so that Ctrl-C ends it.

    A signal's exception that struck inside a ctypes callback would be printed and lost. So the main
    thread, where signals are heard, only waits, and the call runs in a thread of its own. It owns
    what C writes to: signals that come thick and fast can drive the main thread out of here early.
    """
    stop, done = threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        work(stop)
        return
    raised: list[BaseException] = []

    def target() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 -- raised again below
            raised.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=target, name="tapetum")
    interrupted: list[BaseException] = []
    try:
        thread.start()
        done.wait()
    except BaseException as error:  # noqa: BLE001 -- raised again below
        interrupted.append(error)
        stop.set()
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:  # noqa: BLE001 -- raised again below
            interrupted.append(error)
            stop.set()
    for what in interrupted[:1] + raised:
        raise what


class Network:
    """A model of the library and its sessions: as many as calls run at once."""

    def __init__(self, path: Union[str, os.PathLike[str]], *, kind: str,
                 precision: Optional[str], mano: Optional[str], cache: Optional[str],
                 threads: Optional[int], gate: bool, progress: Optional[Progress]) -> None:  # fmt: skip
        self._idle: list[Any] = []  # whose append and pop need no lock
        self._closed = False
        engine, model = ctypes.POINTER(c.Engine)(), ctypes.POINTER(c.Model)()
        engine_options = c.sized(c.EngineOptions, "tap_engine_options_init")
        if threads is not None:
            if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 256:
                raise ArgumentError(f"threads: must be 1 to 256 or None, not {threads!r}")
            engine_options.n_threads = threads
        c.call("tap_engine_open", ctypes.byref(engine), ctypes.byref(engine_options))
        self._engine: Optional[c.Owner] = c.Owner(engine, library.tap_engine_release)
        options = c.sized(c.ModelOptions, "tap_model_options_init")
        options.kind, options.skip_gate = kind.encode(), not gate
        options.precision = encode("precision", precision)
        options.mano, options.cache = encode("mano_path", mano), encode("cache", cache)
        weights = encode_path("repo_or_path", path)
        failed: list[BaseException] = []

        def load(stop: threading.Event) -> None:
            def tell(_user: Any, what: bytes, done: int, total: int) -> bool:
                try:
                    if progress is not None:
                        progress(what.decode(), done / total if total else 0.0)
                except BaseException as error:  # noqa: BLE001 -- raised below
                    failed.append(error)
                return not failed and not stop.is_set()

            options.progress = c.ProgressCallback(tell)
            try:
                loaded = ctypes.byref(model)
                c.call("tap_model_load", loaded, engine, weights, ctypes.byref(options))
            except CancelledError:
                if failed:
                    raise failed[0] from None
                raise
            self._model: Optional[c.Owner] = c.Owner(model, library.tap_model_release)

        stoppable(load)
        self.info = self._describe(model, engine)

    def _describe(self, model_handle: Any, engine_handle: Any) -> ModelInfo:
        model, engine = c.sized(c.ModelInfo), c.sized(c.EngineInfo)
        library.tap_model_describe(model_handle, ctypes.byref(model))
        library.tap_engine_describe(engine_handle, ctypes.byref(engine))
        correlation = None if math.isnan(model.gate_correlation) else model.gate_correlation
        say_once("weights: " + text(model.licence))
        if model.mano_available:
            say_once("MANO: " + text(model.mano_licence))
        return ModelInfo(
            kind=text(model.kind), path=text(model.path), format=text(model.format),
            licence=text(model.licence), n_parameters=model.n_parameters,
            backend=text(engine.backend), isa=text(engine.isa), threads=engine.n_threads,
            precision=text(model.precision), gate=correlation, load_ms=model.load_ms,
            packed_bytes=model.packed_bytes, cached=model.cached,
            descriptor_dim=model.descriptor_dim, mano_available=model.mano_available,
            mano_path=text(model.mano_path) if model.mano_available else None,
        )  # fmt: skip

    def borrow(self) -> Any:
        """A session for one call alone, to be given back. In C it keeps its model and engine."""
        if self._closed:
            raise ArgumentError("the model is closed")
        try:
            return self._idle.pop()
        except IndexError:
            model = self._model  # kept by this name, whatever another thread closes
        if model is None:
            raise ArgumentError("the model is closed")
        session = ctypes.POINTER(c.Session)()
        c.call("tap_session_create", ctypes.byref(session), model.handle)
        return session

    def give_back(self, session: Any) -> None:
        self._idle.append(session)
        if self._closed:  # while the call ran
            self._drain()

    def engine(self) -> c.Owner:
        engine = self._engine
        if engine is None:
            raise ArgumentError("the model is closed")
        return engine

    def close(self) -> None:
        """Lets the memory go once no call runs. May be called again."""
        self._closed = True
        self._model = self._engine = None
        self._drain()

    @property
    def closed(self) -> bool:
        return self._closed

    def _drain(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                library.tap_session_free(self._idle.pop())

    def __del__(self) -> None:
        self._drain()


def run(name: str, session: Any, source: Source, options: Any, result: Any) -> None:
    """tap_superpoint_... or tap_hamer_..., by what the picture was given as."""
    options = ctypes.byref(options)
    if source.path is not None:
        c.call(f"tap_{name}_file", session, source.path, options, result)
    elif source.encoded is not None:
        c.call(f"tap_{name}_encoded", session, c.address(source.encoded), source.encoded.size,
               options, result)  # fmt: skip
    else:
        c.call(f"tap_{name}_pixels", session, ctypes.byref(source.image), options, result)


class Deferred:
    """A result whose fields are read out of C's memory when the first of them is asked for: a call
    costs less, above all just after the network, when the caches hold nothing of Python's."""

    _image: Any

    @classmethod
    def _deferred(cls, read: Callable[[], dict[str, Any]], image: Any) -> Any:
        result = object.__new__(cls)
        own = result.__dict__
        own["_read"], own["_image"] = read, image
        return result

    def __getattr__(self, name: str) -> Any:  # called only for what is not there
        own = self.__dict__
        if "_read" in own and not name.startswith("__"):
            own.update(own["_read"]())
            if name in own:
                return own[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {**{name: getattr(self, name) for name in names}, "_image": None}


class Pretrained:
    """What both models do: `with`, close(), info; no pickling."""

    _network: Network

    @property
    def info(self) -> ModelInfo:
        """What was loaded, and how it runs."""
        return self._network.info

    def close(self) -> None:
        """Lets the model's memory go. Results stay. May be called again."""
        self._network.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: load it in each process, or fork after "
            "loading (its packed weights are shared)"
        )

    def __repr__(self) -> str:
        info = self.info
        state = "closed" if self._network.closed else f"{info.isa}, {info.precision}"
        return f"<tapetum.{type(self).__name__} {info.path!r}, {state}>"


def write_synthetic_weights(kind: str, path: Union[str, os.PathLike[str]]) -> None:
    """Weights from a formula, to try and to time a model without its licensed ones: "superpoint",
    "hamer" (2.5 GB) or "hamer-tiny" (1 MB). What they find means nothing."""
    c.call("tap_synth_write", encode("kind", kind), encode_path("path", path))
