#!/usr/bin/env bash
# The wheel as its users get it: built, repaired, installed into a fresh venv outside the tree for each
# CPython of this machine (3.9 and up), and tested there. The newest has the libraries that the
# conversions are for, and checks types and style.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=$PWD
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
export TAPETUM_SHARED=${TAPETUM_SHARED:-$tree/../shared}

if ! wheel=$tree/$(tools/wheel.sh 2>"$outside/log"); then
    cat "$outside/log"
    if grep -qE 'Name or service not known|Temporary failure in name resolution|NewConnectionError' "$outside/log"; then
        echo "SKIP: the wheel is not tested: the package index can't be reached"
        exit 0
    fi
    exit 1
fi
case $wheel in
*/tapetum-*-py3-none-manylinux_*.whl) echo "${wheel##*/}" ;;
*) echo "$wheel: not a wheel for every CPython and a manylinux" && exit 1 ;;
esac

# version path, one of each, oldest first
interpreters() {
    for python in /usr/bin/python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 \
        $(compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u); do
        "$python" -c 'import sys, ensurepip
if sys.version_info >= (3, 9) and sys.implementation.name == "cpython":
    print("3.%d" % sys.version_info[1], sys.executable)' 2>/dev/null || true
    done | sort -V -u -k 1,1
}
mapfile -t found < <(interpreters)

cp -r --parents tests/python include/tapetum.h examples docs/python.md "$outside"
cd "$outside"
unset PYTHONPATH TAPETUM_LIBRARY
newest=${found[-1]%% *}
prepare() { # version interpreter
    local pip=("venv-$1/bin/pip" install -q)
    "$2" -m venv "venv-$1"
    "${pip[@]}" "$wheel"
    # numpy alone is enough to import it, and nothing else comes along.
    "venv-$1/bin/python" -c 'import sys, tapetum
assert tapetum.__file__.startswith(sys.prefix), tapetum.__file__
assert not {"PIL", "torch", "cv2", "h5py"} & set(sys.modules)'
    if [ "$1" = "$newest" ]; then
        "${pip[@]}" -r tests/python/requirements.txt
        "${pip[@]}" --no-deps "$tree/python/hamer_module"
    else
        "${pip[@]}" pytest pillow
    fi
}
jobs=()
for line in "${found[@]}"; do
    read -r version python <<<"$line"
    prepare "$version" "$python" &
    jobs+=($!)
done
for job in "${jobs[@]}"; do
    wait "$job"
done
# The oldest and the newest run everything, those between what depends on the interpreter.
for line in "${found[@]}"; do
    version=${line%% *}
    case $version in
    "$newest") tests=(tests/python) ;;
    "${found[0]%% *}") tests=(tests/python --ignore tests/python/test_interop.py) ;;
    *) tests=(tests/python/test_superpoint.py tests/python/test_hamer.py -k "not thousand") ;;
    esac
    echo "==== CPython $version"
    "venv-$version/bin/python" -m pytest -q -rs -p no:cacheprovider "${tests[@]}"
done
cd "$tree"
newest=$outside/venv-$newest/bin
"$newest/ruff" check --no-cache python tests/python
"$newest/ruff" format --no-cache --check python
"$newest/mypy" --cache-dir "$outside/mypy"
