# How the tests are built, and which of them `make test` runs.

# ---- tests: programs that print `N passed, M failed`, run by test/run.sh, JOBS at a time ---------
# what is compiled in of every golden case is a build of test_model.cpp:
# build/test/model/sigmoid-k-rotary. The values of a switch that compile to the same are one:
# BIAS=k has a key for a column, kv too
SETS    := $(shell awk -F'\t' '!/^\#/ && NF > 1 && $$1 != "name" { \
             attn = "softmax"; bias = "none"; pe = "rotary"; n = split($$2, w, " "); \
             for (i = 1; i <= n; i++) { \
                 if (w[i] ~ /^ATTN=/) attn = substr(w[i], 6); \
                 if (w[i] ~ /^BIAS=(k|kv|zero)$$/) bias = "k"; \
                 if (w[i] == "BIAS=logit") bias = "logit"; \
                 if (w[i] ~ /^PE=(relative|alibi)$$/) pe = substr(w[i], 4) } \
             print attn "-" bias "-" pe }' dev/golden/cases.tsv | sort -u)
# and a few as users compile them
FASTS   := softmax-none-rotary sigmoid-none-rotary elu1_norm-none-rotary softmax-k-rotary
ANALYTIC := $(PE_ALL:%=build/test/analytic/softmax-none-%)
MODEL_TESTS := $(SETS:%=build/test/model/%) $(SETS:%=build/test/model-double/%) \
               $(FASTS:%=build/test/model-fast/%) $(ANALYTIC)
# these are built many times, each with its switches
MODEL_SOURCES := test/core/test_model.cpp test/core/test_analytic.cpp
TESTS   := $(patsubst %.cpp,build/test/%, \
           $(notdir $(filter-out $(MODEL_SOURCES),$(wildcard test/*/test_*.cpp))))
# a test is known by its name, wherever it lies
vpath test_%.cpp $(sort $(dir $(wildcard test/*/test_*.cpp)))
vpath fuzz_%.cpp test/fuzz
TEST_HEADERS := $(wildcard test/*.h)
TEST_COMPILE = $(CXX) -std=c++17 -march=$(ARCH) -fopenmp $(WARN) -x c++
MODEL_COMPILE = $(TEST_COMPILE) -O0 -Wno-unused-function
# -D of every switch: those of a set such as sigmoid-k-rotary, else the default
of_set   = $(word $(2),$(subst -, ,$(1)))
set_defs = -DATTN=$(call of_set,$(1),1) -DBIAS=$(call of_set,$(1),2) -DPE=$(call of_set,$(1),3) \
           $(foreach s,$(filter-out ATTN BIAS PE,$(MODEL)),-D$(s)=$(firstword $($(s)_ALL)))

# those that parse what others wrote run once more under the address
# and undefined-behavior sanitizers
ASAN_TESTS := $(foreach t,data look checkpoint tokenizer gguf,build/test/asan_$(t))
# -O0 compiles in half the time, and hides no access from them
SANITIZE := -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS
# where `make OPTIMIZE='$(SANITIZE)' UNITS=few` puts them: test_sanitized.sh builds the program so
ASAN_COMPILE := $(CXX) -std=c++17 $(SANITIZE) -march=$(ARCH) -fopenmp $(WARN_FEW)
ASAN_DIR     := build/once/$(call number_of,$(ASAN_COMPILE))
ASAN_OBJECTS := $(call few_in,$(ASAN_DIR))
ASAN_ONCE    := $(ASAN_DIR)/once.a
asan_flags: # what they are compiled with, for scripts
	@echo "$(SANITIZE)"

# `make test` is what a change needs, some five minutes on two cores; `make test-all` is the rest:
# all golden sets, the sanitizers, scripts, the emulator's long runs and nvcc. CI runs both
NOT_QUICK    := build/test/test_train build/test/test_bf16 build/test/test_extremes
QUICK_SETS   := softmax-none-rotary sigmoid-none-rotary softmax-k-rotary
# the core's need neither open/ nor after/: CI builds and runs them in a copy without the two
# (test/program/test_optional.sh), and, with CORE_TESTED=1, not here again
CORE_TESTS   := $(patsubst %.cpp,build/test/%,$(notdir $(filter-out $(MODEL_SOURCES),$(wildcard \
                $(patsubst %,test/%/test_*.cpp,core cpu text))))) $(MODEL_TESTS)
TESTED       := $(if $(CORE_TESTED),$(filter-out $(CORE_TESTS),$(TESTS)),$(TESTS) $(MODEL_TESTS))
QUICK_BUILDS := $(filter $(filter-out $(NOT_QUICK),$(TESTS)) $(QUICK_SETS:%=build/test/model/%),$(TESTED))
SLOW_BUILDS  := $(filter-out $(QUICK_BUILDS),$(TESTED) $(ASAN_TESTS))
# about the tree itself
QUICK_NAMES := index size version
QUICK_SCRIPTS := $(wildcard $(QUICK_NAMES:%=test/program/test_%.sh))
SLOW_SCRIPTS := $(filter-out $(QUICK_SCRIPTS) $(if $(CORE_TESTED),%/test_optional.sh),$(wildcard test/*/test_*.sh))
# their names, as test/run.sh knows them, those that take minutes first:
# no core is to wait for the last of them
names_of = $(patsubst build/test/%,%,$(filter-out %.sh,$(1))) \
           $(basename $(notdir $(filter %.sh,$(1))))
