# The switches, their values and the tools; stops with one line where one of them is wrong.

# ---- the switches. Their values are the rows of the tables; the first row is the default ---------
TABLES := attention_variants.cuh block_variants.h
lp := (
SWITCHES := $(shell sed -n 's/^.define \([A-Z]*\)_VARIANTS$(lp)X_.*/\1/p; \
              s/^inline constexpr [A-Za-z]*Row \([A-Z]*\)_ROWS\[\] = {$$/\1/p' $(TABLES))
MODEL    := $(filter-out PRECISION BACKEND,$(SWITCHES))
# a row is X_PE(name, ..) or, between "PE_ROWS[] = {" and "};", { "name", .. }: the name, the rest
row_of = s/^ *X_$(1)$(lp)\([a-z0-9_]*\) *,\(.*\)).*/\1\2/p; \
         /^inline.* $(1)_ROWS\[\] = {$$/,/^};/s/^ *{ "\([a-z0-9_]*\)",\(.*\) },$$/\1\2/p
rows = $(shell sed -n '$(row_of)' $(TABLES) | sed 's/[^a-z0-9_].*//')
$(foreach s,$(SWITCHES),$(eval $(s)_ALL := $(call rows,$(s))))
$(foreach s,$(MODEL),$(eval $(s) ?= $(firstword $($(s)_ALL))))
# cuda where it can be built and run, else cpu, and the first line of output says why
NVCC    ?= $(shell command -v nvcc 2>/dev/null)
NVCC    := $(NVCC)
# any card of this container, or under WSL, where the driver's library says
# that the card is NVIDIA's
WSL     := $(and $(wildcard /dev/dxg),$(wildcard /usr/lib/wsl/lib/libcuda.so.1))
GPU     := $(firstword $(wildcard /dev/nvidia[0-9]*) $(WSL))
# a release is for the CPU, and for more processors than this one
RELEASE := $(filter release,$(MAKECMDGOALS))
ifneq ($(RELEASE),)
BACKEND := cpu
endif
BACKEND ?= $(if $(and $(NVCC),$(GPU),$(wildcard cuda)),cuda,$(if $(wildcard cpu),cpu,ref))
HERE    := $(if $(GPU),nvcc and a GPU are here,no GPU here: no /dev/nvidia[0-9]*)
WHY     := $(if $(wildcard cuda),$(if $(NVCC),$(HERE),no nvcc in PATH),no folder cuda/)
PRECISION ?= $(if $(filter cuda,$(BACKEND)),bf16,fp32)

# ---- the tools: change them on the command line or in the environment ----------------------------
CXX      ?= g++
# what it compiles for: another machine's compiler knows no "native"
TARGET   := $(firstword $(subst -, ,$(shell $(CXX) -dumpmachine 2>/dev/null)))
MACHINE  := $(shell uname -m)
aarch64  := armv8-a
x86_64   := x86-64-v3
HERE_TOO := $(if $(RELEASE),,$(filter $(MACHINE),$(TARGET)))
ARCH     ?= $(if $(HERE_TOO),native,$(or $($(TARGET)),native))
GPU_ARCH ?= $(if $(GPU),native,sm_80)
# of a card of 9.0 nvcc's "native" leaves out Hopper's own instructions: with one among the cards each
# gets code of its own, but for those too old; where nvidia-smi names none, the code is for all
CARDS    := $(if $(filter cuda-native,$(BACKEND)-$(GPU_ARCH)),$(sort $(shell \
              nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
              sed -n 's/^ *\([0-9]*\)[.]\([0-9]\) *$$/\1\2/p')) none)
