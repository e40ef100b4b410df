/*
export.h -- the command export: a checkpoint as other programs open it.
*/
#ifndef EXPORT_COMMAND_H
#define EXPORT_COMMAND_H
#include "../models/export.h"
#include "card.h"

static const char* const CODE_ABOUT =
    "transformers opens it with the PyTorch file that is beside the weights:\n\n"
    "```python\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained(PATH, trust_remote_code=True)\n"
    "out = model(ids, output_attentions=True)     # attentions: (B, heads, T, T) of each layer\n"
    "```";

static int export_checkpoint(Flags f) {
    export_check(f.out);
    Model m = model_from_checkpoint(&f, 1, cpu::STAY_NONE);
    want(!m.c.experts && !m.c.mamba_width, f.words[0] + ", with experts or Mamba layers",
         "a model without them: they are only read here");
    const Tokenizer tok = f.tokenizer.empty() ? tokenizer_ids("ids", m.c.V)
                                              : tokenizer_of(f.tokenizer);
    ExportDir o = export_begin(f.out);
    tensors_save(&m, o.tmp + "/model.safetensors", { { "", m.master } });
    o.files.push_back("model.safetensors");
    export_with_code(&o, m.c, tok);
    const std::string tokens = export_tokenizer(&o, tok, m.c.T);
    const std::string about = CODE_ABOUT + (tokens.empty() ? "" : "\n\n" + tokens);
    export_file(&o, "README.md", export_card(m.c, f.words[0], m.num_params, about));
    export_commit(&o);
    printf("wrote  %s: %s parameters, opens in transformers with trust_remote_code=True\n",
           o.path.c_str(), count_text(m.num_params).c_str());
    model_free(&m);
    return 0;
}
#endif // EXPORT_COMMAND_H
