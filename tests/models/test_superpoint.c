/* From a file's tensors to a plan, and every way in which a file is refused. */
#include "models/tensor_file.h"

#include <math.h>

/* ---- running it ---------------------------------------------------------------------------- */

enum { SIDE = 16, SCORES = SIDE * SIDE, MAP = 4 * FILE_DESCRIPTOR_DIM };

struct outputs {
    float scores[SCORES], map[MAP];
};

static void fill_input(float *input, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        input[i] = random_unit(&seed);
}

static struct outputs run_model(const tap_superpoint *model)
{
    struct outputs outputs;
    float input[SCORES];
    tap_plan *plan;
    tap_error err;
    fill_input(input, SCORES, 5);
    assert_ok(tap_superpoint_plan(model, SIDE, SIDE, true, &plan, &err), err);
    assert_ok(tap_reference_run(plan, (const float *[]){input},
                                (float *[]){outputs.scores, outputs.map}, &err),
              err);
    tap_plan_free(plan);
    return outputs;
}

static struct outputs run_file(struct tensor_file *file)
{
    tap_superpoint *model;
    tap_error err;
    assert_ok(tap_superpoint_create(&model, file_open(file), NULL, &err), err);
    file_close(file); /* the tensors were copied */
    struct outputs outputs = run_model(model);
    tap_superpoint_free(model);
    return outputs;
}

static void assert_refused(struct tensor_file *file, tap_status status, const char *words)
{
    tap_superpoint *model;
    tap_error err;
    assert_fails(tap_superpoint_create(&model, file_open(file), NULL, &err), status, err, words);
    assert_null(model);
    assert_non_null(strstr(err.message, "model.safetensors"));
    file_close(file);
}

/* ---- names that load ----------------------------------------------------------------------- */

static void every_naming_and_float_type_is_one_network(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"", "module.", "net.superpoint."};
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    struct tensor_file file;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    struct outputs wanted = run_file(&file);
    for (size_t i = 0; i < 18; i++) {
        file_init(&file, i % 2 ? NAMED_BY_MAGIC_LEAP : NAMED_BY_HUGGING_FACE, prefixes[i / 2 % 3]);
        for (size_t k = 0; k < file.n; k++)
            file.tensors[k].dtype = dtypes[i / 6];
        struct outputs found = run_file(&file);
        assert_memory_equal(&found, &wanted, sizeof wanted);
    }
}

static void every_tensor_matters(void **state)
{
    (void)state;
    struct tensor_file file;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    struct outputs plain = run_file(&file);
    for (size_t i = 0; i < FILE_TENSORS; i++) {
        file.tensors[i].sign = -1;
        struct outputs turned = run_file(&file);
        file.tensors[i].sign = 1;
        bool scores = memcmp(turned.scores, plain.scores, sizeof plain.scores) != 0;
        bool map = memcmp(turned.map, plain.map, sizeof plain.map) != 0;
        bool in_detector = i / 2 == 8 || i / 2 == 9, in_descriptor = i / 2 >= 10;
        if (scores == in_descriptor || map == in_detector)
            fail_msg("%s turned: scores %d, descriptors %d", file.tensors[i].name, scores, map);
    }
}

static void the_model_describes_itself(void **state)
{
    (void)state;
    struct tensor_file file;
    tap_superpoint *model;
    tap_error err;
    file_init(&file, NAMED_BY_MAGIC_LEAP, "");
    assert_ok(tap_superpoint_create(&model, file_open(&file), NULL, &err), err);
    assert_int_equal(tap_superpoint_descriptor_dim(model), FILE_DESCRIPTOR_DIM);
    size_t n = 0;
    for (size_t i = 0; i < file.n; i++)
        n += tap_weights_at(file.weights, i)->n_elements;
    assert_int_equal(tap_superpoint_parameters(model), n);
    file_close(&file);
    tap_superpoint_free(model);
    tap_superpoint_free(NULL);
}

static void a_file_without_the_head_is_a_detector(void **state)
{
    (void)state;
    struct tensor_file file;
    tap_superpoint *model;
    tap_plan *plan;
    tap_error err;
    float input[SCORES], scores[SCORES];
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    struct outputs wanted = run_file(&file);
    file.n = 20;
    assert_ok(tap_superpoint_create(&model, file_open(&file), NULL, &err), err);
    file_close(&file);
    assert_int_equal(tap_superpoint_descriptor_dim(model), 0);
    assert_fails(tap_superpoint_plan(model, SIDE, SIDE, true, &plan, &err), TAP_ERR_UNSUPPORTED,
                 err, "without a descriptor head");
    assert_null(plan);
    assert_ok(tap_superpoint_plan(model, SIDE, SIDE, false, &plan, &err), err);
    fill_input(input, SCORES, 5);
    assert_ok(tap_reference_run(plan, (const float *[]){input}, (float *[]){scores}, &err), err);
    assert_memory_equal(scores, wanted.scores, sizeof scores);
    tap_plan_free(plan);
    tap_superpoint_free(model);
}

