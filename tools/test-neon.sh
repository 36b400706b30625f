#!/usr/bin/env bash
# Builds core, net and cpu for AArch64 and runs the kernel tests under qemu-user, where the cross
# compiler and qemu are there.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
    echo "SKIP NEON: needs gcc-aarch64-linux-gnu and qemu-user-static"
    exit 0
fi
cmake -S . -B build/aarch64 -G Ninja --toolchain cmake/aarch64.cmake -DTAPETUM_WERROR=ON >/dev/null
cmake --build build/aarch64
ctest --test-dir build/aarch64 --output-on-failure
