#!/usr/bin/env python3
"""HaMeR and ONNX Runtime in turn: one hand, the whole network, fp32 and int8, on the same threads.

    bench/bench_hamer.py PATH/TO/tapetum [--threads 2] [--rounds 3] [--runs 5] [--folder F]

Both run the synthetic weights (`tapetum synth hamer`), so that their answers can be compared too.
A round runs each contender in a process of its own, one after the other, so that no thread pool
spins beside another's. The peer's graph has its own fused nodes for attention and GELU; its int8 is
its own dynamic quantisation. Needs 6 GB of memory and 7 GB below --folder (a temporary one), where
what has been made before is used again. Nothing here passes or fails.
"""

import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

WIDTH, HEIGHT, TOKENS, HEADS = 192, 256, 192, 16
LAYERS = "mano_head.transformer.transformer.layers."


class Weights:
    """The tensors of a safetensors file, mapped."""

    def __init__(self, path):
        import numpy

        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            self.table = json.loads(file.read(size))
        self.bytes = numpy.memmap(path, numpy.uint8, "r", 8 + size)

    def __getitem__(self, name):
        entry = self.table[name]
        first, last = entry["data_offsets"]
        return self.bytes[first:last].view("float32").reshape(entry["shape"])

    def __contains__(self, name):
        return name in self.table


class Graph:
    """An ONNX graph whose tensors go straight to a file beside it."""

    def __init__(self, folder):
        self.nodes, self.tensors = [], []
        self.path = folder / "hamer.onnx"
        self.data = open(folder / "hamer.onnx.data", "wb")

    def tensor(self, name, values):
        import numpy
        import onnx

        values = numpy.ascontiguousarray(values, "float32")
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=values.shape,
                                  data_location=onnx.TensorProto.EXTERNAL)  # fmt: skip
        for key, value in (("location", "hamer.onnx.data"), ("offset", self.data.tell()),
                           ("length", values.nbytes)):  # fmt: skip
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        self.data.write(values.tobytes())
        self.tensors.append(tensor)
        return name

    def shape(self, name, values):
        import numpy
        from onnx import numpy_helper

        self.tensors.append(numpy_helper.from_array(numpy.array(values, "int64"), name))
        return name

    def add(self, kind, inputs, name, n_outputs=1, **attributes):
        from onnx import helper

        outputs = [name] if n_outputs == 1 else [f"{name}.{i}" for i in range(n_outputs)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name, **attributes))
        return name if n_outputs == 1 else outputs

    def linear(self, x, name, weight, bias=None):
        y = self.add("MatMul", [x, self.tensor(name + ".w", weight.T)], name + ".matmul")
        return y if bias is None else self.add("Add", [y, self.tensor(name + ".b", bias)], name)

    def norm(self, x, name, weights, epsilon):
        return self.add("LayerNormalization", [x, self.tensor(name + ".w", weights[name + ".weight"]),
                                               self.tensor(name + ".b", weights[name + ".bias"])],
                        name, epsilon=epsilon)  # fmt: skip

    def gelu(self, x, name):
        return self.add("Gelu", [x], name, domain="com.microsoft")

    def attention(self, q, k, v, name, heads):
        return self.add("MultiHeadAttention", [q, k, v], name, domain="com.microsoft",
                        num_heads=heads)  # fmt: skip

    def save(self, output):
        import onnx
        from onnx import helper

        self.data.close()
        real = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes, "hamer",
            [helper.make_tensor_value_info("crop", real, [1, 3, HEIGHT, WIDTH])],
            [helper.make_tensor_value_info(output, real, [1, 1, 109])], self.tensors)  # fmt: skip
        model = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])  # fmt: skip
        onnx.save(model, self.path)


