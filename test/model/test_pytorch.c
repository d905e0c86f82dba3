/* ctest: timeout=120 */
/* Our models against PyTorch's: logits, loss, every gradient, and 20 steps of AdamW with clipping,
 * from the fixtures that make-fixtures.py made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cpu/inner.h"
#include "kernel/numbers.h"
#include "model/rig.h"

#define LIMIT 1e-4

enum { STEPS = 20, TENSORS = 256, CONFIG_FIELDS = 12 };

typedef struct tensor {
    char name[128];
    int64_t count;
    union {
        float *f;
        int32_t *i;
        void *any;
    } data;
} tensor_t;

typedef struct fixture {
    tensor_t tensors[TENSORS];
    int count;
} fixture_t;

static void path_of(const char *name, char *path, size_t size)
{
    const char *source = getenv("WEFT_SOURCE"), *slash = strrchr(__FILE__, '/');
    if (source != NULL) {
        snprintf(path, size, "%s/test/model/fixtures/%s", source, name);
    } else { /* not started by ctest */
        snprintf(path, size, "%.*s/fixtures/%s", (int)(slash - __FILE__), __FILE__, name);
    }
}

static int32_t read_int(FILE *file)
{
    int32_t value;
    assert_int_equal(fread(&value, sizeof(value), 1, file), 1);
    return value;
}

static void read_tensor(FILE *file, int32_t name_length, tensor_t *tensor)
{
    char type;
    assert_in_range(name_length, 1, (int)sizeof(tensor->name) - 1);
    assert_int_equal(fread(tensor->name, 1, (size_t)name_length, file), name_length);
    tensor->name[name_length] = '\0';
    assert_int_equal(fread(&type, 1, 1, file), 1);
    tensor->count = 1;
    for (int32_t dims = read_int(file); dims > 0; dims--) {
        tensor->count *= read_int(file);
    }
    tensor->data.any = malloc((size_t)tensor->count * 4);
    assert_int_equal(fread(tensor->data.any, 4, (size_t)tensor->count, file), tensor->count);
}

static void load(const char *name, fixture_t *fixture)
{
    char path[1024];
    int32_t length;
    path_of(name, path, sizeof(path));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fixture->count = 0;
    while (fread(&length, sizeof(length), 1, file) == 1) {
        assert_in_range(fixture->count, 0, TENSORS - 1);
        read_tensor(file, length, &fixture->tensors[fixture->count++]);
    }
    fclose(file);
}

static void unload(fixture_t *fixture)
{
    for (int i = 0; i < fixture->count; i++) {
        free(fixture->tensors[i].data.any);
    }
}

static const tensor_t *find(const fixture_t *fixture, const char *prefix, const char *name)
{
    char full[160];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    for (int i = 0; i < fixture->count; i++) {
        if (strcmp(fixture->tensors[i].name, full) == 0) {
            return &fixture->tensors[i];
        }
    }
    fail_msg("the fixture has no %s", full);
    return NULL;
}

static rig_options_t options_of(const fixture_t *fixture)
{
    const tensor_t *tensor = find(fixture, "config", "");
    const int32_t *c = tensor->data.i;
    assert_int_equal(tensor->count, CONFIG_FIELDS);
    return (rig_options_t){.config = {.family = c[0] ? WEFT_LLAMA : WEFT_GPT2,
                                      .layers = c[1],
                                      .width = c[2],
                                      .heads = c[3],
                                      .kv_heads = c[4],
                                      .head_dim = c[5],
                                      .ffn = c[6],
                                      .vocab = c[7],
                                      .context = c[8],
                                      .tied = c[9],
                                      .norm_eps = 1e-5f,
                                      .rope_theta = 10000.0f,
                                      .init_std = 0.02f},
                           .shape = WEFT_SHAPE((int64_t)c[10], (int64_t)c[11])};
}

static void set_tokens(rig_t *rig, const fixture_t *fixture, int step)
{
    int64_t batch = rig->shape.batch, seq = rig->shape.seq;
    const int32_t *from = find(fixture, "tokens", "")->data.i + step * batch * (seq + 1);
    for (int64_t b = 0; b < batch; b++) {
        memcpy(rig->acts.tokens + b * seq, from + b * (seq + 1), (size_t)seq * 4);
        memcpy(rig->acts.targets + b * seq, from + b * (seq + 1) + 1, (size_t)seq * 4);
    }
}

