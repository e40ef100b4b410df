/*
text/keys.cpp -- the table DIRECTORY_KEYS of core/directory.h.
*/
#include "keys.h"
#include <unordered_map>

static const char* const CONFIG = "config.json";
static const char* const TOKENIZER = "tokenizer.json";
static const char* const TOKENIZER_CONFIG = "tokenizer_config.json";
static const char* const SPECIALS = "special_tokens_map.json";
static const char* const GENERATION = "generation_config.json";

const KeyRow DIRECTORY_KEYS[] = {
    // ---- config.json, beside the keys that the family of the model reads
    { CONFIG, "model_type", KEY_READ, "", "names the family" },
    { CONFIG, "architectures auto_map", KEY_READ, "",
      "must name the family's own class (XForCausalLM, XModel, XLMHeadModel): another class "
      "computes something else" },
    { CONFIG, "torch_dtype dtype", KEY_ONLY,
      "\"float32\" \"float16\" \"bfloat16\" \"float64\" \"auto\"",
      "the type of each tensor is in its own file; of 8 bits and less it needs scales" },
    { CONFIG, "pruned_heads", KEY_ONLY, "{} []", "heads that are cut out" },
    { CONFIG, "is_encoder_decoder add_cross_attention tie_encoder_decoder", KEY_ONLY, "false",
      "only a decoder is computed" },
    { CONFIG, "chunk_size_feed_forward", KEY_ONLY, "0", "an FFN computed in pieces" },
    { CONFIG,
      "bos_token_id pad_token_id unk_token_id sep_token_id cls_token_id decoder_start_token_id",
      KEY_HARMLESS, "", "the tokenizer and generation_config.json say it" },
    { CONFIG, "eos_token_id", KEY_READ, "",
      "generate ends at each, unless generation_config.json has the key" },
    { CONFIG,
      "use_cache transformers_version _name_or_path _model_name_or_path name_or_path "
      "return_dict output_hidden_states output_attentions torchscript is_decoder is_llama_config "
      "use_bfloat16 finetuning_task task_specific_params gradient_checkpointing "
      "use_flash_attention "
      "attn_implementation _attn_implementation _attn_implementation_autoset cache_implementation "
      "transformers.js_config custom_pipelines unsloth_fixed unsloth_version _num_labels "
      "output_past "
      "predict_special_tokens max_sequence_length initial_context_length offset_alibi "
      "cross_attention_hidden_size use_return_dict low_cpu_mem_usage",
      KEY_HARMLESS, "", "how it is run, saved or called" },
    { CONFIG,
      "initializer_range initializer_factor init_std init_device attention_dropout "
      "hidden_dropout classifier_dropout activation_dropout dropout layerdrop embed_dropout "
      "residual_dropout embedding_dropout "
      "resid_dropout resid_pdrop embd_pdrop attn_pdrop attention_probs_dropout_prob "
      "hidden_dropout_prob output_router_logits router_aux_loss_coef router_jitter_noise "
      "tf_legacy_loss neftune_noise_alpha",
      KEY_HARMLESS, "", "used in training only" },
    { CONFIG,
      "pretraining_tp slow_but_exact masked_softmax_fusion bias_dropout_fusion skip_bias_add "
      "skip_bias_add_qkv attention_softmax_in_fp32 scale_attention_softmax_in_fp32",
      KEY_HARMLESS, "", "the same sums in another order" },
    { CONFIG, "tokenizer_class prefix model_max_length", KEY_HARMLESS, "",
      "for the tokenizer and pipelines" },
    { CONFIG,
      "id2label label2id num_labels problem_type summary_activation summary_first_dropout "
      "summary_proj_to_labels summary_type summary_use_proj",
      KEY_HARMLESS, "", "for heads that give labels" },
    { CONFIG,
      "max_length min_length do_sample early_stopping num_beams temperature top_k top_p "
      "repetition_penalty length_penalty no_repeat_ngram_size bad_words_ids num_return_sequences "
      "num_beam_groups diversity_penalty encoder_no_repeat_ngram_size typical_p "
      "exponential_decay_length_penalty remove_invalid_values output_scores "
      "return_dict_in_generate max_new_tokens min_new_tokens max_time renormalize_logits min_p "
      "top_h epsilon_cutoff eta_cutoff penalty_alpha guidance_scale encoder_repetition_penalty "
      "output_logits token_healing low_memory num_assistant_tokens "
      "num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens "
      "dola_layers",
      KEY_HARMLESS, "", "how text is sampled: the flags of generate say it" },
    { CONFIG,
      "forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens "
      "sequence_bias stop_strings force_words_ids constraints watermarking_config",
      KEY_ONLY, "[] {}", "forbids, forces or ends at a text" },
    // ---- tokenizer.json: its components are read one by one, and unknown ones are refused
    { TOKENIZER, "model normalizer pre_tokenizer post_processor decoder added_tokens", KEY_READ, "",
      "the tokenizer" },
    { TOKENIZER, "version", KEY_HARMLESS, "", "the version of the format" },
    { TOKENIZER, "truncation padding", KEY_HARMLESS, "",
      "a text is read whole, as transformers does unless a call asks for less" },
    { "tokenizer.json: model",
      "type vocab merges dropout unk_token continuing_subword_prefix "
      "end_of_word_suffix fuse_unk byte_fallback ignore_merges",
      KEY_READ, "", "BPE, and only without dropout, prefix and suffix" },
    { "tokenizer.json: components",
      "type normalizers pretokenizers decoders processors pattern "
      "content prepend replacement prepend_scheme split behavior invert individual_digits "
      "add_prefix_space use_regex start stop strip_left strip_right single special_tokens",
      KEY_READ, "", "see text/vocabulary.h" },
    { "tokenizer.json: components", "trim_offsets pair str_rep", KEY_HARMLESS, "",
      "for offsets, pairs of texts and older files" },
    { "tokenizer.json: added_tokens", "content special normalized lstrip rstrip single_word",
      KEY_READ, "", "single_word must be false" },
    { "tokenizer.json: added_tokens", "id", KEY_HARMLESS, "",
      "an added token has the id of the vocabulary, else the next one" },
    // ---- tokenizer_config.json
    { TOKENIZER_CONFIG, "bos_token eos_token", KEY_READ, "",
      "BOS and EOS; must be in the vocabulary" },
    { TOKENIZER_CONFIG,
      "unk_token pad_token sep_token cls_token mask_token eod_token "
      "additional_special_tokens extra_special_tokens model_specific_special_tokens image_token "
      "audio_token video_token boi_token eoi_token vision_bos_token vision_eos_token",
      KEY_READ, "",
      "become special tokens; must be in the vocabulary, since a new id has no weights" },
    { TOKENIZER_CONFIG, "added_tokens_decoder", KEY_READ, "",
      "added tokens; where tokenizer.json has other flags, these count" },
    { TOKENIZER_CONFIG, "add_bos_token add_eos_token", KEY_READ, "",
      "what goes around a text with vocab.json; tokenizer.json says it itself, and a difference is "
      "reported" },
    { TOKENIZER_CONFIG, "add_prefix_space", KEY_READ, "",
      "the space before a text; must agree with tokenizer.json, decides for vocab.json" },
    { TOKENIZER_CONFIG, "tokenizer_class", KEY_READ, "",
      "with vocab.json it must be one that splits as GPT-2 does; tokenizer.json says it itself" },
    { TOKENIZER_CONFIG, "chat_template", KEY_HARMLESS, "",
      "scripts/chat.py and scripts/sft.py run it" },
    { TOKENIZER_CONFIG,
      "split_special_tokens do_lower_case from_slow strip_accents remove_space "
      "do_normalize add_dummy_prefix_space lowercase",
      KEY_ONLY, "false", "another way to read a text" },
    { TOKENIZER_CONFIG, "auto_map fix_mistral_regex", KEY_ONLY, "{} false",
      "the tokenizer is code that this program does not run" },
    { TOKENIZER_CONFIG,
      "model_max_length max_length truncation truncation_side truncation_strategy "
      "stride padding padding_side pad_to_multiple_of pad_token_type_id model_input_names "
      "return_token_type_ids",
      KEY_HARMLESS, "", "how a batch is truncated and padded; a text is read whole" },
    { TOKENIZER_CONFIG,
      "clean_up_tokenization_spaces spaces_between_special_tokens errors "
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
      KEY_HARMLESS, "", "how transformers prints ids; no id changes" },
    { TOKENIZER_CONFIG,
      "legacy use_default_system_prompt sp_model_kwargs trim_offsets use_fast backend "
      "is_local local_files_only name_or_path special_tokens_map_file tokenizer_file vocab_file "
      "merges_file tokenizer_type processor_class feature_extractor_type image_processor_type "
      "transformers_version clean_text device_map trust_remote_code "
      "response_schema _commit_hash verbose init_inputs use_auth_token _from_auto model_type",
      KEY_HARMLESS, "", "how a file that is not used here was or would be read" },
    { TOKENIZER_CONFIG,
      "prefix_token middle_token suffix_token fill_token eot_token suffix_first", KEY_HARMLESS, "",
      "for filling in the middle, which a call asks for" },
    // ---- special_tokens_map.json: what tokenizer_config.json does not say
    { SPECIALS,
      "bos_token eos_token unk_token pad_token sep_token cls_token mask_token "
      "additional_special_tokens extra_special_tokens",
      KEY_READ, "", "as in tokenizer_config.json, which comes first" },
    { "added_tokens.json", "*", KEY_READ, "", "each token must have this id in tokenizer.json" },
    // ---- generation_config.json: generate
    { GENERATION, "eos_token_id", KEY_READ, "", "an id or a list: generate ends at each" },
    { GENERATION, "bos_token_id", KEY_READ, "", "generate without a prompt begins with it" },
    { GENERATION,
      "forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens "
      "bad_words_ids sequence_bias stop_strings force_words_ids constraints watermarking_config "
      "decoder_start_token_id",
      KEY_ONLY, "[] {}", "forbids, forces or ends at a text" },
    { GENERATION,
      "repetition_penalty encoder_repetition_penalty no_repeat_ngram_size "
      "encoder_no_repeat_ngram_size penalty_alpha guidance_scale num_beams num_beam_groups "
      "diversity_penalty length_penalty min_length min_new_tokens typical_p epsilon_cutoff "
      "eta_cutoff "
      "min_p top_h exponential_decay_length_penalty renormalize_logits remove_invalid_values",
      KEY_SAID, "", "changes how the next token is chosen: generate says that it does without" },
    { GENERATION, "temperature top_k top_p do_sample max_length max_new_tokens", KEY_HARMLESS, "",
      "the flags of generate say it" },
    { GENERATION,
      "pad_token_id transformers_version _from_model_config use_cache cache_implementation "
      "cache_config return_dict_in_generate output_attentions output_hidden_states output_scores "
      "output_logits num_return_sequences early_stopping max_time low_memory trust_remote_code "
      "custom_generate is_assistant num_assistant_tokens num_assistant_tokens_schedule "
      "assistant_confidence_threshold prompt_lookup_num_tokens max_matching_ngram_size "
      "prefill_chunk_size disable_compile compile_config token_healing dola_layers "
      "chat_format max_window_size "
      "user_token_id assistant_token_id target_lookbehind assistant_lookbehind "
      "assistant_early_exit",
      KEY_HARMLESS, "", "how it is run, or what is returned" },
    // ---- files
    { "chat_template.jinja", "", KEY_HARMLESS, "", "scripts/chat.py and scripts/sft.py run it" },
    // ---- an adapter
    { "adapter_config.json", "", KEY_ONLY, "", "it changes the weights: peft merges it into them" },
    { "adapter_model.safetensors", "", KEY_ONLY, "", "the same" },
    { "adapter_model.bin", "", KEY_ONLY, "", "the same" },
    { NULL, NULL, KEY_READ, NULL, NULL },
};

