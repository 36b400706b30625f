"""Many clients at once, slow ones, ones that leave, and what memory does."""

import concurrent.futures
import os
import socket
import threading
import time

import pytest
import requests

from conftest import LONG, blobs, encoded, text64, wait_until

SLOW = ("--isa", "scalar", "--threads", "1")


def without_times(answer):
    return {name: value for name, value in answer.items() if name != "timing_ms"}


def test_sixty_four_clients(server):
    """Each gets its own picture's answer, all of them the right one."""
    pictures = [encoded(blobs(64, 64, seed)) for seed in range(8)]
    expected = [without_times(server.send(data, size="64x64").json()) for data in pictures]
    assert len({str(answer) for answer in expected}) == 8

    def client(i):
        with requests.Session() as session:
            for j in range(6):
                k = (i + j) % 8
                answer = session.post(server.url + "/predict?size=64x64", data=pictures[k],
                                      headers={"Content-Type": "image/png"}, timeout=LONG)
                if answer.status_code != 200 or without_times(answer.json()) != expected[k]:
                    return answer.text[:300]
        return None

    with concurrent.futures.ThreadPoolExecutor(64) as clients:
        wrong = [result for result in clients.map(client, range(64)) if result]
    assert not wrong, wrong[:3]
    wait_until(lambda: server.metric("tapetum_in_flight") == 0)


def test_more_than_the_queue_holds(start, picture):
    server = start(*SLOW, "--queue", "2")
    with concurrent.futures.ThreadPoolExecutor(24) as clients:
        jobs = [clients.submit(server.send, picture, size="320x240") for _ in range(24)]
        # While the machine is busy with them, the rest of the server answers.
        for _ in range(5):
            assert server.get("/livez").status_code == 200
            assert server.get("/health").json()["status"] == "ok"
        answers = [job.result() for job in jobs]
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 503}, codes
    for answer in answers:
        if answer.status_code == 503:
            assert answer.headers["Retry-After"] and "wait already" in answer.json()["detail"]
    assert server.metric("tapetum_rejected_requests_total") == codes.count(503)
    assert server.send(picture, size="64x64").status_code == 200


def test_a_client_that_leaves_is_not_served(start, picture):
    server = start(*SLOW)
    head = (f"POST /predict?size=480x320 HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
            f"Content-Length: {len(picture)}\r\n\r\n").encode()
    connections = [server.connect() for _ in range(6)]
    for connection in connections:
        connection.sendall(head + picture)
    wait_until(lambda: server.metric("tapetum_in_flight") == 6)
    for connection in connections[1:]:
        connection.close()
    assert server.send(picture, size="64x64").status_code == 200
    # The first runs or has run, the second may have been decoded; none of the others was run.
    dropped = server.metric("tapetum_dropped_requests_total")
    assert dropped >= 4, dropped
    connections[0].close()


@pytest.mark.parametrize("name,option,data", [
    ("nothing", "--header-timeout", b""),
    ("half a line", "--header-timeout", b"GET /hea"),
    ("half a header", "--header-timeout", b"GET /health HTTP/1.1\r\nHos"),
    ("no body", "--body-timeout", b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                                  b"Content-Type: image/png\r\n\r\n"),
    ("half a body", "--body-timeout", b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                                      b"Content-Type: image/png\r\n\r\n1234")])
def test_slow_clients_are_cut(start, name, option, data):
    server = start(option, "0.5")
    with server.connect() as slow:
        slow.sendall(data)
        assert server.get("/livez").status_code == 200
        slow.settimeout(LONG)
        assert slow.recv(100) == b""
    wait_until(lambda: server.metric("tapetum_timed_out_connections_total") == 1)
    wait_until(lambda: server.metric("tapetum_connections") <= 1)
    assert server.metric("tapetum_body_bytes") == 0


def test_a_byte_now_and_then_does_not_help(start):
    server = start("--header-timeout", "1")
    with server.connect() as slow:
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begun < LONG:
                slow.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - begun >= 0.9


def test_a_client_that_does_not_read(start):
    """Its socket is full; it is cut, and nobody else waits for it."""
    server = start("--answer-timeout", "1")
    data = encoded(blobs(640, 480))
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(LONG)
        slow.connect(server.address)
        slow.sendall(f"POST /predict?max_keypoints=-1&nms_radius=0&keypoint_threshold=0.0001 "
                     f"HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        assert server.send(data, size="64x64").status_code == 200
        wait_until(lambda: server.metric("tapetum_timed_out_connections_total") >= 1 or
                   'code="400"' in server.get("/metrics").text)


def test_connections_have_a_limit(start):
    server = start("--max-connections", "8", "--header-timeout", "1")
    held = [server.connect() for _ in range(30)]
    # Those that wait are served when the idle ones have been cut.
    assert server.get("/livez").status_code == 200
    for connection in held:
        connection.close()


def test_bodies_have_a_limit_together(start):
    """Many half-sent bodies hold what has come, not what was announced; then 503."""
    server = start("--max-body", "4", "--max-bodies", "8")
    head = (f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
            f"Content-Length: {4 << 20}\r\n\r\n").encode()
    announced = [server.connect() for _ in range(20)]
    for connection in announced:
        connection.sendall(head + b"1234")
    wait_until(lambda: server.metric("tapetum_connections") >= 20)
    assert server.metric("tapetum_body_bytes") <= 8 << 20
    assert server.send(encoded(blobs(64, 64)), size="64x64").status_code == 200
    for connection in announced[:3]:
        threading.Thread(target=connection.sendall, args=(bytes(19 << 16),), daemon=True).start()
    wait_until(lambda: server.metric("tapetum_body_bytes") > 6 << 20)
    refused = server.send(bytes(3 << 20))
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    assert "full" in refused.json()["detail"]
    assert server.metric("tapetum_body_bytes") <= 8 << 20
    for connection in announced:
        connection.close()
    wait_until(lambda: server.metric("tapetum_body_bytes") == 0)
    assert server.send(encoded(blobs(64, 64)), size="64x64").status_code == 200


def sanitized(server):
    """Sanitizers keep freed memory for a while, on purpose."""
    with open(f"/proc/{server.process.pid}/maps") as maps:
        return "asan" in (text := maps.read()) or "tsan" in text


def test_memory_and_handles_stay(start):
    server = start()
    random_bytes = os.urandom(300000)
    pictures = [encoded(blobs(64 + 16 * i, 64, i)) for i in range(5)]

    def mixed(n):
        with requests.Session() as session:
            for i in range(n):
                session.post(server.url + "/predict?size=64x64", data=pictures[i % 5],
                             headers={"Content-Type": "image/png"}, timeout=LONG)
                session.post(server.url + "/predict", data=random_bytes, timeout=LONG,
                             headers={"Content-Type": "image/jpeg"})
                session.post(server.url + "/predict", timeout=LONG,
                             json={"image": text64(pictures[i % 5]), "size": "64x64",
                                   "nms_radius": 40})
                session.get(server.url + "/metrics", timeout=LONG)

    def handles():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    mixed(150)
    threads = server.status("Threads")
    wait_until(lambda: server.metric("tapetum_connections") <= 1)
    files, before = handles(), server.status("VmRSS")
    mixed(400)
    wait_until(lambda: handles() <= files)
    assert server.status("Threads") == threads
    if not sanitized(server):
        assert server.status("VmRSS") - before < 1600  # KiB: 1 KiB a request
        assert server.status("VmHWM") < 150 << 10