/* ---- names that don't ---------------------------------------------------------------------- */

static void each_missing_tensor_is_named(void **state)
{
    (void)state;
    struct tensor_file file;
    for (size_t i = 0; i < (size_t)FILE_TENSORS * 2; i++) {
        char name[160], words[200];
        file_init(&file, i % 2 ? NAMED_BY_MAGIC_LEAP : NAMED_BY_HUGGING_FACE, i % 3 ? "" : "m.");
        memcpy(name, file.tensors[i / 2].name, sizeof name);
        snprintf(words, sizeof words, "tensor '%s' is missing", name);
        file_remove(&file, name);
        assert_refused(&file, TAP_ERR_FORMAT, words);
    }
}

static void half_a_descriptor_head_is_no_detector(void **state)
{
    (void)state;
    struct tensor_file file;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    file.n = 22; /* the head's first convolution alone */
    assert_refused(&file, TAP_ERR_FORMAT,
                   "'descriptor_decoder.conv_descriptor_b.weight' is missing");
}

static void each_renamed_tensor_is_missing(void **state)
{
    (void)state;
    struct tensor_file file;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    strcpy(file_find(&file, "encoder.conv_blocks.2.conv_b.bias")->name,
           "encoder.conv_blocks.2.conv_c.bias");
    assert_refused(&file, TAP_ERR_FORMAT, "'encoder.conv_blocks.2.conv_b.bias' is missing");
}

static void extra_tensors_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"bn1a.running_mean", "conv1a.weight",
                                        "encoder.conv_blocks.4.conv_a.weight",
                                        "module.encoder.conv_blocks.0.conv_a.weights"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tensor_file file;
        char words[200];
        file_init(&file, NAMED_BY_HUGGING_FACE, "");
        file_add(&file, names[i]);
        snprintf(words, sizeof words, "tensor '%s' is extra", names[i]);
        /* Two namings in one file: whichever is taken, the other's tensors are too many. */
        assert_refused(&file, TAP_ERR_FORMAT, i == 1 ? "'conv1a.bias' is missing" : words);
    }
}

static void very_old_exports_are_unsupported(void **state)
{
    (void)state;
    struct tensor_file file;
    file_init(&file, NAMED_LONG_AGO, "");
    assert_refused(&file, TAP_ERR_UNSUPPORTED, "very old export");
    for (size_t i = 0; i < FILE_TENSORS; i++) {
        file_init(&file, NAMED_LONG_AGO, "");
        file.tensors[0] = file.tensors[i];
        file.n = 1;
        assert_refused(&file, TAP_ERR_UNSUPPORTED, file.tensors[0].name);
    }
}

static void another_network_is_unsupported(void **state)
{
    (void)state;
    struct tensor_file file = {0};
    file_add(&file, "vit.embeddings.cls_token");
    file_add(&file, "xconv1a.weight"); /* a tail alone is no name */
    assert_refused(&file, TAP_ERR_UNSUPPORTED, "not a SuperPoint");
    file.n = 0;
    assert_refused(&file, TAP_ERR_UNSUPPORTED, "(none)");
    memset(file_add(&file, "")->name, 'x', 150);
    strcpy(file.tensors[0].name + 140, ".conv1a.bias"); /* a prefix longer than any that we take */
    assert_refused(&file, TAP_ERR_UNSUPPORTED, "not a SuperPoint");
}

/* ---- shapes and values --------------------------------------------------------------------- */

