#!/usr/bin/env python3
"""Our network and its peers in turn: SuperPoint at 640x480 in fp32 on the same number of threads.

    bench/bench_network.py PATH/TO/bench_network [--threads 2] [--rounds 5] [--runs 7]

A round runs each contender in a process of its own, one after the other, so that no thread pool
spins beside another's; ours goes first and last. The ratio of a round is the peer's median over
ours. Peers are whatever this Python can import: onnxruntime (with onnx, to write the model) and
ncnn, both fp32 with random weights, and without the softmax and the normalisation that ours does.
A peer that isn't there is said so on a line. Nothing here passes or fails.
"""

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

# (name, in, out, kernel, relu, pool); the two heads branch off after the eighth.
LAYERS = [
    ("conv1a", 1, 64, 3, True, False), ("conv1b", 64, 64, 3, True, True),
    ("conv2a", 64, 64, 3, True, False), ("conv2b", 64, 64, 3, True, True),
    ("conv3a", 64, 128, 3, True, False), ("conv3b", 128, 128, 3, True, True),
    ("conv4a", 128, 128, 3, True, False), ("conv4b", 128, 128, 3, True, False),
    ("convPa", 128, 256, 3, True, False), ("convPb", 256, 65, 1, False, False),
    ("convDa", 128, 256, 3, True, False), ("convDb", 256, 256, 1, False, False),
]  # fmt: skip
ENCODER = 8
WIDTH, HEIGHT = 640, 480


def weights():
    """Yields (layer, weight, bias): random, scaled so that activations keep their size."""
    import numpy

    random = numpy.random.default_rng(1)
    for layer in LAYERS:
        _, n_in, n_out, kernel, _, _ = layer
        scale = (6 / (n_in * kernel * kernel)) ** 0.5
        weight = random.uniform(-scale, scale, (n_out, n_in, kernel, kernel))
        bias = random.uniform(-0.1, 0.1, n_out)
        yield layer, weight.astype("float32"), bias.astype("float32")


def write_onnx(folder):
    import onnx
    from onnx import helper, numpy_helper

    nodes, tensors, outputs = [], [], []
    x = trunk = "image"
    for i, ((name, _, n_out, kernel, relu, pool), weight, bias) in enumerate(weights()):
        if i >= ENCODER and i % 2 == 0:
            x = trunk
        tensors += [numpy_helper.from_array(weight, name + ".w")]
        tensors += [numpy_helper.from_array(bias, name + ".b")]
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [x, name + ".w", name + ".b"], [name], pads=pads,
                                      kernel_shape=[kernel, kernel]))  # fmt: skip
        x = name
        if relu:
            nodes.append(helper.make_node("Relu", [x], [name + ".relu"]))
            x = name + ".relu"
        if pool:
            nodes.append(helper.make_node("MaxPool", [x], [name + ".pool"], kernel_shape=[2, 2],
                                          strides=[2, 2]))  # fmt: skip
            x = name + ".pool"
        if i + 1 == ENCODER:
            trunk = x
        if name in ("convPb", "convDb"):
            shape = [1, n_out, HEIGHT // 8, WIDTH // 8]
            outputs.append(helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, shape))
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 1, HEIGHT, WIDTH])
    graph = helper.make_graph(nodes, "superpoint", [image], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "superpoint.onnx")


def write_ncnn(folder):
    """ncnn's text of layers and file of weights: a tag of 0 (fp32) before each weight tensor."""
    lines, n_blobs, x, trunk = ["Input image 0 1 image"], 1, "image", None
    with open(folder / "superpoint.bin", "wb") as data:
        for i, ((name, _, n_out, kernel, relu, pool), weight, bias) in enumerate(weights()):
            if i == ENCODER:
                lines.append(f"Split trunk 1 2 {x} trunk_0 trunk_1")
                n_blobs += 2
            if i >= ENCODER and i % 2 == 0:
                x = f"trunk_{(i - ENCODER) // 2}"
            lines.append(f"Convolution {name} 1 1 {x} {name} 0={n_out} 1={kernel} 4={kernel // 2} "
                         f"5=1 6={weight.size} 9={int(relu)}")  # fmt: skip
            n_blobs += 1
            x = name
            data.write(struct.pack("<I", 0) + weight.tobytes() + bias.tobytes())
            if pool:
                lines.append(f"Pooling {name}.pool 1 1 {x} {name}.pool 0=0 1=2 2=2")
                n_blobs += 1
                x = name + ".pool"
    text = f"7767517\n{len(lines)} {n_blobs}\n" + "\n".join(lines) + "\n"
    (folder / "superpoint.param").write_text(text)


