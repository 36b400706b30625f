"""What a call from Python costs beside the call in C that it makes: the median over many calls of the
time around `model(...)` less the time that the library itself measured within it.

    TAPETUM_LIBRARY=build/release/src/libtapetum.so PYTHONPATH=python python3 bench/bench_python.py
"""

import statistics
import tempfile
import time

import numpy as np

import tapetum

CALLS = 500


def added_ms(call, total_ms):
    """Median and 95th percentile of what Python adds, and the median of C's own time."""
    for _ in range(20):
        call()
    added, inside = [], []
    for _ in range(CALLS):
        begun = time.perf_counter()
        result = call()
        took = (time.perf_counter() - begun) * 1e3
        inside.append(total_ms(result))
        added.append(took - inside[-1])
    return statistics.median(added), statistics.quantiles(added, n=20)[-1], statistics.median(inside)


def main():
    print(f"tapetum {tapetum.__version__}, {CALLS} calls each; ms")
    frame = np.random.default_rng(1).integers(0, 256, (480, 640, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        tapetum.write_synthetic_weights("superpoint", f"{folder}/superpoint.safetensors")
        tapetum.write_synthetic_weights("hamer-tiny", f"{folder}/hamer.safetensors")
        points = tapetum.SuperPoint.from_pretrained(f"{folder}/superpoint.safetensors")
        hands = tapetum.HamerModel.from_pretrained(f"{folder}/hamer.safetensors", mano_path="", cache="")
        cases = {
            "SuperPoint, 64 x 64 input": lambda: points(frame, size=(64, 64)),
            "SuperPoint, 640 x 480 input": lambda: points(frame),
            "HaMeR (tiny), one hand": lambda: hands(frame, [200, 100, 400, 300]),
        }
        for name, call in cases.items():
            def total(result):
                return result.timing_ms["total"]
            median, high, inside = added_ms(call, total)
            print(f"{name:32} C {inside:8.3f}   Python adds {median:.3f} (95 %: {high:.3f})")


if __name__ == "__main__":
    main()
