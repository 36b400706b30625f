"""Weights out of the Hugging Face cache, and into it where they are missing.

The layout is the hub's own: blobs/HASH, snapshots/COMMIT/NAME that point to them, refs/REVISION. So
what huggingface_hub fetched is found here, and what is fetched here is found there.
"""

from __future__ import annotations

import contextlib
import email.message
import fcntl
import hashlib
import http.client
import logging
import os
import pathlib
import re
import secrets
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import IO, Any, Callable, NamedTuple, Optional, Union

from .errors import FileError, FormatError, NotFoundError, TapetumError

log = logging.getLogger("tapetum")
Progress = Callable[[str, float], None]

TIMEOUT = 30  # seconds without a byte
PIECE = 1 << 20
TRIES = 3
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
FILES = {".safetensors", ".ckpt", ".pth", ".pt"}
SHA256 = re.compile(r"[0-9a-f]{64}")


class _Remote(NamedTuple):
    """What the hub says of a file."""

    commit: str
    etag: str  # SHA-256 of a large file, git's SHA-1 of a small one
    size: int
    url: str  # where its bytes are: perhaps another host
    same_host: bool


def cache() -> pathlib.Path:
    """$HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub."""
    home = os.environ.get("HF_HOME")
    if not home:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        home = os.path.join(caches, "huggingface")
    return pathlib.Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


def resolve(repo_or_path: Union[str, os.PathLike[str], None], default: str, pinned: str,
            revision: Optional[str], names: tuple[str, ...],
            progress: Optional[Progress]) -> pathlib.Path:  # fmt: skip
    """A path as it is; a repository's name, or None for the default one, as its folder here."""
    if repo_or_path is not None:
        path = pathlib.Path(repo_or_path)
        named = isinstance(repo_or_path, str) and REPOSITORY.fullmatch(repo_or_path)
        if path.exists() or not named or path.suffix in FILES:
            return path
    repo = default if repo_or_path is None else str(repo_or_path)
    return snapshot(repo, revision or (pinned if repo == default else "main"), names, progress)


def snapshot(repo: str, revision: str, names: tuple[str, ...],
             progress: Optional[Progress] = None) -> pathlib.Path:  # fmt: skip
    """The folder that has these files of a repository: of the cache, else of the hub."""
    folder = cache() / ("models--" + repo.replace("/", "--"))
    found = _find(folder, revision, names)
    if found is None:
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise NotFoundError(
                f"{repo}: there is no such path, {', '.join(names)} is not in the cache at {folder}, "
                "and HF_HUB_OFFLINE forbids to fetch it; give a path to the weights"
            )
        for name in names:  # the later ones of the first one's commit, whatever the branch does
            found = _fetch(folder, repo, revision if found is None else found.name, name, progress)
    assert found is not None
    return found


def _find(folder: pathlib.Path, revision: str, names: tuple[str, ...]) -> Optional[pathlib.Path]:
    pointer = folder / "refs" / revision
    commit = pointer.read_text().strip() if pointer.is_file() else revision
    found = folder / "snapshots" / commit
    return found if all((found / name).is_file() for name in names) else None


# ---- the hub ----------------------------------------------------------------------------------


