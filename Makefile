# Entry points for building and testing, in plain GNU make; `make help` lists the targets.
# The checks and the test run are implemented in xtask/ (Rust), so that they are tested too.

SHELL := /bin/sh
export PATH := $(PATH):$(HOME)/.cargo/bin
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# In CI a Cargo.lock that does not match Cargo.toml is an error; otherwise cargo updates it.
LOCKED := $(if $(CI),--locked)
# Arguments for the demo and the benchmark: make demo ARGS="--trials 9"
ARGS ?=
# Seconds per fuzz target, and which targets (default: all): make fuzz SECONDS=120 TARGETS=archive
SECONDS ?= 10
TARGETS ?=

.DEFAULT_GOAL := help
.PHONY: help build dist dist-test dist-reproduce book cast demo reports bench quick check test test-vm fuzz sanitize fmt advisories install-deps toolchain clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

build: toolchain ## build target/release/linerate
	cargo build $(LOCKED) --release --package linerate

dist: toolchain ## build a release in dist/: programs, packages, image, checksums (TARGETS="...", PROFILE=demo for a quick one)
	@xtask/dist.sh

dist-test: ## test dist/: install, upgrade and remove each package, run each program (as root)
	@xtask/dist-test.sh

dist-reproduce: toolchain ## build the x86-64 program twice, in two folders, and compare the bytes
	@xtask/dist-reproduce.sh

book: ## build the book as a site in target/book (mdBook)
	@xtask/book.sh

cast: ## record the session of the README again and draw docs/pictures/session.svg (as root)
	cargo build $(LOCKED) --profile demo --package linerate
	@cargo run $(LOCKED) --quiet --package xtask -- cast

demo: toolchain ## build quickly and run the demo on this machine, two minutes (ARGS="..." is passed on)
	cargo build $(LOCKED) --profile demo --package linerate
	target/demo/linerate demo $(ARGS)

reports: toolchain ## redo the five field reports at small size, as root, a page each in target/reports (ARGS="002" for one)
	cargo build $(LOCKED) --profile demo --package linerate
	@cargo run $(LOCKED) --quiet --package xtask -- reports $(ARGS)

bench: toolchain ## benchmark every workload against its peers, half an hour (ARGS="--quick" for a preview)
	@bench/peers --out bench/RESULTS.md $(ARGS)

quick: toolchain ## for daily work: format, lints, unit tests and those on captured hosts
	@cargo run $(LOCKED) --quiet --package xtask -- quick

check: toolchain ## run every check: format, lints, documentation, test cases of the rules, schemas, bundle, dependencies, tidy
	@cargo run $(LOCKED) --quiet --package xtask -- check

test: toolchain ## check and run all tests; as root those that depend on the user twice; a virtual machine
	@xtask/deps.sh test
	@cargo run $(LOCKED) --quiet --package xtask -- test

test-vm: toolchain ## run only the tests in the virtual machine (testbed/vm)
	@cargo run $(LOCKED) --quiet --package xtask -- test-vm

fuzz: toolchain ## fuzz every parser (SECONDS=10 for each, TARGETS="...")
	@fuzz/run $(SECONDS) $(TARGETS)

sanitize: toolchain ## run the crates with unsafe code under AddressSanitizer, and Miri if installed (ARGS="uring")
	@xtask/sanitize.sh $(ARGS)

fmt: toolchain ## format the Rust sources
	@cargo run $(LOCKED) --quiet --package xtask -- fmt

advisories: toolchain ## check the dependencies against the advisory database (needs the network)
	cargo deny check advisories

install-deps: ## install the Debian packages for building and testing (as root)
	@xtask/deps.sh build
	@xtask/deps.sh test

toolchain:
	@xtask/deps.sh build
	@xtask/toolchain.sh $(MSRV)

clean: ## remove the build output
	rm -rf target
