/*
text/text_folder.cpp -- what optional.h asks of text/.
*/
#include "../optional.h"
#include "../run/probe_data.h"
#include "keys.h"
#include "kinds.h"
#include "shards_of_others.h"
#include "text_cache.h"
#include "tokenizer_build.h"

extern const TextFolder TEXT_FOLDER;
const TextFolder TEXT_FOLDER = {
    tokenizer_of_files, convert_command, encode_bpe, decode_bpe, token_of_bpe, ids_of_bpe,
    one_document_note, text_check, check_skip_bad, text_cache, litpkds_parse, bare_width,
    probe_records, bos_of_template, text_look, text_kind_in_dir, text_key, generation_read,
};
