# train_sink: one binary per model.          make help
#
#   make train_sink ATTN=sigmoid BIAS=k      -> build/cpu-ATTN=sigmoid-BIAS=k/train_sink;
#                                            ./train_sink links to the last one built
#   make test                                everything that can be tested here

# ---- the switches. Their values are the rows of the tables; the first row is the default ---------
TABLES := attention_variants.cuh block_variants.h
lp := (
SWITCHES := $(shell sed -n 's/^.define \([A-Z]*\)_VARIANTS$(lp)X_.*/\1/p' $(TABLES))
MODEL    := $(filter-out PRECISION BACKEND,$(SWITCHES))
rows = $(shell sed -n 's/^ *X_$(1)$(lp)\([a-z0-9_]*\) *,.*/\1/p' $(TABLES))
$(foreach s,$(SWITCHES),$(eval $(s)_ALL := $(call rows,$(s))))
$(foreach s,$(MODEL),$(eval $(s) ?= $(firstword $($(s)_ALL))))
# cuda where it can be built and run, else cpu, and the first line of output says why
NVCC    ?= $(shell command -v nvcc 2>/dev/null)
# any card of this container, or under WSL, where the driver's library says
# that the card is NVIDIA's
WSL     := $(and $(wildcard /dev/dxg),$(wildcard /usr/lib/wsl/lib/libcuda.so.1))
GPU     := $(firstword $(wildcard /dev/nvidia[0-9]*) $(WSL))
BACKEND ?= $(if $(NVCC),$(if $(GPU),cuda,cpu),cpu)
HERE    := $(if $(GPU),nvcc and a GPU are here,no GPU here: no /dev/nvidia[0-9]*)
WHY     := $(if $(NVCC),$(HERE),no nvcc in PATH)
PRECISION ?= $(if $(filter cuda,$(BACKEND)),bf16,fp32)

# ---- the tools: change them on the command line or in the environment ----------------------------
CXX      ?= g++
ARCH     ?= native
GPU_ARCH ?= $(if $(GPU),native,sm_80)
# -fno-math-errno -fno-trapping-math change no value, only whether errno and exception flags are
# kept; never -ffast-math. Vectors as wide as the processor has them: of AVX-512 GCC would take half
WIDE     := $(if $(filter x86_64,$(shell uname -m)),-mprefer-vector-width=512)
OPTIMIZE ?= -O3 -fno-math-errno -fno-trapping-math $(WIDE)
WARN     := -Wall -Wextra
JOBS     ?= $(shell nproc)
# many processes: none, mpi (on the CPU) or nccl (on GPUs); docs/many.md
DIST     ?= none
DIST_ALL := none mpi nccl
MPICXX   ?= mpicxx
KNOWN    := $(SWITCHES) CXX ARCH OPTIMIZE JOBS NVCC GPU_ARCH DIST MPICXX

# ---- a misspelled value, or a misspelled switch (ATN=sigmoid), must not quietly train softmax --------
ifeq ($(filter help clean size,$(MAKECMDGOALS)),)
not_one = $(filter-out 1,$(words $($(1))))$(filter-out $($(1)_ALL),$($(1)))
one_of  = $(if $(not_one),$(error $(1)=$($(1)) is unknown; choose one of: $($(1)_ALL)))
$(foreach s,$(SWITCHES) DIST,$(call one_of,$(s)))
typed   := $(foreach o,$(subst \ ,-,$(MAKEOVERRIDES)),$(firstword $(subst =, ,$(o))))
strange := $(filter-out $(KNOWN),$(typed))
$(if $(strange),$(error unknown switch $(strange); known are: $(KNOWN)))
# one of a set a|b|c: (a name and |) any number of times, this name, (| and a name)
# any number of times
in_set = ([a-z0-9_]*[|])*$(1)([|][a-z0-9_]*)*
both     := ATTN=$(call in_set,$(ATTN)) +BIAS=$(call in_set,$(BIAS))
conflict := $(shell sed -nE 's/^ *X_CONFLICT\($(both) *, *"(.*)"\).*/\5/p' \
              attention_variants.cuh)
without  := $(if $(NVCC),,BACKEND=cuda needs nvcc, which is not in PATH)
no_nvcc  := $(if $(filter cuda,$(BACKEND)),$(without))
# the compiler: one that is not there, or does not know C++17, is one line and not two hundred
compiler := $(shell command -v $(firstword $(CXX)) 2>/dev/null)
$(if $(compiler),,$(error $(firstword $(CXX)) is not in PATH ---> HINT: apt-get install g++, or \
  dnf install gcc-c++, or make CXX=clang++))
cxx17    := $(shell echo 'inline int a; template <class T> int f(T t) { if constexpr (sizeof t > 1) \
              return a; return 1; } int main() { return f(1L); }' | \
              $(CXX) -std=c++17 -fopenmp -x c++ -fsyntax-only - 2>/dev/null && echo yes)
$(if $(cxx17),,$(error CXX=$(CXX) compiles no C++17 with OpenMP ---> HINT: g++ 11 or newer; of \
  several: make CXX=g++-12))
$(if $(filter ref-bf16,$(BACKEND)-$(PRECISION)), \
  $(error PRECISION=bf16 needs BACKEND=cuda or cpu; BACKEND=ref computes in fp32))
fits := cpu-none ref-none cuda-none cpu-mpi ref-mpi cuda-nccl
$(if $(filter $(BACKEND)-$(DIST),$(fits)),, \
  $(error DIST=$(DIST) does not go with BACKEND=$(BACKEND): mpi is for cpu, nccl for cuda (mpirun \
  and srun start both)))
no_mpi   := $(if $(filter mpi,$(DIST)),$(if $(shell command -v $(MPICXX)),,$(MPICXX)))
$(if $(no_mpi),$(error DIST=mpi needs $(MPICXX), which is not in PATH \
  ---> HINT: apt-get install libopenmpi-dev openmpi-bin, or module load openmpi))
$(if $(no_nvcc),$(error $(no_nvcc); ---> HINT: install the CUDA toolkit, or make BACKEND=cpu))
$(if $(conflict),$(error ATTN=$(ATTN) with BIAS=$(BIAS) means nothing: $(conflict)))
# an extra column without a value where no row is divided by its sum: column_idle
no_sum   := $(shell sed -nE 's/^ *X_ATTN.$(ATTN) *, *Z_ONE *,.*/yes/p' attention_variants.cuh)
no_value := $(shell sed -nE 's/^ *X_BIAS.$(BIAS) *, *(KEY|LOGIT)_COLUMN *, *[01] *, *0 *,.*/yes/p' \
              attention_variants.cuh)
unless   := $(if $(filter k,$(BIAS)), unless a run is given --v-star)
idle     := $(if $(and $(no_sum),$(no_value)),note: the extra key of BIAS=$(BIAS) changes no output \
  with ATTN=$(ATTN)$(unless): rows are not divided by their sum and v* is 0; BIAS=kv would)
endif

# ---- one directory per model: switching cannot leave a stale binary, and switching back
# costs nothing ----------------
# build/cpu, or build/cpu-ATTN=sigmoid-BIAS=k: what is not the default, by name,
# so that no two models share one
empty :=
others = $(foreach s,$(MODEL),$(if $(filter-out $(firstword $($(s)_ALL)),$($(s))),$(s)=$($(s))))
usual := $(if $(filter cuda,$(BACKEND)),bf16,fp32)
odd   := $(if $(filter-out $(usual),$(PRECISION)),PRECISION=$(PRECISION))
many  := $(if $(filter-out none,$(DIST)),DIST=$(DIST))
DIR   := build/$(subst $(empty) $(empty),-,$(strip $(BACKEND) $(others) $(odd) $(many)))
BF16   = $(if $(filter cpu-bf16,$(BACKEND)-$(PRECISION)),-DCPU_REAL=bf16)
DEFS   = $(foreach s,$(SWITCHES) DIST,-D$(s)=$($(s))) $(BF16)
COMMIT := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
ifeq ($(BACKEND),cuda)
HOST_FLAGS = $(filter-out -O3,$(OPTIMIZE)) -march=$(ARCH) -fopenmp -Wall
COMPILE    = $(NVCC) -std=c++17 -O3 -arch=$(GPU_ARCH) -ccbin $(CXX) -Xcompiler '$(HOST_FLAGS)'
LINK    = -lcublasLt $(if $(filter nccl,$(DIST)),-lnccl)
else
HOST    = $(if $(filter mpi,$(DIST)),OMPI_CXX='$(CXX)' MPICH_CXX='$(CXX)' $(MPICXX),$(CXX))
COMPILE = $(HOST) -std=c++17 $(OPTIMIZE) -march=$(ARCH) -fopenmp $(WARN) -x c++
endif
HEADERS := $(wildcard *.h *.cuh commands/*.h shell/*.h cpu/*.h cuda/*.cuh dist/*.h models/*.h text/*.h)

# the compiler, and what -march=native means on this machine: another one may share the disk
MEANING  := $(shell $(CXX) -march=$(ARCH) -dM -E -x c++ /dev/null 2>/dev/null | cksum)
COMPILER := $(shell $(CXX) --version | head -n 1) $(MEANING)

# what no switch touches is compiled once, for all models, by a compiler and its flags:
# build/once/NUMBER/text/tokenizer.o. Of the archive a program takes what it calls
ONCE_COMPILE := $(CXX) -std=c++17 $(OPTIMIZE) -march=$(ARCH) -fopenmp $(WARN)
number_of     = $(firstword $(shell echo "$(1)" "$(COMPILER)" | cksum))
ONCE_DIR     := build/once/$(call number_of,$(ONCE_COMPILE))
ONCE_SOURCES := $(wildcard commands/*.cpp shell/*.cpp cpu/*.cpp models/*.cpp text/*.cpp)
ONCE_OBJECTS := $(ONCE_SOURCES:%.cpp=$(ONCE_DIR)/%.o)
ONCE         := $(ONCE_DIR)/once.a
ARCHIVE       = ar rcs $@.$$$$ $^ && mv $@.$$$$ $@
# a line for each part, while make test and make demo build: make -s alone says nothing for minutes
said = $(if $(SAY),$(info compiling $(1)))
# two makes at once may want the same file: each writes its own, and moves it to its place whole
OBJECT        = -MMD -MP -MF $@.$$$$.d -MT $@ -c $< -o $@.$$$$ && \
                mv $@.$$$$.d $(@:.o=.d) && mv $@.$$$$ $@

# and the program once for a backend and its precision: the model's own switches are in variant.o
PROGRAM_DEFS  = $(filter -DBACKEND=% -DPRECISION=% -DDIST=% -DCPU_REAL=%,$(DEFS))
PROGRAM      := build/program/$(call number_of,$(COMPILE) $(PROGRAM_DEFS))/train_sink.o

.PHONY: train_sink binary once switches quick slow test-all compile-all ptx-all sanitizer check test \
        program analytic demo demo-bb bench experiments mutants size help clean FORCE
.DEFAULT_GOAL := train_sink

train_sink: $(DIR)/train_sink
	@ln -sf $< $@ && echo "BACKEND=$(BACKEND) ($(WHY)); ./train_sink -> $<"
	$(if $(idle),@echo "$(idle)")

binary: $(DIR)/train_sink # the same without the link

check: # are these switches a model? says so and builds nothing
	@echo "$(DIR)"

switches: # the names of the switches that make a model, for scripts
	@echo "$(MODEL)"

# every build that scripts/experiments.tsv names, JOBS at a time, what they share first;
# ./train_sink stays where it points
experiments: binary
	@grep -v '^#' scripts/experiments.tsv | sed 1d | cut -f 3 | sort -u | \
	  sed 's/^-$$/ATTN=$(word 1,$(ATTN_ALL))/' | xargs -d '\n' -P $(JOBS) -I{} \
	  sh -c '$(MAKE) -s --no-print-directory binary $$1 || exit 255' sh {}

# flags.txt is rewritten only when it differs, so a change of flags, compiler, processor or commit
# rebuilds and nothing else does
$(DIR)/flags.txt: FORCE
	@mkdir -p $(DIR)
	@echo "$(COMPILE) $(DEFS) $(COMMIT)" "$(COMPILER)" | cmp -s - $@ || \
	 echo "$(COMPILE) $(DEFS) $(COMMIT)" "$(COMPILER)" > $@

# compiles $< for the target named, whose dependencies it writes
compile_for = $(COMPILE) $(DEFS) -DGIT_COMMIT='"$(COMMIT)"' \
              -MMD -MP -MF $(DIR)/depends.d -MT '$$(DIR)/$(1)'

ifeq ($(BACKEND),cuda) # in one piece
$(DIR)/train_sink: train_sink.cu $(DIR)/flags.txt $(ONCE)
	$(call compile_for,train_sink) $< -o $@ $(LINK) $(ONCE)
else
$(DIR)/train_sink: $(DIR)/variant.o $(PROGRAM) $(ONCE)
	$(HOST) -fopenmp $(filter %.o %.a,$^) -o $@

$(DIR)/variant.o: variant.cu $(DIR)/flags.txt
	$(call said,$(DIR))$(call compile_for,variant.o) -c $< -o $@

$(PROGRAM): train_sink.cu
	@mkdir -p $(@D)
	$(call said,train_sink.cu)$(COMPILE) $(PROGRAM_DEFS) $(OBJECT)
-include $(PROGRAM:.o=.d)
endif
-include $(DIR)/depends.d

$(ONCE): $(ONCE_OBJECTS)
	$(ARCHIVE)
$(ONCE_DIR)/%.o: %.cpp
	@mkdir -p $(@D)
	$(call said,$<)$(ONCE_COMPILE) $(ANY_PROCESSOR) $(OBJECT)
# what looks whether the processor is the one that the rest was compiled for
$(ONCE_DIR)/cpu/processor.o: ANY_PROCESSOR = $(if $(WIDE),-march=x86-64 -mtune=generic)
-include $(ONCE_OBJECTS:.o=.d)

once: $(ONCE) # for scripts that compile by themselves: the archive, made and named
	@echo $(ONCE)

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
MODEL_SOURCES := test/model/test_model.cpp test/math/test_analytic.cpp
TESTS   := $(patsubst %.cpp,build/test/%, \
           $(notdir $(filter-out $(MODEL_SOURCES),$(wildcard test/*/test_*.cpp))))
