# The front door: each command is one line of `make help`. The build itself is CMake's
# (CMakeLists.txt, CMakePresets.json).
.DEFAULT_GOAL := build
.PHONY: build demo check bench gpu-check fuzz format tidy install deb reproducible clean help \
        bootstrap configure

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 300
export FUZZ_SECONDS JOBS
# Set by `make demo PROFILE=...`.
export PROFILE

bootstrap:
	@scripts/bootstrap.sh

configure: bootstrap
	@cmake --preset release --log-level=WARNING >/dev/null

build: configure ## build/release/harpe and libharpe (installs missing packages first)
	@cmake --build --preset release -j $(JOBS)

demo: build ## plan an 8-stage pipeline, or your own profile: PROFILE=file.csv
	@scripts/demo.sh

check: bootstrap ## all tests: gcc, clang, sanitizers, style, installation
	@scripts/check.sh

bench: build ## measure the planner; results are printed
	@bench/run

gpu-check: build ## check this machine's GPUs; reads only, changes nothing
	@bench/gpu_check

fuzz: bootstrap ## fuzz every parser for FUZZ_SECONDS (300) each
	@scripts/fuzz.sh

format: bootstrap ## rewrite all C files in the project's style
	@scripts/c_files.sh | xargs clang-format -i --style=file

tidy: configure ## clang-tidy over src/
	@tests/house/clang_tidy.sh build/release

install: build ## into PREFIX (/usr/local), below DESTDIR where set
	@cmake --install build/release --prefix "$(PREFIX)"

deb: ## Debian packages in build/deb, checked by lintian and by trying them
	@packaging/make_deb.sh
	@tests/house/deb.sh

reproducible: ## make the packages twice, elsewhere and otherwise, and compare every byte
	@tests/house/reproducible.sh

clean: ## remove everything that was built
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | \
	while IFS="$$(printf '\t')" read -r command text; do printf 'make %-13s %s\n' "$$command" "$$text"; done
