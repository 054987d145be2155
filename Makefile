# The short commands of the project, which `make help` lists. CMake builds the project
# (CMakeLists.txt, CMakePresets.json).
.DEFAULT_GOAL := build
.PHONY: build demo check check-all check-frameworks check-fresh check-load bench docs gpu-check fuzz format tidy install uninstall deb \
        wheel reproducible clean help bootstrap configure
.NOTPARALLEL:

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 300
export FUZZ_SECONDS JOBS
# Set by `make demo PROFILE=...`.
export PROFILE

bootstrap:
	@scripts/bootstrap.sh

bootstrap-%:
	@scripts/bootstrap.sh $*

configure: bootstrap
	@cmake --preset release --log-level=WARNING >/dev/null

build: configure ## build/release/harpe and libharpe (installs missing packages first)
	@cmake --build --preset release -j $(JOBS)

demo: ## an emulated training job learns to save energy; PROFILE=file.csv: plan your own
	@./demo

check: ## the fast tests, and a short test of each journey
	@./check

check-all: ## everything, in parts that can be resumed: ./check --help
	@./check --all

check-frameworks: bootstrap-check bootstrap-frameworks build ## tests with the real frameworks and peers from PyPI, in build/frameworks
	@scripts/check_frameworks.sh

check-fresh: ## in a new, empty Debian 12: what .ci/run runs
	@.ci/run

check-load: bootstrap-check ## ./check REPEAT (5) times beside LOAD (4) busy processes per core
	@scripts/check_load.sh

bench: bootstrap-check build ## measure the planner; results are printed
	@bench/run

gpu-check: build ## check this machine's GPUs; reads only, changes nothing
	@bench/gpu_check

fuzz: bootstrap-clang ## fuzz every parser for FUZZ_SECONDS (300) each
	@scripts/fuzz.sh

format: bootstrap-check ## rewrite all C files in the project's style
	@scripts/format.sh -i

tidy: bootstrap-tidy configure ## clang-tidy over src/, longer than in the tests
	@tests/house/clang_tidy.sh build/release

install: build ## into PREFIX (/usr/local); below DESTDIR if it is set
	@scripts/install.sh build/release "$(PREFIX)"

uninstall: ## remove the files that `make install` has put into PREFIX
	@scripts/uninstall.sh build/release "$(PREFIX)"

deb: ## Debian packages in build/deb, checked by lintian and by a trial installation
	@packaging/make_deb.sh
	@tests/house/deb.sh
	@echo 'To install them: apt install ./build/deb/*.deb (debug symbols are in build/deb/debug)'

docs: ## build/docs/python: the reference of the Python package, from its docstrings
	@scripts/make_docs.sh

wheel: ## build/wheel/harpe-*.whl for pip, and the source distribution; both are tested
	@packaging/make_wheel.sh

reproducible: ## build the packages twice, in different environments, and compare every byte
	@tests/house/reproducible.sh

clean: ## remove everything that was built
	@rm -rf build python/build python/harpe.egg-info

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | \
	while IFS="$$(printf '\t')" read -r command text; do printf 'make %-16s %s\n' "$$command" "$$text"; done
