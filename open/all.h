/*
open/all.h -- the files of open/ for core/rest.h: those that need the model, then the others.
*/
#include "delta.cpp"
#include "experts.cpp"
#include "export_card.cpp"
#include "export_command.cpp"
#include "mamba.cpp"
#include "open_weights.cpp"
#ifndef ONCE_APART
#include "arch_rows.cpp"
#include "dtypes.cpp"
#include "export.cpp"
#include "families.cpp"
#include "family_out.cpp"
#include "foreign_weights.cpp"
#include "gguf.cpp"
#include "import.cpp"
#include "import_experts.cpp"
#include "import_gguf.cpp"
#include "import_weights.cpp"
#include "open_files.cpp"
#include "rope.cpp"
#if HAS_TEXT                    // of tokenizers, which text/ has
#include "normal_forms.cpp"
#include "pattern.cpp"
#include "text_steps.cpp"
#include "tokenizer_gguf.cpp"
#endif
#endif