LONG     := test_ptx test_cuda test_nvcc test_add_variant test_cuda_train test_gpu_run test_reproduce test_nccl test_make \
            model-double/softmax-none-rotary test_sanitized test_one_line test_dist test_report test_readme \
            test_attention test_matmul test_cpu test_sass test_errors
in_order = $(filter $(1),$(LONG)) $(filter-out $(LONG),$(1))
run_all  = JOBS=$(JOBS) sh test/run.sh $(call in_order,$(call names_of,$(1)))
quick: $(QUICK_BUILDS) program
slow: $(SLOW_BUILDS) program
of-core: $(CORE_TESTS) $(firstword $(PROGRAMS))
# whole programs that test_train, test_demo and others run
PROGRAMS := program-ATTN=softmax program-ATTN=sigmoid program-BIAS=k program-BIAS=logit
DEFAULTS  = $(foreach s,$(MODEL),$(s)=$(firstword $($(s)_ALL)))
program: $(PROGRAMS)
# what they share is made by the first alone: two at once would write the same files
$(firstword $(PROGRAMS)): | $(ONCE)
$(wordlist 2,$(words $(PROGRAMS)),$(PROGRAMS)): | $(firstword $(PROGRAMS))
program-%:
	$(MAKE) $(DEFAULTS) BACKEND=cpu $* binary
analytic: $(ANALYTIC)
# the test itself is compiled once, at -O2 as the program is, core/variant.cu for each set: $(1) is
# the kind of build, $(2) the test
HOW_model        = $(MODEL_COMPILE)
HOW_model-fast   = $(TEST_COMPILE) $(OPTIMIZE)
HOW_model-double = $(MODEL_COMPILE) -O2 -DBACKEND=ref -DREAL=double
HOW_analytic     = $(HOW_model-double)
# the model as the tests compile it
UNIT := test/model_unit.h train_sink.cu core/checkpoint.cpp core/measure.cpp core/model.cpp cpu/cpu_model.cpp
define kind_of_build
.SECONDARY: build/test/objects/$(1).o
build/test/objects/$(1).o: test_$(2).cpp $(TEST_HEADERS) $(UNIT) $(HEADERS)
	@mkdir -p $$(@D)
	$$(subst -O3,-O2,$$(HOW_$(1))) -c $$< -o $$@
build/test/$(1)/%: core/variant.cu build/test/objects/$(1).o $(ONCE)
	@mkdir -p $$(@D)
	$$(call said,$$@)$$(HOW_$(1)) $$(call set_defs,$$*) $$< -o $$@ -x none $$(filter %.o %.a,$$^)
endef
$(foreach k,model model-fast model-double,$(eval $(call kind_of_build,$(k),model)))
# the fixtures that they read
$(filter-out $(ANALYTIC),$(MODEL_TESTS)): | build/golden
build/golden: test/golden/fixtures.tar
	@rm -rf $@ && mkdir -p $@ && tar xf $< -C $@
$(eval $(call kind_of_build,analytic,analytic))
# whatever reads a model's files asks for the build's switches: the default's, if a test has none
SWITCHED := build/test/objects/switched.a
$(SWITCHED): core/variant.cu $(HEADERS)
	@mkdir -p $(@D)
	$(MODEL_COMPILE) $(call set_defs,softmax-none-rotary) -c $< -o $(@:.a=.o) && ar rcs $@ $(@:.a=.o)
build/test/asan_%: test_%.cpp $(TEST_HEADERS) $(HEADERS) $(ASAN_ONCE) $(SWITCHED)
	@mkdir -p $(@D)
	$(TEST_COMPILE) $(SANITIZE) $< -o $@ -x none -Wl,--start-group $(ASAN_ONCE) $(SWITCHED) -Wl,--end-group
ifneq ($(ASAN_DIR),$(ONCE_DIR))
$(ASAN_ONCE): $(ASAN_OBJECTS)
	$(ARCHIVE)
$(ASAN_DIR)/%.o: %.cpp
	@mkdir -p $(@D)
	$(BEGUN) $(ASAN_COMPILE) $(OBJECT)
$(foreach r,$(FOLDERS),$(eval $(call folder_unit,$(ASAN_DIR),$(r),ASAN_COMPILE)))
-include $(ASAN_OBJECTS:.o=.d)
endif
# these hold the operations of every variant at once: at -O3 a minute and a half to compile
WITH_MODEL := default_model stages experts anatomy anywhere anywhere_key eval eval_sink eval_key eval_positions pieces
OPERATIONS := attention cpu metrics extremes alibi_families head_maps $(WITH_MODEL)
$(OPERATIONS:%=build/test/test_%): OPTIMIZE = -O0
$(WITH_MODEL:%=build/test/test_%): $(UNIT) core/variant.cu run/open_model.cpp
$(addprefix build/test/test_eval_,sink key positions): test/after/test_eval.cpp
build/test/test_anywhere_key: test/after/test_anywhere.cpp
build/test/test_default_model: run/default_model.cpp
# and these read text and files, or only run the program: at -O1 they compile in a third of the time
READERS := data look hostile tokenizer text_steps errors export families published train gguf checkpoint score \
           sft directory
$(READERS:%=build/test/test_%): OPTIMIZE = -O1
build/test/%: %.cpp $(TEST_HEADERS) $(HEADERS) $(ONCE) $(SWITCHED)
	@mkdir -p $(@D)
	$(call said,$@)$(TEST_COMPILE) $(OPTIMIZE) $< -o $@ -x none -Wl,--start-group $(ONCE) $(SWITCHED) -Wl,--end-group
