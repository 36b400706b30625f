#!/usr/bin/env bash
# Puts the peers of bench_network.py and bench_hamer.py into a virtual environment: install_peers.sh FOLDER. A peer
# that can't be had is left out and named; the benchmark then goes on without it.
set -euo pipefail
folder=${1:?usage: install_peers.sh FOLDER}
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
for packages in "numpy pillow" "onnx onnxruntime" "ncnn"; do
    # shellcheck disable=SC2086 # a list of packages
    "$folder/bin/pip" install --quiet --upgrade $packages ||
        echo "bench: cannot install $packages; going on without"
done