def write_onnx(weights, folder):
    import numpy

    graph = Graph(folder)
    add = graph.add
    tensor = lambda name: graph.tensor(name, weights[name])  # noqa: E731
    patch = "backbone.patch_embed.proj"
    x = add("Conv", ["crop", tensor(patch + ".weight"), tensor(patch + ".bias")], patch,
            kernel_shape=[16, 16], strides=[16, 16], pads=[2, 2, 2, 2])  # fmt: skip
    table = weights["backbone.pos_embed"][0]
    dim = table.shape[1]
    x = add("Reshape", [x, graph.shape("tokens", [1, dim, TOKENS])], "flat")
    x = add("Transpose", [x], "rows", perm=[0, 2, 1])
    x = add("Add", [x, graph.tensor("positions", table[1:] + table[:1])], "embedded")
    block = 0
    while f"backbone.blocks.{block}.norm1.weight" in weights:
        p = f"backbone.blocks.{block}."
        y = graph.norm(x, p + "norm1", weights, 1e-6)
        y = graph.linear(y, p + "qkv", weights[p + "attn.qkv.weight"], weights[p + "attn.qkv.bias"])
        q, k, v = add("Split", [y, graph.shape(p + "three", [dim] * 3)], p + "split", 3, axis=2)
        y = graph.attention(q, k, v, p + "attn", HEADS)
        y = graph.linear(y, p + "proj", weights[p + "attn.proj.weight"],
                         weights[p + "attn.proj.bias"])  # fmt: skip
        x = add("Add", [x, y], p + "middle")
        y = graph.norm(x, p + "norm2", weights, 1e-6)
        y = graph.linear(y, p + "fc1", weights[p + "mlp.fc1.weight"], weights[p + "mlp.fc1.bias"])
        y = graph.gelu(y, p + "gelu")
        y = graph.linear(y, p + "fc2", weights[p + "mlp.fc2.weight"], weights[p + "mlp.fc2.bias"])
        x = add("Add", [x, y], p + "end")
        block += 1
    context = graph.norm(x, "backbone.last_norm", weights, 1e-6)
    start = (weights["mano_head.transformer.to_token_embedding.bias"] +
             weights["mano_head.transformer.pos_embedding"].reshape(-1))  # fmt: skip
    x = graph.tensor("token", start.reshape(1, 1, -1))
    layer = 0
    while f"{LAYERS}{layer}.0.norm.weight" in weights:
        p = f"{LAYERS}{layer}."
        inner = weights[p + "1.fn.to_q.weight"].shape[0]
        y = graph.norm(x, p + "0.norm", weights, 1e-5)
        y = graph.linear(y, p + "to_v", weights[p + "0.fn.to_qkv.weight"][2 * inner :])
        y = graph.linear(y, p + "self", weights[p + "0.fn.to_out.0.weight"],
                         weights[p + "0.fn.to_out.0.bias"])  # fmt: skip
        x = add("Add", [x, y], p + "after_self")
        y = graph.norm(x, p + "1.norm", weights, 1e-5)
        q = graph.linear(y, p + "to_q", weights[p + "1.fn.to_q.weight"])
        kv = weights[p + "1.fn.to_kv.weight"]
        k = graph.linear(context, p + "to_k", kv[:inner])
        v = graph.linear(context, p + "to_v2", kv[inner:])
        y = graph.attention(q, k, v, p + "cross", inner // 64)
        y = graph.linear(y, p + "out", weights[p + "1.fn.to_out.0.weight"],
                         weights[p + "1.fn.to_out.0.bias"])  # fmt: skip
        x = add("Add", [x, y], p + "after_cross")
        y = graph.norm(x, p + "2.norm", weights, 1e-5)
        y = graph.linear(y, p + "net0", weights[p + "2.fn.net.0.weight"],
                         weights[p + "2.fn.net.0.bias"])  # fmt: skip
        y = graph.gelu(y, p + "gelu")
        y = graph.linear(y, p + "net3", weights[p + "2.fn.net.3.weight"],
                         weights[p + "2.fn.net.3.bias"])  # fmt: skip
        x = add("Add", [x, y], p + "end")
        layer += 1
    parts = [("decpose", "init_hand_pose"), ("decshape", "init_betas"), ("deccam", "init_cam")]
    weight = numpy.concatenate([weights[f"mano_head.{a}.weight"] for a, _ in parts])
    bias = numpy.concatenate([weights[f"mano_head.{a}.bias"] + weights[f"mano_head.{b}"][0]
                              for a, b in parts])  # fmt: skip
    graph.save(graph.linear(x, "readout", weight, bias))


def write_int8(folder):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Its shape inference does not know the fused nodes, whose outputs are floats like all others.
    quantize_dynamic(folder / "hamer.onnx", folder / "hamer-int8.onnx", weight_type=QuantType.QInt8,
                     op_types_to_quantize=["MatMul"], use_external_data_format=True,
                     extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})  # fmt: skip


