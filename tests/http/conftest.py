"""Starts the program as a server on a free port, and stops it."""

import base64
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import requests
from PIL import Image

BINARY = os.environ.get("TAPETUM_BINARY", "build/release/src/cli/tapetum")
SHARED = pathlib.Path(os.environ.get("TAPETUM_SHARED", "../shared"))
LONG = 120  # seconds that nothing here should need, not even under a sanitizer


class Server:
    """One process; its log goes to a file."""

    def __init__(self, folder, weights, *options, models=("superpoint",), environment=None,
                 port="0", wait=True):
        self.log_path = folder / f"log-{time.monotonic_ns()}"
        variables = {k: v for k, v in os.environ.items()
                     if k not in ("HF_MODEL", "SP_WEIGHTS_DIR", "HAMER_WEIGHTS_DIR", "TAPETUM_TOKEN",
                                  "TAPETUM_CPU", "TAPETUM_MANO")}
        variables["TAPETUM_CACHE"] = str(folder / "cache")
        command = [BINARY, "serve", *models, *options]
        if weights is not None:
            command += ["--weights", str(weights)]
        if port is not None:
            command += ["--port", port]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=variables | (environment or {}))
        self.url = None
        try:
            self.url = self.wait_for(r"Listening on (http://\S+?)[\"\n]").group(1)
            if wait:
                self.wait_for("Application startup complete")
        except BaseException:
            self.process.kill()
            raise

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern, seconds=LONG):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.log())
            if found:
                return found
            assert self.process.poll() is None, self.log()
            time.sleep(0.005)
        raise AssertionError(f"no {pattern!r} in the log:\n{self.log()}")

    @property
    def address(self):
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        return host.strip("[]"), int(port)

    def get(self, path, **more):
        return requests.get(self.url + path, timeout=LONG, **more)

    def predict(self, fields, path="/predict", **more):
        return requests.post(self.url + path, json=fields, timeout=LONG, **more)

    def send(self, body, content_type="image/png", path="/predict", **options):
        return requests.post(self.url + path, data=body, params=options, timeout=LONG,
                             headers={"Content-Type": content_type})

    def connect(self):
        return socket.create_connection(self.address, timeout=LONG)

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics").text, re.M)
        return float(found.group(1)) if found else 0.0

    def status(self, field):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M).group(1))

    def stop(self, how=signal.SIGTERM):
        """The exit status; a server that lives on is a failure."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(LONG)
        finally:
            self.process.kill()


def wait_until(condition, seconds=LONG):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def text64(data):
    return base64.b64encode(data).decode()


def blobs(width=96, height=80, seed=1):
    """A grey picture with structure, so that something is found."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 8, width // 8), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.NEAREST)


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "synthetic.safetensors"
    subprocess.run([BINARY, "synth", "superpoint", str(path)], check=True,
                   stdout=subprocess.DEVNULL, timeout=LONG)
    return path


@pytest.fixture(scope="session")
def hamer_weights(tmp_path_factory):
    """The same network 600 times smaller."""
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    subprocess.run([BINARY, "synth", "hamer", str(path), "--config", "tiny"], check=True,
                   stdout=subprocess.DEVNULL, timeout=LONG)
    return path


@pytest.fixture(scope="session")
def mano(tmp_path_factory):
    """A hand that nobody has a licence to, in the real file's format."""
    source = SHARED / "golden/hamer/MANO_RIGHT_synthetic.pkl"
    if not source.exists():
        pytest.skip("no ../shared: the synthetic MANO file is not here")
    return shutil.copy(source, tmp_path_factory.mktemp("mano") / "MANO_RIGHT.pkl")


@pytest.fixture(scope="session")
def picture():
    return encoded(blobs())


@pytest.fixture(scope="module")
def server(tmp_path_factory, weights):
    """One that a module's tests share; they must leave it as they found it."""
    server = Server(tmp_path_factory.mktemp("server"), weights)
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def start(tmp_path, weights):
    """Starts servers with options of their own; all must end well, unless stopped by the test."""
    started = []

    def run(*options, **more):
        started.append(Server(tmp_path, more.pop("weights", weights), *options, **more))
        return started[-1]

    yield run
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0, server.log()