// Maps "file key" to its row.
static std::unordered_map<std::string, const KeyRow*> rows_by_key() {
    std::unordered_map<std::string, const KeyRow*> rows;
    for (const KeyRow* row = DIRECTORY_KEYS; row->file; row++) {
        std::vector<std::string> keys = split(row->keys, ' ');
        if (keys.empty()) { keys = { "" }; }             // the file itself
        for (auto& key : keys) {
            rows[std::string(row->file) + " " + key] = row;
        }
    }
    return rows;
}

// Returns the row of a key of a file; NULL if there is none.
static const KeyRow* key_row(const std::string& file, const std::string& key) {
    static const auto* rows = new std::unordered_map<std::string, const KeyRow*>(rows_by_key());
    auto row = rows->find(file + " " + key);
    if (row == rows->end()) { row = rows->find(file + " *"); }
    return row == rows->end() ? NULL : row->second;
}

bool text_key(const std::string& file, const std::string& key, const std::string& path,
              const Json& value) {
    const KeyRow* row = key_row(file, key);
    if (!row || row->rule != KEY_ONLY || value.type == Json::NUL) { return row; }
    const std::string got = json_short(value);
    for (auto& allowed : split(row->allowed, ' ')) {
        double number = 0;
        const bool same = value.is_number() && parse_double(allowed, &number) &&
                          number == value.number;
        if (same || allowed == got) { return true; }
    }
    die(path + ": " + key + " is " + got + ": " + row->why,
        "this program does not do what the key asks for; docs/open-models.md lists all keys");
}