class _Told(Exception):
    """What a progress callback raised: no failure of the network."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None  # the caller follows, and decides who sees the token


def _token() -> Optional[str]:
    token = os.environ.get("HF_TOKEN")
    if not token:
        path = os.environ.get("HF_TOKEN_PATH") or cache().parent / "token"
        with contextlib.suppress(OSError):
            token = pathlib.Path(path).read_text()
    return (token or "").strip() or None


def _request(url: str, method: str, token: Optional[str], start: int = 0) -> http.client.HTTPResponse:
    headers = {"User-Agent": "tapetum", "Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers, method=method)
    opener = urllib.request.OpenerDirector()  # http and https only: no files, no ftp
    for handler in (urllib.request.ProxyHandler(), urllib.request.HTTPHandler(),
                    urllib.request.HTTPSHandler(), urllib.request.HTTPDefaultErrorHandler(),
                    urllib.request.HTTPErrorProcessor(), _Stay()):  # fmt: skip
        opener.add_handler(handler)
    response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT)
    return response


def _advice(code: int, repo: str) -> str:
    if code in (401, 403):
        return f"{code}: the repository is private or gated: accept its terms at the hub and set HF_TOKEN"
    if code == 404:
        return "404: there is no such repository, revision or file"
    return f"{code}: the hub can't serve it now; try again later, or give a path to the weights"


def _ask(repo: str, revision: str, name: str) -> _Remote:
    """Follows redirects within the host, so that the headers are the repository's own."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    url = f"{endpoint.rstrip('/')}/{repo}/resolve/{revision}/{urllib.parse.quote(name)}"
    for _ in range(5):
        target = url
        headers: email.message.Message
        try:
            with _request(url, "HEAD", _token()) as response:
                headers, code = response.headers, 200
        except urllib.error.HTTPError as error:
            headers, code = error.headers, error.code
            if not 300 <= code < 400:
                raise NotFoundError(f"{repo}: {name}: {_advice(code, repo)}") from None
            target = urllib.parse.urljoin(url, headers.get("Location") or "")
        scheme = urllib.parse.urlsplit(target).scheme
        if scheme not in ("https", urllib.parse.urlsplit(endpoint).scheme):
            raise FormatError(f"{repo}: {name}: the hub sends one to {scheme or 'nowhere'}, not to https")
        same = urllib.parse.urlsplit(target)[:2] == urllib.parse.urlsplit(url)[:2]
        etag = (headers.get("X-Linked-Etag") or headers.get("ETag") or "").removeprefix("W/").strip('"')
        size = headers.get("X-Linked-Size") or (headers.get("Content-Length") if code == 200 else None)
        commit = headers.get("X-Repo-Commit") or ""
        if commit and etag and (code == 200 or not same):
            if not COMMIT.fullmatch(commit) or not re.fullmatch(r"[0-9a-zA-Z][0-9a-zA-Z.-]{0,127}", etag):
                raise FormatError(f"{repo}: {name}: the hub's commit or hash is malformed")
            if COMMIT.fullmatch(revision) and commit != revision:
                raise FormatError(f"{repo}: {name}: the hub answers for another commit, {commit}")
            if size is None or not re.fullmatch(r"[0-9]{1,18}", size, re.ASCII):
                raise FormatError(f"{repo}: {name}: the hub does not say how large it is")
            return _Remote(commit, etag, int(size), target, same)
        if code == 200 or not same:
            break
        url = target
    raise FormatError(f"{repo}: {name}: {endpoint} does not answer as a Hugging Face hub does")


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> Iterator[None]:
    """Only one process fetches a blob; huggingface_hub locks the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("waiting for another process that fetches the same file (%s)", path)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: pathlib.Path, repo: str, revision: str, name: str,
           progress: Optional[Progress]) -> pathlib.Path:  # fmt: skip
    try:
        remote = _ask(repo, revision, name)
        blob = folder / "blobs" / remote.etag
        link = folder / "snapshots" / remote.commit / name
        blob.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / ".locks" / folder.name / f"{remote.etag}.lock"):
            if not blob.is_file():
                log.warning("fetching %s of %s (%.0f MB) to %s", name, repo, remote.size / 1e6, blob)
                _download(remote, blob, f"fetching {name}", progress)
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
        beside.symlink_to(os.path.relpath(blob, link.parent))
        os.replace(beside, link)
        if revision != remote.commit:
            _write(folder / "refs" / revision, remote.commit)
        return folder / "snapshots" / remote.commit
    except _Told as told:
        raise told.error from None
    except TapetumError:
        raise
    except (urllib.error.URLError, http.client.HTTPException, socket.timeout, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise NotFoundError(
            f"{repo}: {name} is not in the cache at {folder}, and the hub can't be reached "
            f"({reason}); give a path to the weights"
        ) from None
    except OSError as error:
        raise FileError(f"{repo}: {name}: {error}; is {folder.parent} a folder to write to?") from None


def _write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.write_text(text)
    os.replace(beside, path)


def _download(remote: _Remote, blob: pathlib.Path, what: str, progress: Optional[Progress]) -> None:
    """Goes on where an earlier try stopped; checked before it gets its name."""
    part = blob.with_name(blob.name + ".incomplete")
    free = shutil.disk_usage(blob.parent).free
    for attempt in range(TRIES):
        begun = part.stat().st_size if part.exists() else 0
        if begun > remote.size:
            part.unlink()
            begun = 0
        if remote.size - begun > free:
            raise FileError(
                f"{part}: {remote.size / 1e9:.1f} GB are wanted, {free / 1e9:.1f} are free; make room, "
                "or set HF_HUB_CACHE to a larger disk"
            )
        try:
            if begun < remote.size or not part.exists():
                _append(remote, part, begun, what, progress)
        except (OSError, http.client.HTTPException):
            if attempt + 1 == TRIES:
                raise
        if part.exists() and part.stat().st_size == remote.size:
            break
    if not part.exists() or part.stat().st_size != remote.size:
        raise FileError(f"{part}: the hub ended early, {TRIES} times; call again to go on from there")
    _check(remote, part)
    os.replace(part, blob)


def _append(remote: _Remote, part: pathlib.Path, begun: int, what: str,
            progress: Optional[Progress]) -> None:  # fmt: skip
    with _request(remote.url, "GET", _token() if remote.same_host else None, begun) as response:
        partial = response.status == 206
        if partial and not (response.headers.get("Content-Range") or "").startswith(f"bytes {begun}-"):
            raise FormatError(f"{part}: the hub sent another range than was asked for")
        with open(part, "ab" if partial else "wb") as file:
            done = begun if partial else 0
            while done <= remote.size:
                piece = response.read(PIECE)
                if not piece:
                    break
                file.write(piece)
                done += len(piece)
                if progress is not None:
                    try:
                        progress(what, min(1.0, done / max(1, remote.size)))
                    except Exception as error:  # noqa: BLE001 -- raised again by _fetch
                        raise _Told(error) from None
            file.flush()
            os.fsync(file.fileno())


def _check(remote: _Remote, part: pathlib.Path) -> None:
    if SHA256.fullmatch(remote.etag):
        digest = hashlib.sha256()
    elif COMMIT.fullmatch(remote.etag):
        digest = hashlib.sha1(b"blob %d\0" % remote.size)
    else:
        return  # a hub that is not git's; the size was checked
    file: IO[bytes]
    with open(part, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    if digest.hexdigest() != remote.etag:
        part.unlink()
        raise FormatError(f"{part}: the hub sent other bytes than it announced; they were thrown away")
