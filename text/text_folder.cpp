/*
text/text_folder.cpp -- what optional.h asks of text/.
*/
#include "../optional.h"
#include "../run/probe_data.h"
#include "encode.h"
#include "ids.h"
#include "keys.h"
#include "kinds.h"
#include "shards_of_others.h"
#include "text_cache.h"
#include "tokenizer_build.h"

extern const TextFolder TEXT_FOLDER;
const TextFolder TEXT_FOLDER = {
    tokenizer_load, no_tokenizer, tokenizer_encode, decode, byte_alphabet, token_text,
    vocabulary_check, ids_check, spares_ids, one_document_note, text_check, sources_check,
    text_cache, litpkds_parse, bare_width, probe_records, text_look, text_kind_in_dir, text_key,
    generation_read,
};