static void each_misshapen_tensor_is_named_with_both_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t rank, shape[4];
        const char *words;
    } cases[] = {
        {"encoder.conv_blocks.0.conv_a.weight",
         4,
         {4, 3, 3, 3},
         "(4, 3, 3, 3), expected (any, 1, 3, 3)"},
        {"encoder.conv_blocks.0.conv_a.weight", 3, {4, 3, 3}, "(4, 3, 3), expected (any, 1, 3, 3)"},
        {"encoder.conv_blocks.0.conv_a.weight",
         4,
         {0, 1, 3, 3},
         "(0, 1, 3, 3), expected (any, 1, 3, 3)"},
        {"encoder.conv_blocks.1.conv_b.weight",
         4,
         {5, 4, 3, 3},
         "(5, 4, 3, 3), expected (4, 4, 3, 3)"},
        {"encoder.conv_blocks.2.conv_a.weight",
         4,
         {4, 8, 3, 3},
         "(4, 8, 3, 3), expected (any, 4, 3, 3)"},
        {"encoder.conv_blocks.3.conv_a.bias", 1, {7}, "(7), expected (8)"},
        {"encoder.conv_blocks.3.conv_b.weight", 4, {8, 8, 1, 1}, "expected (8, 8, 3, 3)"},
        {"keypoint_decoder.conv_score_b.weight",
         4,
         {66, 12, 1, 1},
         "(66, 12, 1, 1), expected (65, 12, 1, 1)"},
        {"keypoint_decoder.conv_score_b.bias", 2, {65, 1}, "(65, 1), expected (65)"},
        {"descriptor_decoder.conv_descriptor_a.weight", 4, {13, 8, 3, 3}, "expected (12, 8, 3, 3)"},
        {"descriptor_decoder.conv_descriptor_b.weight",
         2,
         {20, 12},
         "(20, 12), expected (any, 12, 1, 1)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_file file;
        file_init(&file, NAMED_BY_HUGGING_FACE, "");
        struct file_tensor *tensor = file_find(&file, cases[i].name);
        tensor->rank = cases[i].rank;
        memcpy(tensor->shape, cases[i].shape, sizeof tensor->shape);
        assert_refused(&file, TAP_ERR_FORMAT, cases[i].words);
        tap_superpoint *model;
        tap_error err;
        tap_superpoint_create(&model, file_open(&file), NULL, &err);
        assert_non_null(strstr(err.message, cases[i].name));
        file_close(&file);
    }
}

static void widths_have_a_limit(void **state)
{
    (void)state;
    struct tensor_file file;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    file_find(&file, "encoder.conv_blocks.0.conv_a.weight")->shape[0] = 1025;
    assert_refused(&file, TAP_ERR_LIMIT, "1025 channels");
}

static void types_that_are_no_float_are_named(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"I64", "I32", "I8", "U8", "BOOL"};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct tensor_file file;
        file_init(&file, NAMED_BY_HUGGING_FACE, "");
        file_find(&file, "keypoint_decoder.conv_score_a.bias")->dtype = dtypes[i];
        assert_refused(&file, TAP_ERR_UNSUPPORTED, "keypoint_decoder.conv_score_a.bias");
    }
}

static void values_that_are_not_finite_are_named(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const char name[] = "encoder.conv_blocks.3.conv_b.weight";
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct tensor_file file;
        tap_superpoint *model;
        tap_error err;
        file_init(&file, NAMED_BY_HUGGING_FACE, "");
        file_open(&file);
        file_poke(&file, name, 100, values[i]);
        assert_fails(tap_superpoint_create(&model, file.weights, NULL, &err), TAP_ERR_FORMAT, err,
                     name);
        assert_null(model);
        file_close(&file);
    }
}

/* ---- config.json --------------------------------------------------------------------------- */

static tap_status create_with_config(const char *text, tap_error *err)
{
    struct tensor_file file;
    tap_superpoint *model;
    tap_config *config;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    assert_ok(tap_config_parse(&config, (const uint8_t *)text, strlen(text), "config.json", err),
              *err);
    tap_status status = tap_superpoint_create(&model, file_open(&file), config, err);
    assert_true((model != NULL) == (status == TAP_OK));
    tap_superpoint_free(model);
    tap_config_free(config);
    file_close(&file);
    return status;
}

#define WIDTHS                                                              \
    "\"encoder_hidden_sizes\": [4, 4, 8, 8], \"decoder_hidden_size\": 12, " \
    "\"descriptor_decoder_dim\": 20"

static void configs_that_agree_are_taken(void **state)
{
    (void)state;
    tap_error err;
    assert_ok(create_with_config("{" WIDTHS "}", &err), err);
    assert_ok(create_with_config("{\"model_type\": \"superpoint\", \"keypoint_decoder_dim\": 65, "
                                 "\"architectures\": [\"SuperPointModel\"], \"nms_radius\": 4, "
                                 "\"something_new\": {\"a\": [1]}, " WIDTHS "}",
                                 &err),
              err);
}

