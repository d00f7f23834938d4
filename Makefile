# Thin front of CMake: `make help` lists the targets.
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
SOAK_HOURS ?= 0
JOBS := $(shell nproc)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)
# One in N of a preset's tests if ORDO_SAMPLE is set; tools/sample has more.
drawn = $${ORDO_SAMPLE:+-R "$$(ctest -N --preset $(1) | sed -nE 's/.*Test +\#[0-9]+: //p' | tools/sample $(2) | \
	sed 's/.*/^&$$/' | paste -sd '|')"}

.PHONY: all demo train test test-long test-asan test-tsan test-gpu soak bench lint format install clean help
.PHONY: wheel debian docs python-test python-torch-test python-wheel-test setup-build setup-test setup-long setup-lint setup-python setup-debian everything

all: setup-build ## build the libraries and the command: build/bin, build/lib
	@tools/build release product

demo: setup-build ## show the point of ordo in a minute
	@tools/build release product bench_attention_unordered
	@tools/demo

train: all setup-python ## train a small GPT, kill it, resume it on other ranks; the last line is "equal"
	@tests/python/run --torch --program tools/train $(TRAIN)

everything: setup-test
	@tools/build release

test: everything ## build and run the tests
	@ctest --preset release --no-tests=error

test-long: everything setup-long ## run the long tests, some mutants, and each fuzz target for FUZZ_SECONDS
	@ctest --preset long --no-tests=error $(call drawn,long,8)
	@tools/soak --sample --fuzz-seconds $(FUZZ_SECONDS)

soak: everything ## every mutant, 10^8 fuzz inputs, thousands of drawings, 100 kills: hours; SOAK_HOURS limits them
	@tools/soak --hours $(SOAK_HOURS)

test-asan: setup-test ## run the tests under the address and undefined sanitizers
	@tools/build asan
	@ctest --preset asan --no-tests=error $(call drawn,asan,8)

# gcc 12's thread sanitizer fails to start under a kernel that randomises addresses widely.
test-tsan: setup-test ## run the threaded tests under the thread sanitizer
	@tools/build tsan threaded_tests
	@$$(setarch -R true 2>/dev/null && echo setarch -R) ctest --preset tsan --no-tests=error

test-gpu: setup-build ## run every test that needs a GPU, in one table; TEST_GPU="--only grid" and so on
	@tools/test-gpu $(TEST_GPU)

python-test: all setup-python ## test the Python package on what `make` built
	@tests/python/run

python-torch-test: all setup-python ## test the PyTorch front, in an environment of some GB
	@tests/python/run --torch

wheel: all setup-python ## make a wheel for manylinux_2_28 in build/wheel, CUDA modules inside; WHEEL=aarch64 for ARM
	@tools/wheel $(WHEEL)

docs: setup-python ## build the documents as a site with search, in build/docs/site
	@tools/docs

debian: setup-debian ## build the Debian packages libordo0, libordo-dev and ordo in build/debian, and use them
	@tools/debian

python-wheel-test: all setup-python ## make the wheel, install it in a fresh virtual environment, test that
	@tests/python/run --wheel

bench: everything ## build and run the benchmarks
	@for program in $(basename $(notdir $(wildcard bench/*.c bench/*/*.c))); do build/bench/$$program || exit 1; done

lint: setup-lint ## check format, clang-tidy, cppcheck, layers, links of docs, that mutants apply
	@tools/lint

format: setup-lint ## apply clang-format
	@tools/lint --fix

install: all ## install to PREFIX (default /usr/local), under DESTDIR if set
	@cmake --install build --prefix $(PREFIX)
	@case $$(id -u),$(DESTDIR),$(PREFIX) in \
	0,,/usr | 0,,/usr/local) PATH=$$PATH:/sbin ldconfig ;; esac # or the loader would not know of it

clean: ## remove what was built
	rm -rf build build-asan build-tsan build-cuda build-fuzz build-lineinfo

setup-build setup-test setup-long setup-lint setup-python setup-debian: setup-%:
	@tools/setup $*

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 20
