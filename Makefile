# The front door. `make` alone lists the targets.
#
# Builds go to CARGO_TARGET_DIR, by default a folder of each clone below ~/.cache/pystachio, which begins with what other clones have
# compiled of the dependencies. Private clusters live under target/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build demo stop check test test-all test-chance test-core test-versions test-release test-packages packages test-cassert test-cassert-slice test-gpu sanitize soak fuzz sqlsmith kernels bench bench-gpu bench-ranks bench-shuffle simulate-ranks gpu-archive docs install package lint clean

# Scale factor of the TPC-H data.
SF ?= 1
# Benchmarks: which queries ("1 6 14"; all if empty), and how many measured runs.
QUERIES ?=
RUNS ?= 5
# Which benchmark: tpch, everyday.
WORKLOAD ?= tpch
# Versions of PostgreSQL to test on ("16 18"; all if empty).
VERSIONS ?=
# The commit of the release that test-release starts from: 0.2.0.
RELEASE ?= b96ca7e8
# Which area to run again and again, and how often.
AREA ?= rust
TIMES ?= 20
CLUSTERS := demo test diff cassert docs scripts bare emulated hosts standby beside f1 f2 f3 f4 soak release sqlsmith core15 core16 core17 core18 bench bench-gpu bench-ranks gpu pg15 pg16 pg16.2 pg17 pg18
export PG_CONFIG
# What tests and what is packed have kernels, wherever they are built.
test test-all test-chance check kernels sanitize gpu-archive package packages test-packages: export PYSTACHIO_CUDA ?= 1

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

setup: ## Install what is missing: PostgreSQL and its headers, libclang, the CUDA compiler
	@scripts/setup.sh

build: ## Build the extension and the engine in release mode
	@scripts/setup.sh
	@scripts/build.sh

demo: ## TPC-H at SF=1 in a private cluster: generate, import, run the 22 queries; leaves it running
	@scripts/setup.sh
	@scripts/demo.sh $(SF)

stop: ## Stop the private clusters that demo, tests and benchmarks leave
	@for name in $(CLUSTERS); do scripts/cluster.sh stop $$name; done

test: ## Every test that needs no GPU: Rust, SQL, differential, rewrites, faults
	@scripts/setup.sh
	@scripts/test.sh

check: ## Within three minutes, once built: is this change worth a full run? (SINCE=commit)
	@scripts/setup.sh
	@scripts/check.sh $(SINCE)

test-chance: ## An area of the tests again and again while all processors are busy (AREA="faults-ranks", TIMES=20)
	@scripts/setup.sh
	@scripts/test-chance.sh -n $(TIMES) $(AREA)

test-cassert: ## make test on a PostgreSQL 15 with assertions, which is built from Debian's source package
	@scripts/setup.sh
	@PG_CONFIG=$$(scripts/cassert-server.sh) scripts/test.sh regress differential faults emulated

test-cassert-slice: ## What finds most there, in some three minutes: the planner's SQL tests, and joins by the genetic search
	@scripts/setup.sh
	@scripts/test-cassert.sh

test-all: ## All cases of the long suites, of which make test runs a share, and all versions; takes hours
	@scripts/setup.sh
	@scripts/test.sh --whole && scripts/test-versions.sh --whole 16 17 18

test-versions: ## What depends on the version of PostgreSQL, on 15 to 18 in turn (VERSIONS="16 18")
	@scripts/setup.sh
	@scripts/test-versions.sh $(VERSIONS)

test-release: ## An earlier release's package replaced by this tree's below a running server (RELEASE=commit; compiles it first)
	@scripts/setup.sh
	@scripts/test-release.sh $(RELEASE)

test-core: ## PostgreSQL's own regression queries over foreign tables: all of them, in every mode (see regress/README.md)
	@scripts/setup.sh
	@scripts/test-core.sh

bench: ## TPC-H against DuckDB, DataFusion and heap PostgreSQL, or everyday queries (SF=, QUERIES="1 6", RUNS=, WORKLOAD=everyday)
	@scripts/setup.sh
	@SF='$(SF)' QUERIES='$(QUERIES)' RUNS='$(RUNS)' WORKLOAD='$(WORKLOAD)' scripts/bench.sh

bench-gpu: ## TPC-H on a GPU against DuckDB: cold, warm, hot (SF="10 100", QUERIES=, STEPS=, …: see the script)
	@scripts/bench-gpu.sh

bench-ranks: ## TPC-H on one rank and on all GPUs, a rank that is killed, time lines (SF=100, STEPS=, …: see the script; DEVICE=emulated without GPUs)
	@scripts/bench-ranks.sh

bench-shuffle: ## Exchanges between GPUs: tests, GB/s against what the network can do, a distributed join (DEVICE=emulated without GPUs)
	@scripts/bench-shuffle.sh

simulate-ranks: ## How exchanges scale to 1,024 ranks, reckoned from what two GPUs did
	@python3 benches/simulate_ranks.py

test-gpu: ## The tests on a host with a GPU: kernels, their memory accesses, SQL, differential, faults
	@scripts/test-gpu.sh

soak: ## Sessions at random on both engines and on ranks while faults are injected (SECONDS=300, SEED=)
	@scripts/setup.sh
	@scripts/soak.sh '$(or $(SECONDS),300)' $(SEED)

fuzz: ## Hostile Parquet files over both engines, led by coverage (SECONDS=3600, SEED=)
	@scripts/setup.sh
	@scripts/fuzz.sh '$(or $(SECONDS),3600)' $(SEED)

sqlsmith: ## Random queries of sqlsmith over foreign tables, on a PostgreSQL with assertions (SECONDS=3600, SEED=)
	@scripts/setup.sh
	@scripts/sqlsmith.sh '$(or $(SECONDS),3600)' $(SEED)

sanitize: ## The engine's tests with its kernels on the host under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup.sh
	@scripts/sanitize.sh

gpu-archive: ## Make target/gpu, which test-gpu and benchmarks need on a host without Rust and PostgreSQL (PARTS=)
	@scripts/setup.sh
	@scripts/gpu-archive.sh

docs: ## The pages of docs/ as a site under target/docs-site, by mdBook (cargo install mdbook)
	@scripts/docs.sh

kernels: ## Compile every kernel for every GPU generation and report what each needs
	@scripts/setup.sh
	@scripts/kernels.sh

install: ## Install into the PostgreSQL of PG_CONFIG=/path/to/pg_config
	@scripts/setup.sh
	@scripts/install.sh

package: ## Make an archive under target/package for hosts without Rust
	@scripts/setup.sh
	@scripts/package.sh

packages: ## All packages and archives under target/packages: .deb, .rpm, tar, PGXN, image (PARTS="deb rpm", VERSIONS=)
	@scripts/setup.sh
	@VERSIONS='$(VERSIONS)' scripts/packages.sh $(PARTS)

test-packages: ## Pack, install each package in a bare system, and query there; as root (AREAS="deb rpm", VERSIONS=)
	@scripts/setup.sh
	@VERSIONS='$(VERSIONS)' scripts/test-packages.sh $(AREAS)

lint: ## rustfmt, clippy, shell and Python syntax
	@scripts/lint.sh

clean: stop ## Remove the private clusters (never the build cache)
	@for name in $(CLUSTERS); do folder=$$(scripts/cluster.sh folder $$name) && rm -rf "$$folder" target/$$name; done
	@rm -rf target/regress target/results target/results-versions target/results-cassert target/results-packages target/chance target/package target/packages target/gpu target/bench-gpu target/bench-ranks target/bench-shuffle target/sqlsmith-findings.sql target/docs-source target/docs-site
