"""What can go wrong, as exceptions.

Every one is a `TapetumError` with the C library's message and its `status`, a name such as
"TAP_ERR_FORMAT". Where Python people expect one of the language's own, it is that one too.
"""

from __future__ import annotations

from typing import Any


class TapetumError(Exception):
    """The base of all. `status` is the C library's code by name."""

    status: str = "TAP_ERR_INTERNAL"


class ArgumentError(TapetumError, ValueError):
    """The call is wrong: the message names the parameter."""

    status = "TAP_ERR_ARGUMENT"


class FormatError(TapetumError, ValueError):
    """The bytes of a file or of a picture are wrong."""

    status = "TAP_ERR_FORMAT"


class LimitError(TapetumError, ValueError):
    """Well formed, but larger than a stated limit."""

    status = "TAP_ERR_LIMIT"


class UnsupportedError(TapetumError):
    """Well formed, but not something that this build or model does."""

    status = "TAP_ERR_UNSUPPORTED"


class NotFoundError(TapetumError, FileNotFoundError):
    """There is no such file."""

    status = "TAP_ERR_NOT_FOUND"


class FileError(TapetumError, OSError):
    """The system refused to read or write."""

    status = "TAP_ERR_IO"


class OutOfMemoryError(TapetumError, MemoryError):
    """Out of memory."""

    status = "TAP_ERR_MEMORY"


class DeviceError(TapetumError):
    """The backend's hardware failed."""

    status = "TAP_ERR_DEVICE"


class CancelledError(TapetumError):
    """Asked to stop."""

    status = "TAP_ERR_CANCELLED"


class InternalError(TapetumError):
    """Our own fault; please report it."""

    status = "TAP_ERR_INTERNAL"


class ServerError(TapetumError):
    """A server answered with an error: its text, and the HTTP status as `code`."""

    status = "HTTP"

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.code)


class TimedOutError(TapetumError, TimeoutError):
    """A server gave no answer in time."""

    status = "HTTP"


class UnreachableError(TapetumError, ConnectionError):
    """There is no server, or it hung up."""

    status = "HTTP"


#: The C library's codes, `tap_status`.
BY_CODE: dict[int, type[TapetumError]] = {
    1: ArgumentError,
    2: FormatError,
    3: LimitError,
    4: UnsupportedError,
    5: NotFoundError,
    6: FileError,
    7: OutOfMemoryError,
    8: DeviceError,
    9: CancelledError,
    10: InternalError,
}
