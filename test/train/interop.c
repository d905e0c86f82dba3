/* interop write RUN | interop read FOLDER: for test_interop.sh, which compares with Hugging
 * Face's packages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "train/checkpoint.h"

enum { WIDTH = 8, VOCAB = 257, POSITIONS = 16, TENSORS = 16, LARGEST = VOCAB * WIDTH };

static const char config[] = "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
                             "\"n_embd\": 8, \"n_head\": 2,\n"
                             " \"n_layer\": 1, \"n_positions\": 16, \"vocab_size\": 257, "
                             "\"bos_token_id\": 256, \"eos_token_id\": 256,\n"
                             " \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}\n";

/* A GPT-2 of one layer, as `transformers` names its tensors. */
static const struct {
    const char *name;
    uint64_t rows, columns;
} tensors[TENSORS] = {
    {"wte.weight", VOCAB, WIDTH},
    {"wpe.weight", POSITIONS, WIDTH},
    {"h.0.ln_1.weight", WIDTH, 0},
    {"h.0.ln_1.bias", WIDTH, 0},
    {"h.0.attn.c_attn.weight", WIDTH, 3 * WIDTH},
    {"h.0.attn.c_attn.bias", 3 * WIDTH, 0},
    {"h.0.attn.c_proj.weight", WIDTH, WIDTH},
    {"h.0.attn.c_proj.bias", WIDTH, 0},
    {"h.0.ln_2.weight", WIDTH, 0},
    {"h.0.ln_2.bias", WIDTH, 0},
    {"h.0.mlp.c_fc.weight", WIDTH, 4 * WIDTH},
    {"h.0.mlp.c_fc.bias", 4 * WIDTH, 0},
    {"h.0.mlp.c_proj.weight", 4 * WIDTH, WIDTH},
    {"h.0.mlp.c_proj.bias", WIDTH, 0},
    {"ln_f.weight", WIDTH, 0},
    {"ln_f.bias", WIDTH, 0},
};

/* Element i of tensor t is (37 i + t mod 101 - 50) / 256. */
static int write_run(const char *run)
{
    static float data[TENSORS][LARGEST];
    static char names[2][TENSORS][64];
    weft_tensor_source_t model[TENSORS], moments[TENSORS];
    weft_tokenizer_t *tokenizer;
    weft_checkpoint_writer_t *writer;
    const weft_checkpoint_options_t options = {.keep = 1};
    size_t length;
    for (int t = 0; t < TENSORS; t++) {
        for (int i = 0; i < LARGEST; i++) {
            data[t][i] = (float)((37 * i + t) % 101 - 50) / 256;
        }
        snprintf(names[0][t], sizeof(names[0][t]), "transformer.%s", tensors[t].name);
        snprintf(names[1][t], sizeof(names[1][t]), "exp_avg.transformer.%s", tensors[t].name);
        model[t] = (weft_tensor_source_t){.data = data[t]};
        model[t].form = (weft_tensor_form_t){.name = names[0][t],
                                             .dtype = WEFT_F32,
                                             .dims = tensors[t].columns > 0 ? 2 : 1,
                                             .shape = {tensors[t].rows, tensors[t].columns}};
        moments[t] = model[t];
        moments[t].form.name = names[1][t];
    }
    weft_checkpoint_t checkpoint = {.state = {.step = 3, .loss_scale = 1},
                                    .model = model,
                                    .model_count = TENSORS,
                                    .optimizer = moments,
                                    .optimizer_count = TENSORS,
                                    .config_json = config};
    if (weft__tokenizer_open("bytes", &tokenizer) != WEFT_OK ||
        weft__checkpoint_writer_open(run, &options, &writer) != WEFT_OK) {
        return 1;
    }
    checkpoint.tokenizer_json = weft__tokenizer_json(tokenizer, &length);
    weft_status_t status = weft__checkpoint_save(writer, &checkpoint, NULL);
    weft_status_t closed = weft__checkpoint_writer_close(writer);
    weft__tokenizer_close(tokenizer);
    return status != WEFT_OK || closed != WEFT_OK;
}

/* One line per tensor: name, type, shape, and the numbers weighted by their place, added up. */
static int read_folder(const char *folder)
{
    weft_loaded_t loaded;
    if (weft__checkpoint_load(folder, WEFT_LOAD_ALL, &loaded) != WEFT_OK) {
        return 1;
    }
    for (int i = 0; i < weft__tensors_count(loaded.model); i++) {
        const weft_tensor_t *tensor = weft__tensors_at(loaded.model, i);
        uint64_t count = weft__tensor_elements(&tensor->form);
        float *values = malloc((count + 1) * sizeof(float));
        char shape[128];
        double sum = 0;
        if (weft__tensor_to_f32(tensor, 0, count, values) == WEFT_OK) {
            for (uint64_t k = 0; k < count; k++) {
                sum += (double)values[k] * (double)(k % 7 + 1);
            }
        }
        printf("%s %s %s %.9g\n", tensor->form.name, tensor->stored,
               weft__tensor_shape_text(&tensor->form, shape, sizeof(shape)), sum);
        free(values);
    }
    weft__checkpoint_unload(&loaded);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc != 3                       ? 2
                 : strcmp(argv[1], "write") == 0 ? write_run(argv[2])
                                                 : read_folder(argv[2]);
    if (failed) {
        fprintf(stderr, "interop: %s\n", weft_last_error());
    }
    return failed;
}
