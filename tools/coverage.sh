#!/usr/bin/env bash
# Line coverage of src/ by the whole suite, a table for people; a report, never a gate. The program's
# verbs and the server count as far as their tests run the instrumented binary.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build/coverage -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 \
    -DTAPETUM_COVERAGE=ON -DTAPETUM_WERROR=ON >/dev/null
cmake --build build/coverage
find build/coverage -name '*.gcda' -delete
# A limit on file sizes, or another user, stops the counters' files too; their complaint isn't the
# program's.
outputs=tests/cli/test_outputs.py
export PYTEST_ADDOPTS="--deselect $outputs::test_a_file_size_limit --deselect $outputs::test_no_right_to_write"
ctest --test-dir build/coverage -j2 --output-on-failure | tail -n 12
gcovr --root . --filter 'src/' --object-directory build/coverage --exclude-unreachable-branches \
    --print-summary --txt build/coverage/coverage.txt
cat build/coverage/coverage.txt