# a test is known by its name, wherever it lies
vpath test_%.cpp $(sort $(dir $(wildcard test/*/test_*.cpp)))
vpath fuzz_%.cpp test/fuzz
TEST_COMPILE = $(CXX) -std=c++17 -march=$(ARCH) -fopenmp $(WARN) -x c++
MODEL_COMPILE = $(TEST_COMPILE) -O0 -Wno-unused-function
# -D of every switch: those of a set such as sigmoid-k-rotary, else the default
of_set   = $(word $(2),$(subst -, ,$(1)))
set_defs = -DATTN=$(call of_set,$(1),1) -DBIAS=$(call of_set,$(1),2) -DPE=$(call of_set,$(1),3) \
           $(foreach s,$(filter-out ATTN BIAS PE,$(MODEL)),-D$(s)=$(firstword $($(s)_ALL)))

# those that parse what others wrote run once more under the address
# and undefined-behavior sanitizers
ASAN_TESTS := $(foreach t,data look checkpoint tokenizer gguf meet,build/test/asan_$(t))
ASAN_OBJECTS := $(ONCE_SOURCES:%.cpp=build/once/asan/%.o)
ASAN_ONCE  := build/once/asan/once.a
SANITIZE   := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all

# `make test` is what a change needs, some five minutes on two cores; `make test-all` is the rest:
# all golden sets, the sanitizers, scripts, the emulator's long runs and nvcc. CI runs both
NOT_QUICK    := build/test/test_train build/test/test_bf16 build/test/test_extremes
QUICK_SETS   := softmax-none-rotary sigmoid-none-rotary softmax-k-rotary
QUICK_BUILDS := $(filter-out $(NOT_QUICK),$(TESTS)) $(QUICK_SETS:%=build/test/model/%)
SLOW_BUILDS  := $(filter-out $(QUICK_BUILDS),$(TESTS) $(MODEL_TESTS) $(ASAN_TESTS))
# seconds each, and about the tree itself
QUICK_SCRIPTS := $(wildcard test/program/test_index.sh)
SLOW_SCRIPTS := $(filter-out $(QUICK_SCRIPTS),$(wildcard test/*/test_*.sh))
# their names, as test/run.sh knows them, those that take minutes first:
# no core is to wait for the last of them
names_of = $(patsubst build/test/%,%,$(filter-out %.sh,$(1))) \
           $(basename $(notdir $(filter %.sh,$(1))))
LONG     := test_cuda test_ptx test_nvcc test_cuda_train model-double/softmax-none-rotary test_make \
            test_add_variant test_nccl test_reproduce test_dist test_report test_readme \
            test_attention test_matmul test_cpu test_sass test_errors
in_order = $(filter $(1),$(LONG)) $(filter-out $(LONG),$(1))
run_all  = JOBS=$(JOBS) sh test/run.sh $(call in_order,$(call names_of,$(1)))
quick: $(QUICK_BUILDS) program
slow: $(SLOW_BUILDS) program
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
# the test itself is compiled once, variant.cu for each set: $(1) is the kind of build,
# $(2) the test
HOW_model        = $(MODEL_COMPILE)
HOW_model-fast   = $(TEST_COMPILE) $(OPTIMIZE)
HOW_model-double = $(MODEL_COMPILE) -O1 -DBACKEND=ref -DREAL=double
HOW_analytic     = $(HOW_model-double)
define kind_of_build
.SECONDARY: build/test/objects/$(1).o
build/test/objects/$(1).o: test_$(2).cpp test/check.h train_sink.cu $(HEADERS)
	@mkdir -p $$(@D)
	$$(HOW_$(1)) -c $$< -o $$@
build/test/$(1)/%: variant.cu build/test/objects/$(1).o $(ONCE)
	@mkdir -p $$(@D)
	$$(call said,$$@)$$(HOW_$(1)) $$(call set_defs,$$*) $$< -o $$@ -x none $$(filter %.o %.a,$$^)
endef
$(foreach k,model model-fast model-double,$(eval $(call kind_of_build,$(k),model)))
$(eval $(call kind_of_build,analytic,analytic))
build/test/asan_%: test_%.cpp test/check.h $(HEADERS) $(ASAN_ONCE)
	@mkdir -p $(@D)
	$(TEST_COMPILE) $(SANITIZE) $< -o $@ -x none $(ASAN_ONCE)
.SECONDARY: $(ASAN_OBJECTS)
$(ASAN_ONCE): $(ASAN_OBJECTS)
	$(ARCHIVE)
build/once/asan/%.o: %.cpp $(HEADERS)
	@mkdir -p $(@D)
	$(TEST_COMPILE) $(SANITIZE) -c $< -o $@
# these hold the operations of every variant at once: at -O3 a minute and a half to compile
WITH_MODEL := experts eval eval_sink eval_key eval_positions pieces
OPERATIONS := attention cpu metrics extremes $(WITH_MODEL)
$(OPERATIONS:%=build/test/test_%): OPTIMIZE = -O0
$(WITH_MODEL:%=build/test/test_%): train_sink.cu variant.cu
$(addprefix build/test/test_eval_,sink key positions): test/model/test_eval.cpp
# and these read text and files, or only run the program: at -O1 they compile in a third of the time
READERS := data look hostile tokenizer errors adapter export export_gguf families train gguf checkpoint score chat \
           sft directory
$(READERS:%=build/test/test_%): OPTIMIZE = -O1
build/test/%: %.cpp test/check.h test/defaults.h test/naive.h $(HEADERS) $(ONCE)
	@mkdir -p $(@D)
	$(call said,$@)$(TEST_COMPILE) $(OPTIMIZE) $< -o $@ -x none $(ONCE)

test:
	@echo "building what is tested: minutes the first time"
	@SAY=1 $(MAKE) --no-print-directory -s -j$(JOBS) quick
	@$(call run_all,$(QUICK_BUILDS) $(QUICK_SCRIPTS))

test-all: # what make test leaves out
	@SAY=1 $(MAKE) --no-print-directory -s -j$(JOBS) slow
	@$(call run_all,$(filter-out build/test/analytic/%,$(SLOW_BUILDS)) $(SLOW_SCRIPTS) analytic)

# nvcc on every two switch values together, for four architectures; an attention kernel that
# spills is a failure
compile-all:
	@sh dev/compile_all.sh pairwise

ptx-all: # every variant and head dimension as nvcc compiles it, interpreted, for sm_80 and sm_90
	@PTX_SET=all sh test/gpu/test_ptx.sh

sanitizer: # the CUDA tests under compute-sanitizer, on a GPU
	@DEVICE=sanitizer sh test/gpu/test_cuda.sh

size: # lines of every file, and the budgets of the house: fails above one
	@sh dev/size.sh

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
	@echo "make test | test-all | demo | demo-bb | bench | experiments | mutants | compile-all |" \
	      "ptx-all | sanitizer | check | size | clean"
	@echo "scripts/reproduce list                 the paper's tables by name: build, train, compare"
	@echo "tools: CXX=$(CXX) ARCH=$(ARCH) OPTIMIZE='$(OPTIMIZE)' JOBS=$(JOBS) NVCC=$(NVCC)" \
	      "GPU_ARCH=$(GPU_ARCH) DIST=$(DIST)"
	@for s in $(SWITCHES); do echo; echo $$s; \
	  sed -n "s/^ *X_$$s(\([a-z0-9_]*\) *,[^\"]*\"\(.*\)\").*/\1\t\2/p" $(TABLES) | \
	  sed 's/" *, *"/\t/' | \
	  awk -F'\t' 'NF > 2 { printf "  %-16s %-32s %s\n", $$1, $$2, $$3; next } \
	              { printf "  %-16s %s\n", $$1, $$2 }'; done

clean:
	rm -rf build train_sink
