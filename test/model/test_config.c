/* Configurations: presets, config.json of Hugging Face read, refused and written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fixture.h"
#include "model/config.h"

static const char *const gpt2 =
    "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 768, "
    "\"n_layer\": 12, \"n_head\": 12, \"n_positions\": 1024, \"n_ctx\": 1024, "
    "\"vocab_size\": 50257, \"n_inner\": null, \"layer_norm_epsilon\": 1e-05, "
    "\"resid_pdrop\": 0.1, \"eos_token_id\": 50256, \"some_new_field\": {\"x\": [1]}}";

static const char *const llama =
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 2048, "
    "\"num_hidden_layers\": 22, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
    "\"intermediate_size\": 5632, \"vocab_size\": 32000, \"max_position_embeddings\": 2048, "
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"rope_scaling\": null, "
    "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": [2, 3]}";

static weft_status_t read_text(const char *text, weft_model_config_t *config_p)
{
    const char *path = in_scratch("config.json");
    write_file(path, text, strlen(text));
    return weft__config_read(path, config_p);
}

/* `text` with `from` replaced once. */
static const char *with(const char *text, const char *from, const char *to)
{
    static char out[4096];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(out, sizeof(out), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void hugging_face_files_are_read(void **state)
{
    weft_model_config_t c;
    (void)state;
    assert_int_equal(read_text(gpt2, &c), WEFT_OK);
    assert_true(c.family == WEFT_GPT2 && c.layers == 12 && c.width == 768 && c.heads == 12);
    assert_true(c.kv_heads == 12 && c.head_dim == 64 && c.ffn == 3072 && c.vocab == 50257);
    assert_true(c.context == 1024 && c.tied && c.norm_eps == 1e-5f && c.eos_token == 50256);
    assert_true(c.residual_dropout == 0.1f && c.embed_dropout == 0.1f && c.bos_token == -1);
    assert_int_equal(read_text(llama, &c), WEFT_OK);
    assert_true(c.family == WEFT_LLAMA && c.layers == 22 && c.width == 2048 && c.heads == 32);
    assert_true(c.kv_heads == 4 && c.head_dim == 64 && c.ffn == 5632 && c.vocab == 32000);
    assert_true(c.rope_theta == 10000.0f && !c.tied && c.bos_token == 1 && c.eos_token == 2);
    assert_true(c.attention_dropout == 0 && c.init_std == 0.02f);
}

static void what_we_do_not_compute_is_refused(void **state)
{
    static const struct {
        int llama;
        const char *from, *to, *says;
    } cases[] = {
        {0, "\"gelu_new\"", "\"relu\"", "activation_function"},
        {0, "\"gpt2\"", "\"bert\"", "model_type"},
        {0, "\"n_embd\": 768", "\"n_embd\": 770", "770"},
        {0, "\"n_embd\": 768, ", "", "n_embd"},
        {0, "\"n_layer\": 12", "\"n_layer\": 12.5", "n_layer"},
        {0, "\"n_layer\": 12", "\"n_layer\": -1", "n_layer"},
        {0, "\"n_layer\": 12", "\"n_layer\": 99999999999", "n_layer"},
        {0, "\"n_ctx\": 1024", "\"scale_attn_by_inverse_layer_idx\": true",
         "scale_attn_by_inverse_layer_idx"},
        {0, "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1.0", "dropout"},
        {0, "\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 1e+60", "layer_norm_epsilon"},
        {1, "\"rope_theta\": 10000.0, \"rope_scaling\": null",
         "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e300}", "rope_theta"},
        {0, "768, ", "768 ", "line 1"},
        {1, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"llama3\"}",
         "rope_scaling"},
        {1, "\"silu\"", "\"gelu\"", "hidden_act"},
        {1, "\"rope_scaling\": null", "\"attention_bias\": true", "attention_bias"},
        {1, "\"num_key_value_heads\": 4", "\"num_key_value_heads\": 5", "5"},
        {1, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 3", "tie_word_embeddings"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_model_config_t c = {.layers = 77};
        const char *text = with(cases[i].llama ? llama : gpt2, cases[i].from, cases[i].to);
        assert_int_equal(read_text(text, &c), WEFT_ERR_INVALID);
        assert_true(error_says(cases[i].says));
        assert_int_equal(c.layers, 77); /* outputs only on success */
    }
}

static void plain_rope_in_newer_words_is_read(void **state)
{
    weft_model_config_t c;
    (void)state;
    assert_int_equal(
        read_text(with(llama, "\"rope_theta\": 10000.0, \"rope_scaling\": null",
                       "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5e5}"),
                  &c),
        WEFT_OK);
    assert_true(c.rope_theta == 5e5f);
}

static void presets_are_possible_and_survive_writing(void **state)
{
    (void)state;
    for (int i = 0; weft__config_preset_name(i) != NULL; i++) {
        weft_model_config_t c, again;
        char *text;
        assert_int_equal(weft__config_find(weft__config_preset_name(i), &c), WEFT_OK);
        assert_int_equal(weft__config_check(&c), WEFT_OK);
        c.eos_token = i;
        c.attention_dropout = 0.15f;
        assert_int_equal(weft__config_text(&c, &text), WEFT_OK);
        assert_int_equal(read_text(text, &again), WEFT_OK);
        assert_memory_equal(&c, &again, sizeof(c));
        free(text);
    }
}

static void names_and_paths_are_found(void **state)
{
    weft_model_config_t c;
    (void)state;
    assert_int_equal(weft__config_find("gpt2-125m", &c), WEFT_ERR_INVALID);
    assert_true(error_says("gpt2-124m"));
    assert_int_equal(weft__config_find("/nowhere/config.json", &c), WEFT_ERR_NOT_FOUND);
    assert_int_equal(read_text(gpt2, &c), WEFT_OK);
    assert_int_equal(weft__config_find(scratch(), &c), WEFT_OK);
    assert_int_equal(c.width, 768);
}

/* Against what others publish: 6 N + 12 L C T. */
/* The largest that is possible: more in each direction is refused, and what is left can be
 * counted. */
static void parameters_of_the_largest_model_are_counted(void **state)
{
    weft_model_config_t c;
    (void)state;
    assert_int_equal(weft__config_preset("llama-7b", &c), WEFT_OK);
    c.layers = 10000;
    c.width = 1 << 20;
    c.heads = c.kv_heads = 1 << 16;
    c.head_dim = 1 << 12;
    c.ffn = 1 << 24;
    c.vocab = 1 << 28;
    c.context = 1 << 26;
    assert_int_equal(weft__config_check(&c), WEFT_ERR_INVALID);
    assert_true(error_says("heads x head_dim"));
    c.head_dim = 1 << 8;
    assert_int_equal(weft__config_check(&c), WEFT_OK);
    assert_true(weft__config_params(&c) > (int64_t)1 << 59);
}

static void operations_per_token(void **state)
{
    weft_model_config_t c;
    (void)state;
    assert_int_equal(weft__config_preset("gpt2-124m", &c), WEFT_OK);
    assert_true(weft__config_flops(&c, 1024) == 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_face_files_are_read),
        cmocka_unit_test(what_we_do_not_compute_is_refused),
        cmocka_unit_test(plain_rope_in_newer_words_is_read),
        cmocka_unit_test(presets_are_possible_and_survive_writing),
        cmocka_unit_test(names_and_paths_are_found),
        cmocka_unit_test(parameters_of_the_largest_model_are_counted),
        cmocka_unit_test(operations_per_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