void directory_check(const std::string& file, const std::string& path, const Json& object) {
    require(object.type == Json::OBJECT, path, "an object");
    for (auto& [key, value] : object.fields) {
        if (value.type == Json::NUL || text_key(file, key, path, value)) { continue; }
        die(path + ": the key '" + key + "' (" + json_short(value) +
            ") is not known, and may change ids or prompts",
            "docs/open-models.md lists the keys that are");
    }
}

// Tells whether a key that chooses tokens chooses nothing: by 1 for penalties and beams, else 0.
static bool is_neutral(const std::string& key, const Json& value) {
    const bool one =
        is_one_of(" repetition_penalty encoder_repetition_penalty guidance_scale num_beams "
                  "num_beam_groups length_penalty typical_p ", key);
    const bool number = value.is_number() || value.type == Json::BOOL;
    return value.type == Json::NUL || (number && value.number == (one ? 1 : 0));
}

std::string directory_said(const std::string& file, const Json& object) {
    std::string said;
    for (auto& [key, value] : object.fields) {
        const KeyRow* row = key_row(file, key);
        if (!row || row->rule != KEY_SAID || is_neutral(key, value)) { continue; }
        list_add(&said, key + " " + json_short(value));
    }
    return said;
}

std::vector<int> directory_ends(const std::string& dir, const std::string& name) {
    const Json ids = json_if_there(dir + "/" + name)["eos_token_id"];
    std::vector<int> ends;
    if (ids.type == Json::NUL) { return ends; }
    std::vector<Json> list = { ids };
    if (ids.type == Json::ARRAY) { list = ids.items; }
    for (auto& id : list) {
        const bool whole = id.is_number() && id.number == floor(id.number);
        require(whole && id.number >= 0 && id.number < 1 << 30,
                dir + "/" + name + ": eos_token_id", "an id or a list of ids");
        ends.push_back(id.number);
    }
    return ends;
}

std::vector<int> generation_read(const std::string& dir, int V, int* first) {
    const std::string path = dir + "/" + GENERATION;
    if (!file_exists(path)) { return directory_ends(dir, CONFIG); }
    const Json config = json_file(path);
    const std::vector<int> ends = directory_ends(dir, GENERATION);
    for (int id : ends) {
        require(id < V, path + strf(": eos_token_id %d", id), strf("below %d", V));
    }
    directory_check(GENERATION, path, config);
    const std::string drawing = directory_said(GENERATION, config);
    if (!drawing.empty()) { note(path + ": " + drawing + ": not applied here"); }
    const double bos = json_number(config, "bos_token_id", *first);
    require(bos == floor(bos) && bos >= 0 && bos < V, path + strf(": bos_token_id %g", bos),
            strf("an id below %d", V));
    *first = (int)bos;
    // a class has a default, which may be none of the model's ids
    return ends.empty() ? directory_ends(dir, CONFIG) : ends;
}