static void configs_that_disagree_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tap_status status;
        const char *words;
    } cases[] = {
        {"{\"model_type\": \"superglue\"}", TAP_ERR_UNSUPPORTED, "model_type is 'superglue'"},
        {"{\"model_type\": 3}", TAP_ERR_UNSUPPORTED, "model_type"},
        {"{\"conv_layers_sizes\": [64]}", TAP_ERR_UNSUPPORTED, "'conv_layers_sizes'"},
        {"{\"hidden_sizes\": [64]}", TAP_ERR_UNSUPPORTED, "'hidden_sizes'"},
        {"{\"descriptor_dim\": 256}", TAP_ERR_UNSUPPORTED, "'descriptor_dim'"},
        {"{\"remove_borders\": 4}", TAP_ERR_UNSUPPORTED, "'remove_borders'"},
        {"{\"encoder_hidden_sizes\": [4, 4, 8]}", TAP_ERR_UNSUPPORTED, "must list 4 sizes, has 3"},
        {"{\"encoder_hidden_sizes\": [4, 4, 8, 8, 8]}", TAP_ERR_UNSUPPORTED, "has 5"},
        {"{\"encoder_hidden_sizes\": 64}", TAP_ERR_UNSUPPORTED, "encoder_hidden_sizes"},
        {"{\"encoder_hidden_sizes\": [4, 4, 8, 2000]}", TAP_ERR_FORMAT, "each must be in 1..1024"},
        {"{\"encoder_hidden_sizes\": [0, 4, 8, 8]}", TAP_ERR_FORMAT, "each must be in 1..1024"},
        {"{\"keypoint_decoder_dim\": 64}", TAP_ERR_UNSUPPORTED, "keypoint_decoder_dim: is 64"},
        {"{\"keypoint_decoder_dim\": \"65\"}", TAP_ERR_FORMAT, "keypoint_decoder_dim"},
        {"{\"decoder_hidden_size\": 1.5}", TAP_ERR_FORMAT, "decoder_hidden_size"},
        {"{\"descriptor_decoder_dim\": 0}", TAP_ERR_FORMAT, "descriptor_decoder_dim"},
        {"{}", TAP_ERR_FORMAT, "(4, 1, 3, 3), expected (64, 1, 3, 3) (by config.json)"},
        {"{\"encoder_hidden_sizes\": [4, 4, 8, 8], \"decoder_hidden_size\": 16}", TAP_ERR_FORMAT,
         "conv_score_a.weight' has the shape (12, 8, 3, 3), expected (16, 8, 3, 3)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tap_error err;
        assert_fails(create_with_config(cases[i].text, &err), cases[i].status, err, cases[i].words);
    }
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* Which operation reads which, rectifies, pools: docs/superpoint.md, "The network". */
static void the_plan_is_the_network_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        size_t reads, kernel, out;
        bool relu, pool;
    } wanted[14] = {{0, 3, 4, true, false},    {1, 3, 4, true, true},    {2, 3, 4, true, false},
                    {3, 3, 4, true, true},     {4, 3, 8, true, false},   {5, 3, 8, true, true},
                    {6, 3, 8, true, false},    {7, 3, 8, true, false},   {8, 3, 12, true, false},
                    {9, 1, 65, false, false},  {10, 0, 1, false, false}, {8, 3, 12, true, false},
                    {12, 1, 20, false, false}, {13, 0, 20, false, false}};
    struct tensor_file file;
    tap_superpoint *model;
    tap_plan *plan;
    tap_error err;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    assert_ok(tap_superpoint_create(&model, file_open(&file), NULL, &err), err);
    file_close(&file);
    assert_ok(tap_superpoint_plan(model, 64, 32, true, &plan, &err), err);
    assert_int_equal(plan->n_ops, 14);
    for (size_t i = 0; i < 14; i++) {
        const tap_op *op = &plan->ops[i];
        assert_int_equal(op->kind, i == 10   ? TAP_OP_CELL_SOFTMAX
                                   : i == 13 ? TAP_OP_L2_NORM
                                             : TAP_OP_CONV);
        /* Buffer 0 is the input; operation i gives buffer i + 1. */
        assert_int_equal(op->input, wanted[i].reads);
        assert_int_equal(op->kernel, wanted[i].kernel);
        assert_int_equal(plan->shapes[op->output].channels, wanted[i].out);
        assert_true(op->relu == wanted[i].relu && op->pool == wanted[i].pool);
    }
    tap_plan_free(plan);
    tap_superpoint_free(model);
}

