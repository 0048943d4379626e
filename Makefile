# The front door. Each target installs what is missing, configures, builds and runs.
# SPDX-License-Identifier: MIT
#
#   make PRESET=asan test        another preset of CMakePresets.json
#   make run PROMPT="The city of" ARGS="--temperature 0"
#   make bench ARGS="--shapes norm --json out.json"

# `make run` and `make serve` build only what this machine can use: the kernels of its GPU, or the
# CPU side alone. Everything else builds both kernel libraries if there is an nvcc.
NVCC := $(shell sh tools/find_nvcc.sh)
GPU := $(if $(NVCC),$(shell sh tools/find_gpu.sh))
SM90 := $(if $(filter 90,$(GPU)),ON,OFF)
GPU_DEFINES := -D TESSERA_CUDA=ON -D TESSERA_PORTABLE_ARCHS=$(GPU)-real -D TESSERA_SM90=$(SM90)
RUN_PRESET := $(or $(PRESET),run)
PRESET ?= $(if $(NVCC),release,cpu)
FAMILY ?= elementwise
export PROMPT ?= The history of mathematics
export CUDACXX := $(NVCC)
BUILD = build/$(PRESET)
TESSERA = $(BUILD)/apps/tessera

.PHONY: help run serve quantize test emulate bench gpu-suite format clean configure binary
help:
	@echo "make run        build, then continue PROMPT with the bundled model"
	@echo "make serve      build, then serve the bundled model: an OpenAI API and a web page"
	@echo "make quantize   build, then quantise a checkpoint: ARGS=\"FOLDER OUT\""
	@echo "make test       checks, build and every test this machine can run"
	@echo "make emulate    GPU tests without a GPU: kernels as PTX, run on the CPU"
	@echo "make bench      time the rows of a family: FAMILY=elementwise ARGS=..."
	@echo "make gpu-suite  GPU tests, sanitizers, benches and comparisons; writes JSON"
	@echo "make format     rewrite the sources in the house format"
	@echo "make clean      remove build/"

configure:
	@sh tools/setup.sh $(or $(PACKAGES),build)
	@mkdir -p $(BUILD)
	@cmake --preset $(PRESET) $(DEFINES) > $(BUILD)/log 2>&1 || { cat $(BUILD)/log; exit 1; }
binary: configure ; @cmake --build --preset $(PRESET) --target tessera

# The preset `run` leaves out what takes long to compile; make serve and make quantize add it.
run quantize: PACKAGES := run
serve: PARTS := -D TESSERA_SERVER=ON
quantize: PARTS := -D TESSERA_QUANTIZE=ON
run serve quantize: PRESET := $(RUN_PRESET)
run serve quantize: DEFINES = $(if $(GPU),$(if $(filter run,$(RUN_PRESET)),$(GPU_DEFINES))) $(PARTS)
run: binary
	@printf '%s' "$$PROMPT" && $(TESSERA) run --prompt "$$PROMPT" $(ARGS)
serve quantize: binary ; @$(TESSERA) $@ $(ARGS)
bench: binary ; @$(TESSERA) bench $(FAMILY) $(ARGS)

test: ; @sh tools/setup.sh test && bash tools/test.sh $(PRESET)
emulate: ; @sh tools/setup.sh build && bash tools/emulate.sh $(ARGS)

gpu-suite: configure
	@cmake --build --preset $(PRESET)
	@bash tools/gpu_suite.sh $(BUILD) $(ARGS)

format: ; @sh tools/setup.sh test && bash tools/format.sh
clean: ; rm -rf build