def image():
    import numpy

    return numpy.random.default_rng(2).uniform(0, 1, (1, 1, HEIGHT, WIDTH)).astype("float32")


def onnxruntime_call(folder, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "superpoint.onnx"), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    x = image()
    return lambda: session.run(None, {"image": x}), onnxruntime.__version__


def ncnn_call(folder, threads):
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic",
                   "use_bf16_storage"):  # fmt: skip
        setattr(net.opt, option, False)
    if net.load_param(str(folder / "superpoint.param")) != 0:
        raise RuntimeError("ncnn refused superpoint.param")
    if net.load_model(str(folder / "superpoint.bin")) != 0:
        raise RuntimeError("ncnn refused superpoint.bin")
    x = ncnn.Mat(image()[0])

    def call():
        extractor = net.create_extractor()
        extractor.input("image", x)
        found = [extractor.extract(name)[1] for name in ("convPb", "convDb")]
        assert found[0].c == 65 and found[1].c == 256
        return found

    return call, ncnn.__version__


PEERS = {"onnxruntime": (write_onnx, onnxruntime_call), "ncnn": (write_ncnn, ncnn_call)}


def run_peer(name, folder, threads, runs):
    """In its own process: times one peer and prints a line of JSON."""
    call, version = PEERS[name][1](folder, threads)
    times = []
    for _ in range(runs + 2):  # two to warm up
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    times = times[2:]
    print(json.dumps({"median_ms": statistics.median(times), "min_ms": min(times),
                      "version": version}))  # fmt: skip


def ask(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def prepare_peers(folder):
    ready = []
    for name, (write, _) in PEERS.items():
        try:
            __import__(name)
            write(folder)
            ready.append(name)
        except ImportError as error:
            print(f"{name}: not here ({error}); pip install it to compare")
    return ready


def play(arguments, folder):
    peers = prepare_peers(folder)
    ours = [arguments.program, "--total", "--threads", str(arguments.threads), "--runs",
            str(arguments.runs)]  # fmt: skip
    results, versions = {"ours": []}, {}
    for number in range(arguments.rounds):
        first = ask(ours)
        line = f"round {number + 1}: ours {first['median_ms']:.0f} ms"
        peak = first["peak_gflops"]
        round_ms = {}
        for name in list(peers):
            command = [sys.executable, __file__, "--peer", name, "--folder", str(folder)]
            command += ["--threads", str(arguments.threads), "--runs", str(arguments.runs), "-"]
            try:
                answer = ask(command)
            except RuntimeError as error:
                print(f"{name}: does not run here: {error}")
                peers.remove(name)
                continue
            round_ms[name] = answer["median_ms"]
            versions[name] = answer["version"]
        last = ask(ours)
        own = (first["median_ms"] + last["median_ms"]) / 2
        results["ours"] += [first["median_ms"], last["median_ms"]]
        for name, value in round_ms.items():
            results.setdefault(name, []).append((value, value / own))
            line += f", {name} {value:.0f} ms (x{value / own:.2f})"
        print(f"{line}, ours again {last['median_ms']:.0f} ms; FMA peak {peak:.0f} GF/s")
    print(f"\n640x480, fp32, {arguments.threads} threads, medians of {arguments.rounds} rounds of "
          f"{arguments.runs} runs")  # fmt: skip
    print(f"{'ours':12} {statistics.median(results['ours']):7.1f} ms   least "
          f"{min(results['ours']):.1f} ms, {last['isa']}")  # fmt: skip
    for name in peers:
        times = [value for value, _ in results[name]]
        ratios = [ratio for _, ratio in results[name]]
        print(f"{name:12} {statistics.median(times):7.1f} ms   x{statistics.median(ratios):.2f} "
              f"(x{min(ratios):.2f} to x{max(ratios):.2f}), version {versions[name]}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the program bench_network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        run_peer(arguments.peer, arguments.folder, arguments.threads, arguments.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        play(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
