# A thin front: every target is one or two commands that can be typed as well.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help bootstrap build run test test-full bench model vllm-check gpu-check asan tsan format clean

JOBS ?= $(shell nproc)
# Equal files in two clones are compiled once.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
ifdef DYNATRAIN_PREFIX
export CMAKE_PREFIX_PATH := $(DYNATRAIN_PREFIX)
export PKG_CONFIG_PATH := $(DYNATRAIN_PREFIX)/lib/pkgconfig:$(PKG_CONFIG_PATH)
export CPATH := $(DYNATRAIN_PREFIX)/include:$(CPATH)
export LIBRARY_PATH := $(DYNATRAIN_PREFIX)/lib:$(LIBRARY_PATH)
export LD_LIBRARY_PATH := $(DYNATRAIN_PREFIX)/lib:$(LD_LIBRARY_PATH)
endif

help: ## Show this list
	@echo "make TARGET   (as root on Debian or Ubuntu, what is missing gets installed)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

bootstrap: ## Install what the build needs; nothing when nothing is missing
	@scripts/bootstrap.sh

build: bootstrap ## Release binary build/rel/bin/dynatrain, benchmarks in build/rel/bench
	cmake --preset rel >/dev/null
	cmake --build --preset rel -j $(JOBS)

run: build ## Quickstart: a tiny model learns to sort, 4 ranks, a switch at every step
	scripts/quickstart.sh

test: bootstrap ## All tests (with those of the real model once `make model` has run)
	scripts/test.sh test

test-full: bootstrap ## The same with every round of the property tests
	DYNATRAIN_TEST_FULL=1 scripts/test.sh test

bench: build ## Every benchmark against its opponent in the same run
	scripts/bench.sh

model: bootstrap ## SmolLM2-135M-Instruct as a Hugging Face directory in the cache
	scripts/model.sh

vllm-check: model ## The plugin inside vLLM's CPU build, in an environment of its own (FULL=1: all of it)
	@scripts/vllm_check.sh $(if $(FULL),--full)

gpu-check: ## What needs a GPU; skipped where there is none
	@scripts/gpu_check.sh

asan: bootstrap ## Unit, contract, dist and gpusim tests under address and undefined sanitizers
	scripts/test.sh asan 'unit|contract|dist|gpusim'

tsan: bootstrap ## The same under the thread sanitizer, but gpusim
	scripts/test.sh tsan 'unit|contract|dist'

format: ## clang-format over all C and C++ sources
	scripts/format.sh

clean: ## Remove build/ (not runs/, not the cache)
	rm -rf build
