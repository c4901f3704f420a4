# linerate's front door. Plain GNU make; every target says what it does: `make help`.
# The gates and the test run themselves are in xtask/ (Rust), so that they are tested too.

SHELL := /bin/sh
export PATH := $(PATH):$(HOME)/.cargo/bin
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# In CI a Cargo.lock that does not fit Cargo.toml is an error; at the desk cargo mends it.
LOCKED := $(if $(CI),--locked)
# Arguments for the demo and the benchmark: make demo ARGS="--pairs 9"
ARGS ?=
# How long each fuzz target runs, and which (all of them): make fuzz SECONDS=120 TARGETS=archive
SECONDS ?= 10
TARGETS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo bench check test test-vm fuzz sanitize fmt advisories install-deps toolchain clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

build: toolchain ## build target/release/linerate
	cargo build $(LOCKED) --release --package linerate

demo: build ## show the whole story on this machine, two minutes (ARGS="..." is handed on)
	target/release/linerate demo $(ARGS)

bench: toolchain ## every workload beside its peers, half an hour (ARGS="--quick" for a look)
	@bench/peers --out bench/RESULTS.md $(ARGS)

check: toolchain ## every gate: format, lints, documentation, the rules' cases, bundle, dependencies, tidy
	@cargo run $(LOCKED) --quiet --package xtask -- check

test: toolchain ## check, then all tests; as root also a second time as an ordinary user; the virtual machine
	@xtask/deps.sh test
	@cargo run $(LOCKED) --quiet --package xtask -- test

test-vm: toolchain ## only the tests in the virtual machine (testbed/vm)
	@cargo run $(LOCKED) --quiet --package xtask -- test-vm

fuzz: toolchain ## every reader against bytes made to break it (SECONDS=10 for each, TARGETS="...")
	@fuzz/run $(SECONDS) $(TARGETS)

sanitize: toolchain ## the crates with unsafe under AddressSanitizer, and Miri where it is installed (ARGS="uring")
	@xtask/sanitize.sh $(ARGS)

fmt: toolchain ## format the Rust sources
	cargo fmt --all

advisories: toolchain ## hold the dependencies against the advisory database (needs the network)
	cargo deny check advisories

install-deps: ## install the Debian packages that building and testing need (as root)
	@xtask/deps.sh build
	@xtask/deps.sh test

toolchain:
	@xtask/deps.sh build
	@xtask/toolchain.sh $(MSRV)

clean: ## remove what was built
	rm -rf target
