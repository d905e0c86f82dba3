/* Hugging Face's config.json. What is accepted is written and read again, and its sizes are
 * computed.
 *
 * reads: src/model/config_json.c src/model/config.c
 * besides: weft__config_find */
#include "fuzz/fuzz.h"

#include "model/config.h"

const long fuzz_runs = 20000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_model_config_t config, again;
    char *text, *text_again;
    if (weft__config_read(fuzz_file(data, size), &config) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 10);
        return 0;
    }
    CHECK(weft__config_check(&config) == WEFT_OK);
    CHECK(weft__config_params(&config) > 0 && weft__config_flops(&config, config.context) > 0);
    CHECK(weft__config_text(&config, &text) == WEFT_OK);
    CHECK(weft__config_read(fuzz_file(text, strlen(text)), &again) == WEFT_OK);
    CHECK(weft__config_text(&again, &text_again) == WEFT_OK);
    CHECK(strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"\"rope_scaling\": {\"type\": \"linear\"}",
                                        "\"rope_parameters\": {\"rope_theta\": 5e5}",
                                        "\"attention_bias\": true",
                                        "\"head_dim\": 4096",
                                        "\"eos_token_id\": [1, 2]",
                                        "\"scale_attn_by_inverse_layer_idx\": true",
                                        "\"rms_norm_eps\"",
                                        "\"hidden_act\": \"gelu\"",
                                        "1048576",
                                        "null"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    for (int i = 0; weft__config_preset_name(i) != NULL; i++) {
        weft_model_config_t config;
        char *text;
        CHECK(weft__config_preset(weft__config_preset_name(i), &config) == WEFT_OK);
        CHECK(weft__config_text(&config, &text) == WEFT_OK);
        fuzz_seed_text(text);
        free(text);
    }
    weft_model_config_t none;
    CHECK(weft__config_preset("none", &none) != WEFT_OK);
    fuzz_seed_text("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
                   "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 256, "
                   "\"max_position_embeddings\": 128, \"bos_token_id\": 3, \"rope_parameters\": "
                   "{\"rope_type\": \"default\", \"rope_theta\": 5e5}}");
    fuzz_seed_text("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
                   "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 256, "
                   "\"max_position_embeddings\": 128, \"rope_theta\": 10000.0, \"rope_scaling\": "
                   "{\"rope_type\": \"default\", \"rope_theta\": 5e5}, \"eos_token_id\": [7, 8]}");
}