static void sizes_that_the_cell_does_not_divide_are_refused(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{0, 8},     {8, 0},    {4, 8},    {12, 8},          {8, 20},
                                      {641, 480}, {8200, 8}, {8, 8200}, {SIZE_MAX - 7, 8}};
    struct tensor_file file;
    tap_superpoint *model;
    tap_plan *plan;
    tap_error err;
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    assert_ok(tap_superpoint_create(&model, file_open(&file), NULL, &err), err);
    file_close(&file);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_fails(tap_superpoint_plan(model, sizes[i][0], sizes[i][1], true, &plan, &err),
                     TAP_ERR_ARGUMENT, err, "multiples of 8");
        assert_null(plan);
    }
    assert_ok(tap_superpoint_plan(model, 8, 8192, true, &plan, &err), err);
    assert_int_equal(plan->n_ops, 14);
    assert_int_equal(plan->n_outputs, 2);
    tap_plan_free(plan);
    tap_superpoint_free(model);
}

/* Away from the edge, whose zeros reach 46 pixels in, all is as far right and down as the picture
 * was moved. */
static void points_move_with_the_picture(void **state)
{
    (void)state;
    enum { BIG = 168, SMALL = 160, FROM = 64, TO = 104, SHIFT = 8 };
    struct tensor_file file;
    tap_superpoint *model;
    tap_plan *plan;
    tap_error err;
    float *big = malloc(sizeof(float[BIG * BIG])), *input = malloc(sizeof(float[SMALL * SMALL]));
    float *scores = malloc(sizeof(float[SMALL * SMALL]));
    size_t bytes, found[2];
    assert_true(tap_points_scratch_bytes(SMALL, SMALL, &bytes));
    void *scratch = tap_alloc(bytes, 1);
    assert_true(big != NULL && input != NULL && scores != NULL && scratch != NULL);
    file_init(&file, NAMED_BY_HUGGING_FACE, "");
    assert_ok(tap_superpoint_create(&model, file_open(&file), NULL, &err), err);
    file_close(&file);
    assert_ok(tap_superpoint_plan(model, SMALL, SMALL, false, &plan, &err), err);
    fill_input(big, BIG * BIG, 77);
    tap_point kept[2][(TO - FROM) * (TO - FROM)];
    for (size_t k = 0; k < 2; k++) {
        size_t shift = k * SHIFT, n;
        const tap_point *points;
        tap_superpoint_options options = {.max_keypoints = -1, .nms_radius = 4, .border = 4};
        for (size_t i = 0; i < SMALL * SMALL; i++)
            input[i] = big[(i / SMALL + SHIFT - shift) * BIG + i % SMALL + SHIFT - shift];
        assert_ok(tap_reference_run(plan, (const float *[]){input}, (float *[]){scores}, &err),
                  err);
        tap_points_select(&points, &n, scores, SMALL, SMALL, &options, scratch);
        found[k] = 0;
        for (size_t i = 0; i < n; i++)
            if (points[i].x >= FROM + shift && points[i].x < TO + shift &&
                points[i].y >= FROM + shift && points[i].y < TO + shift)
                kept[k][found[k]++] = (tap_point){points[i].x - (uint32_t)shift,
                                                  points[i].y - (uint32_t)shift, points[i].score};
    }
    assert_true(found[0] > 10);
    assert_int_equal(found[0], found[1]);
    assert_memory_equal(kept[0], kept[1], found[0] * sizeof(tap_point));
    tap_plan_free(plan);
    tap_superpoint_free(model);
    free(big), free(input), free(scores), free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_naming_and_float_type_is_one_network),
        cmocka_unit_test(every_tensor_matters),
        cmocka_unit_test(the_model_describes_itself),
        cmocka_unit_test(a_file_without_the_head_is_a_detector),
        cmocka_unit_test(each_missing_tensor_is_named),
        cmocka_unit_test(half_a_descriptor_head_is_no_detector),
        cmocka_unit_test(each_renamed_tensor_is_missing),
        cmocka_unit_test(extra_tensors_are_named),
        cmocka_unit_test(very_old_exports_are_unsupported),
        cmocka_unit_test(another_network_is_unsupported),
        cmocka_unit_test(each_misshapen_tensor_is_named_with_both_shapes),
        cmocka_unit_test(widths_have_a_limit),
        cmocka_unit_test(types_that_are_no_float_are_named),
        cmocka_unit_test(values_that_are_not_finite_are_named),
        cmocka_unit_test(configs_that_agree_are_taken),
        cmocka_unit_test(configs_that_disagree_are_refused),
        cmocka_unit_test(the_plan_is_the_network_of_the_paper),
        cmocka_unit_test(sizes_that_the_cell_does_not_divide_are_refused),
        cmocka_unit_test(points_move_with_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
