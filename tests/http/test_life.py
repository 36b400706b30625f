"""Start, ports, signals, end."""

import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests

from conftest import BINARY, LONG, Server, blobs, encoded, text64

SLOW = ("--isa", "scalar", "--threads", "1")  # a forward pass of seconds
SLOW_SIZE = "480x320"


@pytest.fixture(scope="module")
def photo():
    return encoded(blobs(480, 320))


def test_what_a_starting_server_says(start, picture):
    server = start(*SLOW, wait=False)
    health = server.get("/health")
    assert health.status_code == 200
    assert health.json() == {"status": "starting", "model": "superpoint-p150",
                             "device": {"arch": "cpu", "id": 0, "open": False}}
    assert server.get("/livez").status_code == 200
    ready = server.get("/readyz")
    assert ready.status_code == 503 and ready.json() == {"status": "starting"}
    assert ready.headers["Retry-After"]
    assert server.get("/info").json()["weights"]["loaded"] is False
    early = server.send(picture)
    assert early.status_code == 503 and early.headers["Retry-After"]
    assert "starting" in early.json()["detail"]
    server.wait_for("Application startup complete")
    assert server.get("/readyz").status_code == 200
    assert server.get("/health").json()["status"] == "ok"


def test_log_lines_that_others_wait_for(start):
    log = start().log()
    places = [log.index(words) for words in ("Opening device 0", "Loading weights", "Warming up",
                                             "Warmup complete", "Application startup complete")]
    assert places == sorted(places)
    assert "non-commercial research only" in log


def test_a_signal_while_starting(start):
    server = start(wait=False)
    assert server.stop() == 0
    assert "startup complete" not in server.log()


# ---- ports ------------------------------------------------------------------------------------


def test_the_next_free_port(start):
    first = start(port=None)
    second = start(port=None)
    ports = [server.address[1] for server in (first, second)]
    assert 20000 <= ports[0] < ports[1] < 20100
    assert first.get("/livez").status_code == second.get("/livez").status_code == 200


def run(*arguments, **more):
    return subprocess.run([BINARY, "serve", "superpoint", *arguments], capture_output=True,
                          text=True, timeout=LONG, **more)


def test_a_port_in_use(server, weights):
    port = str(server.address[1])
    out = run("--weights", str(weights), "--port", port)
    assert out.returncode == 4 and out.stdout == ""
    last = out.stderr.strip().splitlines()[-1]
    assert last.startswith("tapetum: serve: ") and port in last and "--port" in last
    assert server.get("/livez").status_code == 200


def test_only_this_machine_unless_told(server):
    assert server.address[0] == "127.0.0.1"


def test_every_address_warns(start):
    server = start("--host", "0.0.0.0")
    assert "token" in re.search(r"WARNING (.*)", server.log()).group(1)


def test_ipv6(start):
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = start("--host", "::1")
    assert server.url.startswith("http://[::1]:")
    assert server.get("/livez").status_code == 200


@pytest.mark.parametrize("options,status,word", [
    (["--host", "256.1.2.3"], 2, "--host"), (["--host", "203.0.113.9"], 2, "address"),
    (["--queue", "0"], 2, "queue"), (["--max-body", "300"], 2, "max-bodies"),
    (["--port", "70000"], 2, "--port"), (["--isa", "mmx"], 2, "mmx")])
def test_options_that_cannot_be(weights, options, status, word):
    out = run("--weights", str(weights), "--port", "0", *options)
    assert out.returncode == status, out.stderr
    assert word in out.stderr and out.stderr.strip().splitlines()[-1].startswith("tapetum: ")


