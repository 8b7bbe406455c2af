# Every target is one line; the work is in scripts/, each of which describes itself at its top.
# CARGO_TARGET_DIR is respected everywhere; `target/` is its default.

.PHONY: help demo test test-all test-matrix test-extensions test-arm64 test-kernels build client deb apt-repo layer tarball install lint fmt fuzz bench setup clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install what is missing, build, serve the Laravel example; prints its addresses (HEARTH_TARBALL=FILE: do not build)
	@scripts/demo

test: ## install what is missing, build, run the quick tests (11 minutes on two cores); the last line counts them
	@scripts/test

test-all: ## every test: all models, sanitizers, Debian packages, other PHPs, …; the last line counts them
	@scripts/test --all

test-matrix: ## the tests that need PHP, in Debians with PHP 8.4 and 8.5 (root; SUITES=trixie: only that)
	@scripts/test-matrix $(SUITES)

test-extensions: ## every PHP extension of Debian in four models (root; SUITES=trixie; UPDATE=1 writes docs/extensions.md)
	@scripts/test-extensions $(SUITES)

test-arm64: ## cross-compile the worker and its tests for ARM64, run them under emulation (PART=system: on an ARM64 kernel in QEMU)
	@scripts/test-arm64 $(PART)

test-kernels: ## the model `snapshot` under container profiles and on Debian's kernels in QEMU (root; PLACES="docker x86-6.1": only these)
	@scripts/test-kernels $(PLACES)

build: ## hearth and a worker for each installed PHP, optimised, into target/release (BUILD=--pgo, also of deb, tarball, layer: by a profile of the server under load, half an hour)
	@scripts/build $(or $(BUILD),--release)

client: ## libhearth.so, libhearth.a and hearth.h, optimised, into target/release
	@scripts/build-client --release

deb: ## Debian packages of all of it, into target/deb
	@scripts/build-deb $(or $(BUILD),--release)

apt-repo: ## a signed apt repository of target/deb, in target/apt (APT_KEY=NAME: the key of gpg; else one for tests)
	@scripts/build-apt-repo

tarball: ## server and PHP for any Linux on x86-64: target/hearth-VERSION-linux-x86_64.tar.gz, and its .sha256
	@scripts/build-tarball $(or $(BUILD),--release)

layer: ## the AWS Lambda layer, target/hearth-layer-8.x.zip
	@scripts/build-layer $(or $(BUILD),--release)

install: ## PREFIX=DIR: libhearth for C and C++ programs: headers, libraries, CMake package, hearth.pc
	@scripts/install "$(PREFIX)"

lint: ## rustfmt, clippy, clang-format, shellcheck, phpcs, the documentation, cargo-deny
	@scripts/lint

fmt: ## lay out Rust and C as the style guide says
	@scripts/fmt

fuzz: ## each fuzz target for SECONDS=30 (a nightly toolchain, or RUSTC_BOOTSTRAP=1 by itself)
	@scripts/fuzz "$(or $(SECONDS),30)"

bench: ## NAME=models, egress, realtime, …: measure against the peers that are installed; QUICK=1 for a short run
	@scripts/bench "$(NAME)"

setup: ## install every Debian package that any of these targets needs
	@scripts/setup build test client cpp deb apt examples layer tarball lint bench

clean: ## remove what these targets made
	@scripts/clean
