#!/usr/bin/env bash
# What is installed can be used: a program finds the library by pkg-config, shared and static, and
# by CMake's find_package; nothing but tap_* is exported.
set -euo pipefail
build=$1
compiler=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libtapetum.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig

cat >"$prefix/use.c" <<'C'
#include <stdio.h>
#include <tapetum.h>
int main(void)
{
    tap_engine *engine;
    tap_error err;
    if (tap_engine_open(&engine, NULL, &err) != TAP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    tap_engine_release(engine);
    puts(tap_version());
    return 0;
}
C
cat >"$prefix/CMakeLists.txt" <<'CM'
cmake_minimum_required(VERSION 3.25)
project(use C)
find_package(tapetum 0.1 REQUIRED)
add_executable(use use.c)
target_link_libraries(use PRIVATE tapetum::tapetum)
CM

# The flags are words to split.
# shellcheck disable=SC2046
"$compiler" -Wall -Wextra -Werror "$prefix/use.c" -o "$prefix/shared" \
    $(pkg-config --define-variable=prefix="$prefix" --cflags --libs tapetum)
shared=$(LD_LIBRARY_PATH=$libdir "$prefix/shared")
# shellcheck disable=SC2046
"$compiler" "$prefix/use.c" -o "$prefix/static" -I"$prefix/include" "$libdir/libtapetum.a" \
    $(pkg-config --static --libs libjpeg spng zlib libwebp) -lm -pthread
static=$("$prefix/static")
cmake -S "$prefix" -B "$prefix/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$prefix/build" >/dev/null
found=$("$prefix/build/use")
test "$shared" = "$static"
test "$shared" = "$found"

if nm -D --defined-only "$libdir/libtapetum.so" | awk '{print $3}' | grep -v '^tap_'; then
    echo "the shared library exports more than tap_*"
    exit 1
fi
echo "tapetum $shared: pkg-config, static, CMake"