/* `worst_p` keeps the largest difference, for the summary. */
static void compare(const char *what, const char *name, const float *ours, const tensor_t *theirs,
                    double *worst_p)
{
    double apart = rig_apart(ours, theirs->data.f, theirs->count);
    if (!(apart <= LIMIT)) {
        fail_msg("%s %s differs from PyTorch's by %.3g of its largest element", what, name, apart);
    }
    *worst_p = apart > *worst_p ? apart : *worst_p;
}

static void compare_params(rig_t *rig, const fixture_t *fixture, const char *prefix, void **ours,
                           double *worst_p)
{
    for (int i = 0; i < rig->model->param_count; i++) {
        const tensor_t *theirs = find(fixture, prefix, rig->model->params[i].name);
        assert_int_equal(theirs->count, rig->model->params[i].count);
        compare(prefix, rig->model->params[i].name, ours[i], theirs, worst_p);
    }
}

static void compare_forward(rig_t *rig, const fixture_t *fixture, double *worst_p)
{
    rig->pass.training = false; /* or logits would become their gradient */
    float loss = (float)rig_run(rig);
    compare("the", "logits", rig->pass.scratch.logits, find(fixture, "logits", ""), worst_p);
    compare("the", "loss", &loss, find(fixture, "loss", ""), worst_p);
    rig->pass.training = true;
}

static void compare_training(rig_t *rig, const fixture_t *fixture, double *worst_p)
{
    const weft_adamw_t adamw = {
        .lr = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-5f, .decay = 0.1f};
    float losses[STEPS], norms[STEPS];
    for (int step = 0; step < STEPS; step++) {
        rig_zero_grads(rig);
        set_tokens(rig, fixture, step);
        losses[step] = (float)rig_run(rig);
        if (step == 0) {
            compare_params(rig, fixture, "grad.", rig->grads, &worst_p[0]);
        }
        norms[step] = rig_step(rig, step + 1, &adamw, 0.5f);
    }
    compare("the", "losses", losses, find(fixture, "losses", ""), &worst_p[1]);
    compare("the", "norms", norms, find(fixture, "norms", ""), &worst_p[1]);
    compare_params(rig, fixture, "final.", rig->params, &worst_p[1]);
}

static void compare_with(const char *name, bool spread)
{
    fixture_t fixture;
    rig_t rig;
    double forward = 0, backward[2] = {0};
    load(name, &fixture);
    rig_options_t options = options_of(&fixture);
    options.spread = spread;
    rig_open(&rig, &options);
    for (int i = 0; i < rig.model->param_count; i++) {
        const weft_param_t *param = &rig.model->params[i];
        const tensor_t *theirs = find(&fixture, "weight.", param->name);
        assert_int_equal(theirs->count, param->count);
        memcpy(rig.params[i], theirs->data.f, (size_t)param->count * sizeof(float));
    }
    set_tokens(&rig, &fixture, 0);
    compare_forward(&rig, &fixture, &forward);
    compare_training(&rig, &fixture, backward);
    printf("%s, %s: at most %.1e apart forward, %.1e gradients, %.1e after %d steps\n", name,
           weft__inner()->name, forward, backward[0], backward[1], STEPS);
    rig_close(&rig);
    unload(&fixture);
}

static void every_fixture_agrees(void **state)
{
    static const char *const names[] = {"gpt2.bin", "gpt2-long.bin", "llama-gqa.bin",
                                        "llama-wide.bin"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        compare_with(names[i], false);
        compare_with(names[i], true);
    }
}

static void every_instruction_set_agrees(void **state)
{
    (void)state;
    for (const weft_inner_t *const *table = numbers_inner_tables(); *table != NULL; table++) {
        weft__inner_use(*table);
        compare_with("gpt2.bin", false);
        compare_with("llama-gqa.bin", false);
    }
    weft__inner_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_agrees),
        cmocka_unit_test(every_instruction_set_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
