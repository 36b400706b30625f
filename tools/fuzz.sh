#!/usr/bin/env bash
# Builds the fuzz targets with Clang, ASan and UBSan and runs each for FUZZ_SECONDS (60), or only
# those named. What they find stays in build/fuzz/found/; new inputs, in build/fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
cmake -S . -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DTAPETUM_FUZZ=ON -DTAPETUM_SANITIZE=address,undefined -DBUILD_TESTING=OFF >/dev/null
mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -n 's/^\(fuzz_[a-z0-9_]*\): .*/\1/p' | sort -u)
if [ $# -gt 0 ]; then
    targets=("${@/#/fuzz_}")
fi
cmake --build build/fuzz --target "${targets[@]}"
mkdir -p build/fuzz/found

# One target; its log beside it. As many at a time as there are CPUs.
run() {
    local name=${1#fuzz_} log=build/fuzz/${1#fuzz_}.log
    mkdir -p "build/fuzz/corpus/$name"
    if ! "build/fuzz/fuzz/$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="build/fuzz/found/$name-" \
        "build/fuzz/corpus/$name" "fuzz/corpus/$name" >"$log" 2>&1; then
        echo "$name FOUND something:"
        tail -n 40 "$log"
        return 1
    fi
    printf '%-16s %s runs, nothing found\n' "$name" \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
}
export -f run
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I {} bash -c 'run {}'
