#!/usr/bin/env python3
"""The server's own share of a request: everything but the network.

    bench/bench_server.py PATH/TO/tapetum [--weights PATH] [--runs 40]

Posts a 1600x900 JPEG (examples/rocket.jpg, enlarged) as base64 in JSON, as the contract has it,
descriptors included. What a client waits, less `device_forward`, is everything else: HTTP both
ways, base64, JPEG, resize, points, descriptors, NPZ, base64, JSON. Then the stages from /metrics,
start to ready, and memory. Needs Pillow. Nothing here passes or fails.
"""

import argparse
import base64
import http.client
import io
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from PIL import Image

STAGES = ("parse", "decode", "preprocess", "postprocess", "encode")


def photo():
    image = Image.open(pathlib.Path(__file__).parent.parent / "examples/rocket.jpg")
    out = io.BytesIO()
    image.resize((1600, 900), Image.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def start(program, weights, log):
    begun = time.perf_counter()
    process = subprocess.Popen([program, "serve", "superpoint", "--weights", str(weights), "--port",
                                "0"], stderr=open(log, "wb"))  # fmt: skip
    while b"Application startup complete" not in pathlib.Path(log).read_bytes():
        assert process.poll() is None, pathlib.Path(log).read_text()
        time.sleep(0.001)
    ready = (time.perf_counter() - begun) * 1e3
    port = int(re.search(r"Listening on http://127.0.0.1:(\d+)", pathlib.Path(log).read_text())[1])
    return process, port, ready


def ask(connection, method, path, body=None):
    connection.request(method, path, body, {"Content-Type": "application/json"})
    return connection.getresponse().read()


def stage_sums(connection):
    text = ask(connection, "GET", "/metrics").decode()
    found = re.findall(r'^tapetum_stage_seconds_(sum|count)\{stage="(\w+)"\} (\S+)$', text, re.M)
    return {(stage, what): float(value) for what, stage, value in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--weights")
    parser.add_argument("--runs", type=int, default=40)
    arguments = parser.parse_args()
    jpeg = photo()
    with tempfile.TemporaryDirectory() as folder:
        weights = arguments.weights
        if weights is None:
            weights = folder + "/synthetic.safetensors"
            subprocess.run([arguments.program, "synth", "superpoint", weights], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        readies = []
        for _ in range(5):
            process, port, ready = start(arguments.program, weights, folder + "/log")
            readies.append(ready)
            if len(readies) < 5:
                process.terminate()
                process.wait()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        body = json.dumps({"image": base64.b64encode(jpeg).decode()})
        for _ in range(3):
            answer = json.loads(ask(connection, "POST", "/predict", body))
        before, waits, networks, points = stage_sums(connection), [], [], []
        for _ in range(arguments.runs):
            begun = time.perf_counter()
            text = ask(connection, "POST", "/predict", body)
            waited = (time.perf_counter() - begun) * 1e3
            answer = json.loads(text)
            waits.append(waited - answer["timing_ms"]["device_forward"])
            networks.append(answer["timing_ms"]["device_forward"])
            points.append(answer["timing_ms"]["postprocess"])
        after = stage_sums(connection)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
        process.wait()
    print(f"1600x900 JPEG of {len(jpeg) >> 10} KiB as base64 in JSON; {answer['num_keypoints']} "
          f"points with descriptors in {len(text) >> 10} KiB; medians of {arguments.runs}")  # fmt: skip
    print(f"network                  {statistics.median(networks):7.1f} ms, "
          f"{answer['serving_path']['threads']} threads, {answer['serving_path']['isa']}")  # fmt: skip
    print(f"everything else          {statistics.median(waits):7.1f} ms, the client's send and "
          "receive included")  # fmt: skip
    print(f"  of it to descriptors   {statistics.median(points):7.1f} ms")
    for stage in STAGES:
        spent = after[stage, "sum"] - before[stage, "sum"]
        print(f"  {stage:20} {spent / (after[stage, 'count'] - before[stage, 'count']) * 1e3:9.2f} "
              "ms, mean")  # fmt: skip
    print(f"start to ready           {statistics.median(readies):7.0f} ms, median of 5")
    for field, words in (("VmRSS", "memory"), ("VmHWM", "memory at most")):
        kib = int(re.search(rf"^{field}:\s+(\d+)", status, re.M)[1])
        print(f"{words:24} {kib / 1024:7.0f} MiB")


if __name__ == "__main__":
    main()
