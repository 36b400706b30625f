#!/usr/bin/env bash
# Installs the Debian packages that are missing for the groups named (build, test, wheel, fuzz, bench,
# lint, develop = all of them). Asks apt only for what pkg-config, the shell or Python can't find, and says
# nothing where nothing is missing.
set -euo pipefail

# package  how to see that it is there: cmd:NAME, pkg:MODULE, py:MODULE, file:GLOB
build='
gcc                     cmd:cc
libc6-dev               file:/usr/include/stdio.h
cmake                   cmd:cmake
ninja-build             cmd:ninja
pkg-config              cmd:pkg-config
libjpeg62-turbo-dev     pkg:libjpeg
libspng-dev             pkg:spng
libwebp-dev             pkg:libwebp
zlib1g-dev              pkg:zlib
libmicrohttpd-dev       pkg:libmicrohttpd
libjson-c-dev           pkg:json-c
libyaml-dev             pkg:yaml-0.1
libcurl4-openssl-dev    pkg:libcurl
libssl-dev              pkg:libcrypto
scdoc                   cmd:scdoc
ca-certificates         file:/etc/ssl/certs/ca-certificates.crt'
test='
libcmocka-dev           pkg:cmocka
curl                    cmd:curl
python3                 cmd:/usr/bin/python3
python3-numpy           py:numpy
python3-pil             py:PIL
python3-requests        py:requests
python3-pytest          py:pytest
python3-yaml            py:yaml'
fuzz='
clang                   cmd:clang
libclang-rt-14-dev      file:/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a'
wheel='
python3-venv            py:ensurepip'
test="$test$wheel"
# shellcheck disable=SC2034 # used by name, as the groups above
bench=$wheel
lint='
git                     cmd:git
clang-format            cmd:clang-format
shellcheck              cmd:shellcheck
codespell               cmd:codespell
cppcheck                cmd:cppcheck
mandoc                  cmd:mandoc
scdoc                   cmd:scdoc
python3                 cmd:/usr/bin/python3'
# shellcheck disable=SC2034 # used by name, as the groups above
develop="$build$test$fuzz$lint"'
gcovr                   cmd:gcovr
gcc-aarch64-linux-gnu   cmd:aarch64-linux-gnu-gcc
libc6-dev-arm64-cross   file:/usr/aarch64-linux-gnu/include/stdio.h
qemu-user-static        cmd:qemu-aarch64-static
python3-torch           py:torch'

is_there() {
    case $1 in
    cmd:*) command -v "${1#cmd:}" ;;
    pkg:*) pkg-config --exists "${1#pkg:}" ;;
    py:*) /usr/bin/python3 -c "import ${1#py:}" ;;
    file:*) compgen -G "${1#file:}" ;;
    esac >/dev/null 2>&1
}

missing=()
for group in "${@:-build}"; do
    case $group in
    build | test | wheel | fuzz | bench | lint | develop) ;;
    *) echo "install-packages.sh: there is no group '$group'" >&2 && exit 2 ;;
    esac
    while read -r package probe; do
        if [ -n "$package" ] && ! is_there "$probe"; then
            missing+=("$package")
        fi
    done <<<"${!group}"
done
[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if ! command -v apt-get >/dev/null; then
    echo "These are missing, by their Debian names: ${missing[*]}" >&2
    echo "This is no Debian machine, so install what your system calls them, then run again." >&2
    exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "These Debian packages are missing: ${missing[*]}" >&2
        echo "Run as root:  apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    root=(sudo)
fi
echo "Installing ${missing[*]}"
install() {
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The package lists may be absent or old: then fetch them, once.
if ! install && ! { "${root[@]}" apt-get update -qq && install; }; then
    cat "$log" >&2
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 1
fi
