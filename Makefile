# A thin front for people; CMakeLists.txt is the build.
#
#   make demo    builds, gets weights, draws keypoints on a photo (WEIGHTS=path: these)
#   make test    builds and runs the whole suite
#   make         builds into build/release
#   make wheel   the Python package, in build/wheel/dist
#   make install [PREFIX=/usr/local] [DESTDIR=]
#   make fuzz    each fuzz target for FUZZ_SECONDS (60) under ASan+UBSan
#   make bench   ours and the peers, in turn
#   make format, make lint, make clean, make help

BUILD := build/release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
PYTHON ?= /usr/bin/python3
# TESTS=ON once the packages for tests are there.
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$(PREFIX) \
    -DTAPETUM_PYTHON=$(PYTHON) -DBUILD_TESTING=$(1) >$(BUILD).log || { cat $(BUILD).log; exit 1; }

.DEFAULT_GOAL := all
.PHONY: all demo test wheel install fuzz bench format lint clean help

all:
	@tools/install-packages.sh build
	@mkdir -p build
	@$(call CONFIGURE,OFF)
	@cmake --build $(BUILD) -j $(JOBS)

demo: all
	@tools/demo.sh $(BUILD)/src/cli/tapetum

test:
	@tools/install-packages.sh build test
	@mkdir -p build
	@$(call CONFIGURE,ON)
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure
	@grep -hE '^SKIP' $(BUILD)/Testing/Temporary/LastTest.log | sort -u || true

wheel:
	@tools/install-packages.sh build wheel
	@PYTHON=$(PYTHON) tools/wheel.sh

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

fuzz:
	@tools/install-packages.sh build fuzz
	@tools/fuzz.sh

bench:
	@tools/install-packages.sh build test bench
	@bench/run.sh

format:
	@tools/install-packages.sh lint
	@git ls-files '*.c' '*.h' '*.inc' | xargs clang-format -i

lint:
	@tools/install-packages.sh lint
	@tools/lint.sh

clean:
	@rm -rf build demo.png demo.json

help:
	@sed -n 's/^#   //p' Makefile