OTHERS   := $(filter-out none 90 3% 5% 6% 7%,$(CARDS))
code_of   = -gencode arch=compute_$(1),code=sm_$(1)
OF_CARD  := $(if $(filter 90,$(CARDS)),sm_90a $(foreach n,$(OTHERS),$(call code_of,$(n))),$(GPU_ARCH))
OF_ALL   := sm_90a -gencode arch=compute_80,code=[sm_80,compute_80]
GPU_CODE := $(if $(filter none,$(firstword $(CARDS))),$(OF_ALL),$(OF_CARD))
# -fno-math-errno -fno-trapping-math change no value, only whether errno and exception flags are
# kept; never -ffast-math. Vectors as wide as the processor has them: of AVX-512 GCC would take half
WIDE     := $(if $(filter x86_64,$(TARGET)),-mprefer-vector-width=512)
OPTIMIZE ?= -O3 -fno-math-errno -fno-trapping-math $(WIDE)
# how many units the program is compiled in: many, of which a change compiles one or two again, or
# few, which takes a little more than half the time at first
UNITS    ?= many
UNITS_ALL := many few
FEW      := $(filter few,$(UNITS))
# in one unit the compiler knows whether a pointer to what open/ or after/ does is NULL
WARN_FEW := -Wall -Wextra -Wno-address
NAME_OF_CXX := $(shell $(CXX) --version | head -n 1)
# clang does not know all of g++'s warnings, and says of each loop that it does not make a vector of
CLANG    := $(if $(findstring clang,$(NAME_OF_CXX)),-Wno-unknown-warning-option -Wno-pass-failed)
WARN     := $(strip $(if $(FEW),$(WARN_FEW),-Wall -Wextra) $(CLANG))
JOBS     ?= $(shell nproc)
# many processes: none, mpi (on the CPU) or nccl (on GPUs); dev/many.md
DIST     ?= none
DIST_ALL := none mpi nccl
MPICXX   ?= mpicxx
KNOWN    := $(SWITCHES) CXX ARCH OPTIMIZE JOBS NVCC GPU_ARCH DIST MPICXX UNITS

# ---- a misspelled value, or a misspelled switch (ATN=sigmoid), must not quietly train softmax --------
ifeq ($(filter help clean size,$(MAKECMDGOALS)),)
# batch systems set ARCH, too, to what no compiler knows
no_arch   = $(shell $(CXX) -march=$(ARCH) -E -x c++ /dev/null > /dev/null 2>&1 || echo none)
arch_from = $(if $(filter environment,$(origin ARCH)),; it comes from the environment: unset ARCH)
ifneq ($(filter-out file,$(origin ARCH)),)
$(if $(no_arch),$(error ARCH=$(ARCH) is unknown to $(CXX)$(arch_from)))
endif
not_one = $(filter-out 1,$(words $($(1))))$(filter-out $($(1)_ALL),$($(1)))
one_of  = $(if $(not_one),$(error $(1)=$($(1)) is unknown; choose one of: $($(1)_ALL)))
$(foreach s,$(SWITCHES) DIST UNITS,$(call one_of,$(s)))
# what a folder has that is not here: a switch, its values, the folder
of_absent = $(if $(wildcard $(3)),,$(if $(filter $(2),$($(1))), \
  $(error $(1)=$($(1)) is in the folder $(3)/, which is not here)))
$(call of_absent,BACKEND,cpu,cpu)
$(call of_absent,BACKEND,cuda,cuda)
$(call of_absent,DIST,mpi nccl,dist)
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
$(if $(compiler),,$(error $(firstword $(CXX)) is not in PATH ---> HINT: apt-get install $(firstword $(CXX)), or \
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
# an extra key without a value where no row is divided by its sum: extra_has_no_effect
no_sum   := $(shell sed -nE 's/^ *X_ATTN.$(ATTN) *, *Z_ONE *,.*/yes/p' attention_variants.cuh)
no_value := $(shell sed -nE 's/^ *X_BIAS.$(BIAS) *, *(KEY|LOGIT)_EXTRA *, *[01] *, *0 *,.*/yes/p' \
              block_variants.h)
unless   := $(if $(filter k,$(BIAS)), unless a run is given --v-star)
idle     := $(if $(and $(no_sum),$(no_value)),note: the extra key of BIAS=$(BIAS) changes no output \
  with ATTN=$(ATTN)$(unless): rows are not divided by their sum and v* is 0; BIAS=kv would)
endif
