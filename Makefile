# The front door. `make` alone lists the targets.
#
# Builds go to CARGO_TARGET_DIR, by default ~/.cache/pystachio/target, so that every clone of this repository
# uses one build of the dependencies. Private clusters live under target/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build demo stop test kernels bench install package lint clean

# Scale factor of the TPC-H data.
SF ?= 1
# Benchmarks: which queries ("1 6 14"; all if empty), and how many measured runs.
QUERIES ?=
RUNS ?= 5
export PG_CONFIG

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: ## Install what is missing: PostgreSQL and its headers, libclang, cargo-pgrx
	@scripts/setup.sh

build: ## Build the extension and the engine in release mode
	@scripts/setup.sh
	@scripts/build.sh

demo: ## TPC-H at SF=1 in a private cluster: generate, import, run the 22 queries; leaves it running
	@scripts/setup.sh
	@scripts/demo.sh $(SF)

stop: ## Stop the private clusters that demo, test and bench leave
	@for name in demo test bare emulated bench; do scripts/cluster.sh stop $$name; done

test: ## Every test that needs no GPU: Rust, SQL, differential, rewrites, faults
	@scripts/setup.sh
	@scripts/test.sh

bench: ## TPC-H against DuckDB, DataFusion and heap PostgreSQL (SF=, QUERIES="1 6", RUNS=)
	@scripts/setup.sh
	@SF='$(SF)' QUERIES='$(QUERIES)' RUNS='$(RUNS)' scripts/bench.sh

kernels: ## Compile every kernel for every GPU generation and report what each needs
	@scripts/setup.sh
	@scripts/kernels.sh

install: ## Install into the PostgreSQL of PG_CONFIG=/path/to/pg_config
	@scripts/setup.sh
	@scripts/install.sh

package: ## Make an archive under target/package for hosts without Rust
	@scripts/setup.sh
	@scripts/package.sh

lint: ## rustfmt, clippy, shell and Python syntax
	@scripts/lint.sh

clean: stop ## Remove the private clusters (never the build cache)
	@for name in demo test bare emulated bench; do folder=$$(scripts/cluster.sh folder $$name) && rm -rf "$$folder" target/$$name; done
	@rm -rf target/regress target/package