def crop():
    """Levels of grey, a function of their place: what both contenders see."""
    import numpy

    at = numpy.arange(HEIGHT * WIDTH * 3, dtype="uint64")
    return ((at * 2654435761 >> 11) % 256).astype("uint8").reshape(HEIGHT, WIDTH, 3)


def run_peer(name, folder, threads, runs):
    """In its own process: times the peer and prints a line of JSON."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / name), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    mean, deviation = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])
    x = ((crop() / 255 - mean) / deviation).astype("float32").transpose(2, 0, 1)[None]
    times = []
    for _ in range(runs + 1):  # one to warm up
        start = time.perf_counter()
        (answer,) = session.run(None, {"crop": x})
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"times": times[1:], "version": onnxruntime.__version__,
                      "answer": answer.reshape(-1).tolist()}))  # fmt: skip


def ask(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(lines[-1])
    return done.stdout.strip().splitlines()


def run_ours(arguments, folder, precision):
    picture = str(folder / "crop.png")
    command = [arguments.program, "hamer", "--weights", str(folder / "hamer.safetensors"), "--crop",
               "--json", "--quiet", "--threads", str(arguments.threads), "--mano", "none",
               "--precision", precision] + [picture] * (arguments.runs + 1)  # fmt: skip
    answers = [json.loads(line) for line in ask(command)]
    return {"times": [answer["timing_ms"]["device"] for answer in answers[1:]],
            "answer": answers[0]}  # fmt: skip


def distance(ours, peer):
    """Of shape and camera, which both answer with as they are: the largest difference."""
    own = ours["answer"]["betas"] + ours["answer"]["cam"]
    return max(abs(a - b) for a, b in zip(own, peer["answer"][96:]))


def prepare(arguments, folder):
    from PIL import Image

    if not (folder / "hamer.safetensors").exists():
        ask([arguments.program, "synth", "hamer", str(folder / "hamer.safetensors")])
    Image.fromarray(crop()).save(folder / "crop.png")
    if not (folder / "hamer.onnx").exists():
        write_onnx(Weights(folder / "hamer.safetensors"), folder)
    if "int8" in arguments.precision and not (folder / "hamer-int8.onnx").exists():
        write_int8(folder)


def play(arguments, folder):
    prepare(arguments, folder)
    os.environ["TAPETUM_CACHE"] = str(folder)
    pairs = [("f32", "hamer.onnx"), ("int8", "hamer-int8.onnx")]
    for precision, graph in [pair for pair in pairs if pair[0] in arguments.precision]:
        ours, peers, ratios = [], [], []
        for number in range(arguments.rounds):
            own = run_ours(arguments, folder, precision)
            peer = json.loads(ask([sys.executable, __file__, "--peer", graph, "--folder",
                                   str(folder), "--threads", str(arguments.threads), "--runs",
                                   str(arguments.runs), "-"])[-1])  # fmt: skip
            ours.append(statistics.median(own["times"]))
            peers.append(statistics.median(peer["times"]))
            ratios.append(peers[-1] / ours[-1])
            print(f"{precision} round {number + 1}: ours {ours[-1]:.0f} ms (least "
                  f"{min(own['times']):.0f}), onnxruntime {peers[-1]:.0f} ms (least "
                  f"{min(peer['times']):.0f}), x{ratios[-1]:.2f}", flush=True)  # fmt: skip
        print(f"{precision}, {arguments.threads} threads, one hand: ours "
              f"{statistics.median(ours):.0f} ms, onnxruntime {peer['version']} "
              f"{statistics.median(peers):.0f} ms, x{statistics.median(ratios):.2f} "
              f"(x{min(ratios):.2f} to x{max(ratios):.2f}); betas and cam differ by at most "
              f"{distance(own, peer):.1e}\n", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the program tapetum")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--precision", nargs="+", default=["f32", "int8"])
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        run_peer(arguments.peer, arguments.folder, arguments.threads, arguments.runs)
        return
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        print(f"onnxruntime: not here ({error}); pip install onnxruntime onnx to compare")
        return
    if arguments.folder:
        play(arguments, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        play(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
