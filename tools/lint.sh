#!/usr/bin/env bash
# Layout, shell, spelling, includes, man pages, and what cppcheck sees. Says what it checked.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.inc')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
mapfile -t words < <(git ls-files '*.c' '*.h' '*.md' '*.scd' '*.sh' '*.py' '*.txt' Makefile)

clang-format --dry-run -Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
shellcheck "${scripts[@]}"
echo "shellcheck: ${#scripts[@]} scripts"
codespell --quiet-level=2 --ignore-words=tools/codespell-ignore.txt "${words[@]}"
echo "codespell: ${#words[@]} files"
/usr/bin/python3 tools/check_includes.py
for page in man/*.scd; do
    roff=$(scdoc <"$page")
    # scdoc writes a paragraph macro more than needed; mandoc skips it and says so.
    if mandoc -T lint -W warning <<<"$roff" | grep -v 'skipping paragraph macro'; then
        echo "$page: mandoc complains, see above"
        exit 1
    fi
done
echo "mandoc: $(find man -name '*.scd' | wc -l) pages"
cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
    --suppressions-list=tools/cppcheck-suppressions.txt -D__GNUC__ -D_GNU_SOURCE -Iinclude -Isrc \
    -j "$(nproc)" src
echo "cppcheck: src"
