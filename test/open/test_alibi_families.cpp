/*
test_alibi_families.cpp -- families in the build that they need, PE=alibi: tiny models of MPT and of
BLOOM with six heads as transformers computes them
(dev/peers/check_families.py --save test/open/alibi mpt mpt_6 bloom_6), and what is refused of an MPT.
*/
#define PE alibi
#include "../family.h"

static const char* const MPT = "test/open/alibi/mpt";

int main() {
    for (const char* name : { "mpt", "mpt_6", "bloom_6" }) {
        family_check(std::string("test/open/alibi/") + name);
    }
    // a key whose other value computes something else
    refused(MPT, "\"clip_qkv\": null", "\"clip_qkv\": 6", "clip_qkv is 6, wanted null");
    refused(MPT, "\"alibi_bias_max\": 8", "\"alibi_bias_max\": 16", "alibi_bias_max is 16");
    refused(MPT, "\"alibi\": true", "\"alibi\": false", "alibi is false, wanted true");
    refused(MPT, "\"qk_ln\": false", "\"qk_ln\": true", "qk_ln is true, wanted false");
    refused(MPT, "\"prefix_lm\": false", "\"prefix_lm\": true", "prefix_lm is true");
    refused(MPT, "\"attn_type\": \"multihead_attention\"",
            "\"attn_type\": \"grouped_query_attention\"", "attn_type is \"grouped_query_attention\"");
    refused(MPT, "\"softmax_scale\": null", "\"softmax_scale\": 0", "a softmax_scale above 0");
    refused(MPT, "\"softmax_scale\": null", "\"softmax_scale\": \"x\"", "wanted a number");
    refused(MPT, "\"attn_config\": {", "\"attn_config\": {\"rope\": true,", "the key 'rope'");
    refused(MPT, "\"attn_config\": {", "\"attn_config\": 3, \"attn\": {", "an object");
    refused(MPT, "\"no_bias\": true", "\"no_bias\": false", "no_bias is false, wanted true");
    refused(MPT, "\"expansion_ratio\": 4", "\"expansion_ratio\": 2", "wanted 4");
    refused(MPT, "\"norm_type\": \"low_precision_layernorm\"", "\"norm_type\": \"rmsnorm\"",
            "norm_type is \"rmsnorm\"");
    refused(MPT, "\"logit_scale\": null", "\"logit_scale\": 0.5", "logit_scale is 0.5");
    refused("test/open/alibi/bloom_6", "\"n_head\": 6", "\"n_head\": 5", "that the heads divide");
    return check_done();
}
