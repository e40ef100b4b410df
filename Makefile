# train_sink: one binary per model.          make help
#
#   make train_sink ATTN=sigmoid BIAS=k      -> build/cpu-sigmoid-k/train_sink, and ./train_sink links to the last one built
#   make test                                everything that can be tested here

# ---- the switches. Their values are the rows of the tables in attention_variants.cuh; the first row is the default -------
SWITCHES := ATTN BIAS PE NORM FFN COMBINE PRECISION BACKEND
MODEL    := ATTN BIAS PE NORM FFN COMBINE
lp := (
rows = $(shell sed -n 's/^ *X_$(1)$(lp)\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh)
$(foreach s,$(SWITCHES),$(eval $(s)_ALL := $(call rows,$(s))))
$(foreach s,$(SWITCHES),$(eval $(s) ?= $(firstword $($(s)_ALL))))

# ---- the tools: change them on the command line or in the environment ----------------------------------------------------
CXX      ?= g++
ARCH     ?= native
# -fno-math-errno -fno-trapping-math change no value, only whether errno and exception flags are kept. Never -ffast-math.
OPTIMIZE ?= -O3 -fno-math-errno -fno-trapping-math
WARN     := -Wall -Wextra
JOBS     ?= $(shell nproc)
KNOWN    := $(SWITCHES) CXX ARCH OPTIMIZE JOBS

# ---- a misspelt value, or a misspelt switch (ATN=sigmoid), must not quietly train softmax --------------------------------
ifeq ($(filter help clean,$(MAKECMDGOALS)),)
one_of = $(if $(filter-out 1,$(words $($(1))))$(filter-out $($(1)_ALL),$($(1))),$(error $(1)=$($(1)) is unknown; choose one of: $($(1)_ALL)))
$(foreach s,$(SWITCHES),$(call one_of,$(s)))
typed   := $(foreach o,$(MAKEOVERRIDES),$(firstword $(subst =, ,$(o))))
strange := $(filter-out $(KNOWN),$(typed))
$(if $(strange),$(error unknown switch $(strange); known are: $(KNOWN)))
conflict := $(shell sed -n 's/^ *X_CONFLICT(ATTN=$(ATTN) *BIAS=$(BIAS) *, *"\(.*\)").*/\1/p' attention_variants.cuh)
$(if $(conflict),$(error ATTN=$(ATTN) with BIAS=$(BIAS) means nothing: $(conflict)))
endif

# ---- one directory per model: switching cannot leave a stale binary, and switching back costs nothing --------------------
empty :=
others = $(foreach s,$(MODEL),$(filter-out $(firstword $($(s)_ALL)),$($(s))))
DIR   := build/$(subst $(empty) $(empty),-,$(strip $(BACKEND) $(others)))
DEFS   = $(foreach s,$(MODEL),-D$(s)=$($(s)))
COMMIT := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
COMPILE = $(CXX) -std=c++17 $(OPTIMIZE) -march=$(ARCH) -fopenmp $(WARN)
HEADERS := $(wildcard *.h *.cuh)

.PHONY: train_sink test tests demo bench mutants size help clean FORCE
.DEFAULT_GOAL := train_sink

train_sink: $(DIR)/train_sink
	@ln -sf $< $@ && echo "./train_sink -> $<"

# flags.txt is rewritten only when it differs, so a change of flags, compiler or commit rebuilds and nothing else does
$(DIR)/flags.txt: FORCE
	@mkdir -p $(DIR)
	@echo '$(COMPILE) $(DEFS) $(COMMIT)' "$$($(CXX) --version | head -n 1)" | cmp -s - $@ || \
	 echo '$(COMPILE) $(DEFS) $(COMMIT)' "$$($(CXX) --version | head -n 1)" > $@

$(DIR)/train_sink: train_sink.cu $(DIR)/flags.txt
	$(COMPILE) $(DEFS) -DGIT_COMMIT='"$(COMMIT)"' -MMD -MP -MF $(DIR)/depends.d -x c++ $< -o $@
-include $(DIR)/depends.d

# ---- tests: programs that print `N passed, M failed`, run one after the other by test/run.sh -------------------------------
# every set of switches among the golden cases is a build of test_model.cpp: build/test/model/ATTN=sigmoid+BIAS=k
SETS    := $(shell awk -F'\t' '!/^\#/ && NF > 1 && $$1 != "name" { gsub(" ", "+", $$2); print $$2 ? $$2 : "default" }' dev/golden/cases.tsv | sort -u)
DOUBLES := default ATTN=sigmoid ATTN=sigmoid_norm ATTN=elu1 ATTN=softmax_p ATTN=sigmoid_p ATTN=mlp_norm ATTN=kernel_elu_norm \
           ATTN=identity_norm BIAS=kv BIAS=k BIAS=v BIAS=sink_token PE=learnable NORM=post FFN=gelu COMBINE=sum
MODEL_TESTS := $(SETS:%=build/test/model/%) $(DOUBLES:%=build/test/model-double/%)
TESTS   := $(patsubst test/%.cpp,build/test/%,$(filter-out test/test_model.cpp,$(wildcard test/test_*.cpp)))
TEST_COMPILE = $(CXX) -std=c++17 -march=$(ARCH) -fopenmp $(WARN) -x c++
MODEL_COMPILE = $(TEST_COMPILE) -O0
set_defs = $(foreach s,$(MODEL),-D$(s)=$(firstword $(patsubst $(s)=%,%,$(filter $(s)=%,$(subst +, ,$(1)))) $(firstword $($(s)_ALL))))

tests: $(TESTS) $(MODEL_TESTS)
build/test/model/%: test/test_model.cpp test/check.h train_sink.cu $(HEADERS)
	@mkdir -p $(@D)
	$(MODEL_COMPILE) $(call set_defs,$*) $< -o $@
build/test/model-double/%: test/test_model.cpp test/check.h train_sink.cu $(HEADERS)
	@mkdir -p $(@D)
	$(MODEL_COMPILE) -DREAL=double $(call set_defs,$*) $< -o $@
build/test/%: test/%.cpp test/check.h $(HEADERS)
	@mkdir -p $(@D)
	$(TEST_COMPILE) $(OPTIMIZE) $< -o $@

test:
	@$(MAKE) --no-print-directory -s -j$(JOBS) tests
	@sh test/run.sh

demo:
	@sh scripts/demo.sh

help:
	@echo "make train_sink [SWITCH=value ...]     build one model; the first value of a switch is its default"
	@echo "make test | demo | bench | mutants | size | clean"
	@echo "tools: CXX=$(CXX) ARCH=$(ARCH) OPTIMIZE='$(OPTIMIZE)' JOBS=$(JOBS)"
	@for s in $(SWITCHES); do echo; echo $$s; \
	  sed -n "s/^ *X_$$s(\([a-z0-9_]*\) *,[^\"]*\"\(.*\)\").*/\1\t\2/p" attention_variants.cuh | sed 's/" *, *"/\t/' | \
	  awk -F'\t' '{ if (NF > 2) printf "  %-16s %-32s %s\n", $$1, $$2, $$3; else printf "  %-16s %s\n", $$1, $$2 }'; done

clean:
	rm -rf build train_sink
