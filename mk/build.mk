# How a program is built: a directory per model, what all models share once.

# ---- one directory per model: switching cannot leave a stale binary, and switching back
# costs nothing ----------------
# build/cpu, or build/cpu-ATTN=sigmoid-BIAS=k: what is not the default, by name,
# so that no two models share one
empty :=
others = $(foreach s,$(MODEL),$(if $(filter-out $(firstword $($(s)_ALL)),$($(s))),$(s)=$($(s))))
usual := $(if $(filter cuda,$(BACKEND)),bf16,fp32)
odd   := $(if $(filter-out $(usual),$(PRECISION)),PRECISION=$(PRECISION))
many  := $(if $(filter-out none,$(DIST)),DIST=$(DIST))
for   := $(if $(RELEASE),$(filter-out native,$(ARCH)))
DIR   := build/$(subst $(empty) $(empty),-,$(strip $(BACKEND) $(others) $(odd) $(many) $(for)))
DEFS   = $(foreach s,$(SWITCHES),-D$(s)=$($(s))) $(addprefix -D,$(many))
COMMIT := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
ifeq ($(BACKEND),cuda)
# kernels for Hopper beside those for all cards
comma     := ,
HOPPER     = $(if $(wildcard cuda/hopper),-DHOPPER) $(patsubst sm_90a,-gencode arch=compute_90a$(comma)code=sm_90a,$(GPU_CODE))
NVCC_ARCH  = $(if $(filter sm_90a,$(GPU_CODE)),$(HOPPER),-arch=$(GPU_CODE))
HOST_FLAGS = $(filter-out -O3,$(OPTIMIZE)) -march=$(ARCH) -fopenmp -Wall
COMPILE    = $(NVCC) -std=c++17 -O3 $(NVCC_ARCH) -ccbin $(CXX) -Xcompiler '$(HOST_FLAGS)'
JOIN       = $(COMPILE)
LINK       = -lcublasLt $(if $(filter nccl,$(DIST)),-lnccl)
else
HOST    = $(if $(filter mpi,$(DIST)),OMPI_CXX='$(CXX)' MPICH_CXX='$(CXX)' $(MPICXX),$(CXX))
JOIN    = $(HOST) $(OPTIMIZE) -fopenmp
COMPILE = $(HOST) -std=c++17 $(OPTIMIZE) -march=$(ARCH) -fopenmp $(WARN) -x c++
endif
# the folders of the program beside the root, which nothing else lists: make -s folders. Those of
# the wildcard may be absent
FOLDERS := $(strip base core run $(wildcard text cpu cuda cuda/hopper dist open after))
HEADERS := $(wildcard *.h *.cuh $(FOLDERS:%=%/*.h) $(FOLDERS:%=%/*.cuh))
# a commit says nothing of a file that git does not know
UNKNOWN := $(if $(filter %-dirty unknown,$(COMMIT)),,$(shell \
             git ls-files -o --exclude-standard $(FOLDERS) ':(glob)*.h' ':(glob)*.cuh' ':(glob)*.cu' | \
             grep -E '\.(h|cuh|cu|cpp)$$'))
COMMIT  := $(COMMIT)$(if $(UNKNOWN),-dirty)

# make goes by dates, and what was edited may be put back with its old one (mv, cp -p, rsync -t, tar): the binary
# would hold edited code and name a clean commit. So a file that is not as the last make saw it gets a new date,
# unless its date is newer than that
SEEN    := build/sources.txt
SOURCES := $(HEADERS) $(wildcard *.cu $(FOLDERS:%=%/*.cpp) $(FOLDERS:%=%/*.cu) test/*.h test/*/*.cpp test/*/*.cu)
# what a make that was killed long ago had begun to write
RUBBISH  = find build -mmin +1440 -name '*.[0-9]*' \( -name '*.o.*' -o -name '*.a.*' -o -name '*.txt.*' \
           -o -name '*.gz.*' -o -name 'train_sink.*' \) -exec rm -f {} +
see_sources = mkdir -p build 2> /dev/null && [ -w build ] && cksum $(SOURCES) > $(SEEN).$$$$ || exit; \
  cmp -s $(SEEN).$$$$ $(SEEN) && mv $(SEEN).$$$$ $(SEEN) && exit; \
  [ ! -f $(SEEN) ] || sort $(SEEN) $(SEEN).$$$$ | uniq -u | cut -d ' ' -f 3 | sort -u | while read -r file; do \
      [ "$$file" -nt $(SEEN) ] || touch -c "$$file"; done; \
  mv $(SEEN).$$$$ $(SEEN); $(RUBBISH)
ASK_ONLY := help clean size folders check switches values nvcc_arch asan_flags
$(if $(filter-out $(ASK_ONLY),$(or $(MAKECMDGOALS),train_sink)),$(shell $(see_sources)))

# the compiler, and what -march=native means on this machine: another one may share the disk; and
# the folders, without one of which every struct is another
MEANING  := $(shell $(CXX) -march=$(ARCH) -dM -E -x c++ /dev/null 2>/dev/null | cksum)
COMPILER := $(NAME_OF_CXX) $(MEANING) $(FOLDERS)

# what needs the model is compiled for each backend, as train_sink.cu is
# one line of the compiler reads the same lists, core/rest.h and all.h of a folder
of_model       = $(addprefix $(dir $(1)),$(shell sed -n '/ONCE_APART$$/q; s/^.include "\(.*\.cpp\)"/\1/p' $(1)))
PROGRAM_PARTS := $(patsubst core/../%,%,$(foreach list,core/rest.h $(wildcard $(FOLDERS:%=%/all.h)),$(call of_model,$(list))))
# what no switch touches is compiled once, for all models, by a compiler and its flags:
# build/once/NUMBER/text/bpe.o. Of the archive a program takes what it calls
ONCE_COMPILE := $(CXX) -std=c++17 $(OPTIMIZE) -march=$(ARCH) -fopenmp $(WARN)
number_of     = $(firstword $(shell echo "$(1)" "$(COMPILER)" | cksum))
ONCE_DIR     := build/once/$(call number_of,$(ONCE_COMPILE))
# what of open/ is about tokenizers needs text/
OF_TEXT      := $(if $(wildcard text),,$(addprefix open/,$(shell \
                  sed -n '/HAS_TEXT/,/endif/s/^.include "\(.*\.cpp\)"/\1/p' $(wildcard open/all.h) /dev/null)))
ONCE_SOURCES := $(filter-out $(PROGRAM_PARTS) $(OF_TEXT),$(wildcard $(FOLDERS:%=%/*.cpp)))
# or, with UNITS=few, each folder is one unit
of_folder       = $(filter-out cpu/processor.cpp,$(filter $(1)/%,$(ONCE_SOURCES)))
few_in        = $(patsubst %,$(1)/%all.o,$(sort $(dir $(ONCE_SOURCES)))) $(patsubst %.cpp,$(1)/%.o,$(wildcard cpu/processor.cpp))
ONCE_OBJECTS := $(if $(FEW),$(call few_in,$(ONCE_DIR)),$(ONCE_SOURCES:%.cpp=$(ONCE_DIR)/%.o))
ONCE         := $(ONCE_DIR)/once.a
ARCHIVE       = ar rcs $@.$$$$ $(filter %.o,$^) && mv $@.$$$$ $@
# a line for each part, and in a first build how far it is; make -s says nothing unless SAY=1, as make test and make demo
silent = $(if $(SAY),,$(findstring s,$(firstword -$(MAKEFLAGS))))
far    = $(if $(filter $@,$(MISSING)),$(eval BEGUN_PARTS += x) ($(words $(BEGUN_PARTS)) of $(words $(MISSING))))
said   = $(if $(silent),,$(info compiling $(1)$(far)))
# two makes at once may want the same file: each writes its own, and moves it to its place whole. It is as old as the
# beginning of its compilation: what was edited meanwhile is newer
BEGUN         = begun=$$(date +%FT%T.%N);
OBJECT        = -MMD -MP -MF $@.$$$$.d -MT '$(or $(NAMED),$@)' -c $< -o $@.$$$$ && touch -d $$begun $@.$$$$ && \
                mv $@.$$$$.d $(@:.o=.d) && mv $@.$$$$ $@

# and the program once for a backend and its precision: the model's own switches are in variant.o
PROGRAM_DEFS  = $(filter -DBACKEND=% -DPRECISION=% -DDIST=%,$(DEFS))
PROGRAM_DIR  := build/program/$(call number_of,$(COMPILE) $(PROGRAM_DEFS))
ifneq ($(filter cuda,$(BACKEND))$(FEW),)
PROGRAM      := $(PROGRAM_DIR)/train_sink.o
else
PROGRAM      := $(PROGRAM_DIR)/train_sink.o $(PROGRAM_PARTS:%.cpp=$(PROGRAM_DIR)/%.o)
endif

PARTS   := $(DIR)/variant.o $(PROGRAM) $(ONCE_OBJECTS)
MISSING := $(filter-out $(wildcard $(PARTS)),$(PARTS))

# flags.txt is rewritten only when it differs, so a change of flags, compiler, processor, commit or of the set of files
# rebuilds and nothing else does
FLAGS = $(COMPILE) $(DEFS) $(COMMIT) $(COMPILER) $(PROGRAM_PARTS)
$(DIR)/flags.txt: FORCE
	@mkdir -p $(DIR)
	@echo "$(FLAGS)" | cmp -s - $@ || { echo "$(FLAGS)" > $@.$$$$ && mv $@.$$$$ $@; }

$(DIR)/train_sink: $(DIR)/variant.o $(PROGRAM) $(ONCE)
	$(JOIN) $(filter %.o %.a,$^) -o $@.$$$$ $(LINK) && mv $@.$$$$ $@

# the same parts, with all the libraries that they need
VERSION := $(shell sed -n 's/^.define VERSION "\(.*\)"/\1/p' base/version.h)
ARCHIVE_NAME := train_sink-$(VERSION)-$(DIR:build/%=%)
$(DIR)/static/train_sink: $(DIR)/variant.o $(PROGRAM) $(ONCE)
	@mkdir -p $(@D)
	$(JOIN) -static -s $(filter %.o %.a,$^) -o $@.$$$$ && mv $@.$$$$ $@

build/$(ARCHIVE_NAME).tar.gz: $(DIR)/static/train_sink LICENSE README.md
	tar -czf $@.$$$$ --transform 's,.*/,,' --transform 's,^,$(ARCHIVE_NAME)/,' $^ && mv $@.$$$$ $@

# in a list of headers, make would take build/cpu-ATTN=sigmoid/variant.o for a variable
$(DIR)/variant.o: NAMED = $$(DIR)/variant.o
$(DIR)/variant.o: core/variant.cu $(DIR)/flags.txt
	$(call said,$(DIR))$(BEGUN) $(COMPILE) $(DEFS) -DGIT_COMMIT='"$(COMMIT)"' $(OBJECT)

$(PROGRAM_DIR)/%.o: %.cu
	@mkdir -p $(@D)
	$(call said,$<)$(BEGUN) $(COMPILE) $(PROGRAM_DEFS) $(PART) $(OBJECT)
# for a GPU in one unit: each of its parts would compile the same kernels again
ONE_UNIT := -DWITHOUT_VARIANT -DONCE_APART
$(PROGRAM_DIR)/train_sink.o: PART = $(if $(filter cuda,$(BACKEND))$(FEW),$(ONE_UNIT),-DAPART)
# around the model's own loops -O2 is as fast, and compiles in two thirds of the time
$(PROGRAM_DIR)/%.o: %.cpp
	@mkdir -p $(@D)
	$(call said,$<)$(BEGUN) $(subst -O3,-O2,$(COMPILE)) $(PROGRAM_DEFS) $(OBJECT)
-include $(PROGRAM:.o=.d)
-include $(DIR)/variant.d
# each operation of a step on its own: the program with another main (dev/bench/bench_ops.cu)
OPS_OBJECT := $(PROGRAM_DIR)/dev/bench/bench_ops.o
$(OPS_OBJECT): PART = $(ONE_UNIT)
-include $(OPS_OBJECT:.o=.d)
$(DIR)/bench_ops: $(DIR)/variant.o $(OPS_OBJECT) $(PROGRAM) $(ONCE)
	$(JOIN) $(filter-out %/train_sink.o %/run/bench.o,$(filter %.o %.a,$^)) -o $@.$$$$ $(LINK) && mv $@.$$$$ $@
bench-ops: $(DIR)/bench_ops

# rewritten only when it differs: an archive without a file that is gone
$(ONCE_DIR)/files.txt: FORCE
	@mkdir -p $(@D)
	@echo "$(ONCE_OBJECTS)" | cmp -s - $@ || { echo "$(ONCE_OBJECTS)" > $@.$$$$ && mv $@.$$$$ $@; }
$(ONCE): $(ONCE_OBJECTS) $(ONCE_DIR)/files.txt
	$(ARCHIVE)
$(ONCE_DIR)/%.o: %.cpp
	@mkdir -p $(@D)
	$(call said,$<)$(BEGUN) $(ONCE_COMPILE) $(ANY_PROCESSOR) $(OBJECT)
# a folder as one unit: where, which, by what
define folder_unit
$(1)/$(2)/all.o: $(call of_folder,$(2))
	@mkdir -p $$(@D)
	$$(call said,$(2))$$(BEGUN) $$($(3)) $$(patsubst %,-include %,$$(filter-out $$<,$(call of_folder,$(2)))) $$(OBJECT)
endef
$(if $(FEW),$(foreach r,$(FOLDERS),$(eval $(call folder_unit,$(ONCE_DIR),$(r),ONCE_COMPILE))))
# what looks whether the processor is the one that the rest was compiled for
$(ONCE_DIR)/cpu/processor.o: ANY_PROCESSOR = $(if $(WIDE),-march=x86-64 -mtune=generic)
-include $(ONCE_OBJECTS:.o=.d)

once: $(ONCE) # for scripts that compile by themselves: the archive, made and named
	@echo $(ONCE)
objects: $(ONCE) $(PROGRAM) # for tests that build in a copy of the tree: where the objects are
	@echo $(ONCE_DIR) $(PROGRAM_DIR)
