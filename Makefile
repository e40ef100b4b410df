# train_sink: one binary per model.          make help
#
#   make train_sink ATTN=sigmoid BIAS=k      -> build/cpu-ATTN=sigmoid-BIAS=k/train_sink;
#                                            ./train_sink links to the last one built
#   make test                                everything that can be tested here

include mk/switches.mk # the switches, their values, the tools
include mk/build.mk    # how a program is built
include mk/tests.mk    # how the tests are built

.SUFFIXES: # so that `make test_data` is an unknown target, and compiles no file of that name
.PHONY: train_sink binary release bench-ops nvcc_arch asan_flags once objects switches values folders quick slow of-core test-all core-tests compile-all \
        ptx-all sanitizer check test \
        program analytic demo demo-bb bench experiments mutants size help clean FORCE
.DEFAULT_GOAL := train_sink

train_sink: $(DIR)/train_sink
	@ln -sf $< $@ && echo "BACKEND=$(BACKEND) ($(WHY)); ./train_sink -> $<"
	$(if $(idle),@echo "$(idle)")

binary: $(DIR)/train_sink # the same without the link; says where it is
	$(if $(SAY),,@echo $<)

# an archive of a program that needs no library, for processors of x86-64-v3 (AVX2), or ARCH=..
release: build/$(ARCHIVE_NAME).tar.gz
	@echo $<

check: # are these switches a model? says so and builds nothing
	@echo "$(DIR)"

nvcc_arch: # what nvcc is told to compile for, for scripts
	@echo "$(or $(NVCC_ARCH),$(error nvcc_arch: got BACKEND=$(BACKEND), wanted BACKEND=cuda))"

switches: # the names of the switches that make a model, for scripts
	@echo "$(MODEL)"

values: # all that each switch may be, its default first
	@$(foreach s,$(SWITCHES),echo $(s) $($(s)_ALL);)

folders: # the folders that hold the program, for scripts
	@echo "$(FOLDERS)"

# every build that scripts/experiments.tsv names, JOBS at a time, what they share first;
# ./train_sink stays where it points
experiments: binary
	@grep -v '^#' scripts/experiments.tsv | sed 1d | cut -f 3 | sort -u | \
	  sed 's/^-$$/ATTN=$(word 1,$(ATTN_ALL))/' | xargs -d '\n' -P $(JOBS) -I{} \
	  sh -c '$(MAKE) -s --no-print-directory binary $$1 || exit 255' sh {}

test:
	@echo "building what is tested: minutes the first time"
	@SAY=1 $(MAKE) --no-print-directory -s -j$(JOBS) quick
	@$(call run_all,$(QUICK_BUILDS) $(QUICK_SCRIPTS))

test-all: # what make test leaves out
	@SAY=1 $(MAKE) --no-print-directory -s -j$(JOBS) slow
	@$(call run_all,$(filter-out build/test/analytic/%,$(SLOW_BUILDS)) $(SLOW_SCRIPTS) \
	  $(if $(CORE_TESTED),,analytic))

core-tests: # those that need neither open/ nor after/, fast and slow
	@SAY=1 $(MAKE) --no-print-directory -s -j$(JOBS) of-core
	@$(call run_all,$(filter-out build/test/analytic/%,$(CORE_TESTS)) analytic)

# nvcc on every two switch values together, for four architectures; an attention kernel that
# spills is a failure; then what all of them count, against the budgets
compile-all:
	@sh dev/gpu/compile_all.sh pairwise
	@sh dev/gpu/sass.sh all
	@COUNTS=all sh test/gpu/test_counts.sh

ptx-all: # every variant and head dimension as nvcc compiles it, interpreted, for sm_80 and sm_90
	@PTX_SET=all sh test/gpu/test_ptx.sh

sanitizer: # the CUDA tests under compute-sanitizer, on a GPU
	@DEVICE=sanitizer sh test/gpu/test_cuda.sh

size: # what each folder weighs, and the rules that every file keeps: headers compile alone, ..
	@python3 dev/size.py

mutants: # one-line bugs, each of which one test has to notice
	@sh dev/mutants.sh

demo: # three small models on a novel, one table
	@sh scripts/demo.sh text

demo-bb: # the same on the built-in task
	@sh scripts/demo.sh bb

bench: # speed and memory, beside PyTorch and other tokenizers where they are installed
	@sh scripts/bench.sh

help:
	@echo "make train_sink [SWITCH=value ...]     build one model; the first value of a switch is" \
	      "its default"
	@echo "make release [ARCH=$(x86_64)]         build/train_sink-$(VERSION)-..tar.gz: no compiler and" \
	      "no library is needed where it runs"
	@echo "make test | test-all | demo | demo-bb | bench | experiments | mutants | compile-all |" \
	      "ptx-all | sanitizer | check | size | clean"
	@echo "scripts/reproduce list                 the paper's tables by name: build, train, compare"
	@echo "tools: CXX=$(CXX) ARCH=$(ARCH) OPTIMIZE='$(OPTIMIZE)' JOBS=$(JOBS) NVCC=$(NVCC)" \
	      "GPU_ARCH=$(GPU_ARCH) DIST=$(DIST) UNITS=$(UNITS)"
	@$(foreach s,$(SWITCHES),echo; echo $(s); sed -n '$(call row_of,$(s))' $(TABLES) | \
	  sed 's/^\([a-z0-9_]*\)[^"]*"/\1\t/; s/" *, *"/\t/; s/"$$//' | \
	  awk -F'\t' 'NF > 2 { printf "  %-16s %-32s %s\n", $$1, $$2, $$3; next } \
	              { printf "  %-16s %s\n", $$1, $$2 }';)

clean:
	rm -rf build train_sink
