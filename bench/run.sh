#!/usr/bin/env bash
# What `make bench` does: the networks beside their peers, then the server's own share. Needs the
# package registry once, for the peers. BENCH_THREADS=N.
set -euo pipefail
cd "$(dirname "$0")/.."
threads=${BENCH_THREADS:-$(nproc)}
cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DTAPETUM_BENCH=ON -DBUILD_TESTING=OFF \
    >/dev/null
cmake --build build/bench
bench/install_peers.sh build/bench-venv
build/bench-venv/bin/python bench/bench_network.py build/bench/bench/bench_network --threads "$threads"
build/bench-venv/bin/python bench/bench_hamer.py build/bench/src/cli/tapetum --threads "$threads"
/usr/bin/python3 bench/bench_server.py build/bench/src/cli/tapetum
TAPETUM_LIBRARY=build/bench/src/libtapetum.so PYTHONPATH=python /usr/bin/python3 bench/bench_python.py