def test_weights_that_do_not_load(tmp_path):
    bad = tmp_path / "model.safetensors"
    for content, word in ((b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
                          (b"<!doctype html><html>", "HTML"), (b"", "empty")):
        bad.write_bytes(content)
        out = run("--weights", str(bad), "--port", "0")
        assert out.returncode == 3, out.stderr
        last = out.stderr.strip().splitlines()[-1]
        assert last.startswith("tapetum: serve: ") and str(bad) in last and word in last
    out = run("--weights", str(tmp_path / "none"), "--port", "0")
    assert out.returncode == 3


def test_mesh_of_many_devices(weights):
    out = run("--weights", str(weights), "--port", "0",
              env=os.environ | {"TT_MESH_SHAPE": "2x4"})
    assert out.returncode == 2 and "TT_MESH_SHAPE" in out.stderr


# ---- the end ----------------------------------------------------------------------------------


def post(server, photo, results, **options):
    try:
        results.append(server.send(photo, size=SLOW_SIZE, **options))
    except requests.RequestException as error:
        results.append(error)


def in_flight(server, photo, n):
    """n requests on their way, one of them running; the answers come into the list."""
    results = []
    threads = [threading.Thread(target=post, args=(server, photo, results)) for _ in range(n)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LONG
    while server.metric("tapetum_in_flight") < n and time.monotonic() < end:
        time.sleep(0.01)
    return threads, results


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_drain(start, photo, how):
    server = start(*SLOW, "--drain-timeout", "60")
    threads, results = in_flight(server, photo, 5)
    idle = server.connect()  # an idle connection must not hold the end up
    begun = time.monotonic()
    server.process.send_signal(how)
    server.wait_for("Shutting down")
    with pytest.raises(requests.ConnectionError):
        server.get("/livez")
    for thread in threads:
        thread.join()
    assert server.process.wait(LONG) == 0
    idle.close()
    codes = sorted(answer.status_code for answer in results)
    assert codes[0] == 200 and set(codes) == {200, 503}, codes
    for answer in results:
        if answer.status_code == 503:
            assert "shutting down" in answer.json()["detail"] and answer.headers["Retry-After"]
    assert time.monotonic() - begun < 60
    assert "Shutdown complete" in server.log()


def test_an_idle_server_ends_at_once(start):
    server = start()
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 5


def test_a_drain_has_a_limit(start, photo):
    server = start(*SLOW, "--drain-timeout", "0")
    threads, _ = in_flight(server, photo, 4)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(LONG) == 4
    for thread in threads:
        thread.join()


def test_a_second_signal(start, photo):
    server = start(*SLOW, "--drain-timeout", "100")
    threads, _ = in_flight(server, photo, 4)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("Shutting down")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(LONG) == 4
    for thread in threads:
        thread.join()


def test_other_signals_change_nothing(start, picture):
    server = start()
    for number in (signal.SIGPIPE, signal.SIGSTOP, signal.SIGCONT):
        server.process.send_signal(number)
    assert server.send(picture, size="16x16").status_code == 200


def test_a_log_that_nobody_reads(start, tmp_path, weights, picture):
    """The reader of the log is gone, the disk that holds it is full: requests are answered."""
    read, write = os.pipe()
    process = subprocess.Popen([BINARY, "serve", "superpoint", "--weights", str(weights), "--port",
                                "0"], stdin=subprocess.DEVNULL, stdout=write, stderr=write)
    os.close(write)
    with os.fdopen(read, "rb") as log:
        for line in log:
            found = re.search(rb"Listening on (\S+)", line)
            if found:
                url = found.group(1).decode()
            if b"startup complete" in line:
                break
    answer = requests.post(url + "/predict?size=16x16", data=picture, timeout=LONG,
                           headers={"Content-Type": "image/png"})
    assert answer.status_code == 200
    process.terminate()
    assert process.wait(LONG) == 0


def test_few_files_may_be_open(tmp_path, weights, picture):
    """At the limit of open files connections wait or fail; afterwards all is well."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    log = tmp_path / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "serve", "superpoint", "--weights", str(weights),
                                    "--port", "0"], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out, preexec_fn=limit)
    end = time.monotonic() + LONG
    while b"startup complete" not in log.read_bytes() and time.monotonic() < end:
        time.sleep(0.01)
    url = re.search(r"Listening on (\S+)", log.read_text()).group(1)
    host, port = url.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port)), timeout=LONG) for _ in range(60)]
    time.sleep(0.2)
    for connection in held:
        connection.close()
    assert requests.post(url + "/predict?size=16x16", data=picture, timeout=LONG,
                         headers={"Content-Type": "image/png"}).status_code == 200
    process.terminate()
    assert process.wait(LONG) == 0
