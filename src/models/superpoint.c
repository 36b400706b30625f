#include "layers.h"
#include "models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tap_superpoint_layer tap_superpoint_layers[TAP_SUPERPOINT_N_LAYERS] = {
    {"encoder.conv_blocks.0.conv_a", "conv1a", TAP_WIDTH_INPUT, TAP_WIDTH_BLOCK_0, 3},
    {"encoder.conv_blocks.0.conv_b", "conv1b", TAP_WIDTH_BLOCK_0, TAP_WIDTH_BLOCK_0, 3},
    {"encoder.conv_blocks.1.conv_a", "conv2a", TAP_WIDTH_BLOCK_0, TAP_WIDTH_BLOCK_1, 3},
    {"encoder.conv_blocks.1.conv_b", "conv2b", TAP_WIDTH_BLOCK_1, TAP_WIDTH_BLOCK_1, 3},
    {"encoder.conv_blocks.2.conv_a", "conv3a", TAP_WIDTH_BLOCK_1, TAP_WIDTH_BLOCK_2, 3},
    {"encoder.conv_blocks.2.conv_b", "conv3b", TAP_WIDTH_BLOCK_2, TAP_WIDTH_BLOCK_2, 3},
    {"encoder.conv_blocks.3.conv_a", "conv4a", TAP_WIDTH_BLOCK_2, TAP_WIDTH_BLOCK_3, 3},
    {"encoder.conv_blocks.3.conv_b", "conv4b", TAP_WIDTH_BLOCK_3, TAP_WIDTH_BLOCK_3, 3},
    {"keypoint_decoder.conv_score_a", "convPa", TAP_WIDTH_BLOCK_3, TAP_WIDTH_HEAD, 3},
    {"keypoint_decoder.conv_score_b", "convPb", TAP_WIDTH_HEAD, TAP_WIDTH_CELL, 1},
    {"descriptor_decoder.conv_descriptor_a", "convDa", TAP_WIDTH_BLOCK_3, TAP_WIDTH_HEAD, 3},
    {"descriptor_decoder.conv_descriptor_b", "convDb", TAP_WIDTH_HEAD, TAP_WIDTH_DESCRIPTOR, 1},
};

const size_t tap_superpoint_widths[TAP_SUPERPOINT_N_WIDTHS] = {1, 64, 64, 128, 128, 256, 65, 256};

enum {
    N_LAYERS = TAP_SUPERPOINT_N_LAYERS,
    N_DETECTOR = TAP_SUPERPOINT_N_DETECTOR,
    N_BLOCKS = 4,
    MAX_WIDTH = 1024, /* four times the published network's widest layer */
    MAX_SIDE = 8192,
    MAX_NAME = 256,
    FLOATS_PER_LINE = TAP_ALIGN / sizeof(float)
};

struct tap_superpoint {
    float *values; /* every tensor, each at a cache line */
    const float *weight[N_LAYERS], *bias[N_LAYERS];
    size_t widths[TAP_SUPERPOINT_N_WIDTHS];
    size_t n_layers; /* N_LAYERS, or N_DETECTOR without a descriptor head */
    uint64_t n_parameters;
};

/* ---- config.json --------------------------------------------------------------------------- */

/* A key that must hold one whole width; where it is missing, the published network's stays. */
static tap_status read_width(const tap_config *config, const char *key, size_t *width,
                             const char *file, tap_error *err)
{
    double value;
    if (!tap_config_has(config, key))
        return TAP_OK;
    if (!tap_config_number(config, key, &value) || value != floor(value) || value < 1 ||
        value > MAX_WIDTH)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "config.json beside %s: %s: must be a whole number in 1..%d", file, key,
                        MAX_WIDTH);
    *width = (size_t)value;
    return TAP_OK;
}

/* Exports of the class's first weeks named their keys and tensors otherwise. */
static tap_status refuse_old_keys(const tap_config *config, const char *file, tap_error *err)
{
    static const char *const old[] = {"conv_layers_sizes", "hidden_sizes", "descriptor_dim",
                                      "remove_borders"};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (tap_config_has(config, old[i]))
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "config.json beside %s: the key '%s' is from a very old export, which "
                            "is not supported; export the model with a current transformers",
                            file, old[i]);
    return TAP_OK;
}

/* What config.json asks the tensors to be. */
static tap_status read_config(const tap_config *config, size_t *widths, const char *file,
                              tap_error *err)
{
    static const char blocks[] = "encoder_hidden_sizes";
    const char *type = tap_config_string(config, "model_type");
    if (tap_config_has(config, "model_type") && (type == NULL || strcmp(type, "superpoint") != 0))
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "config.json beside %s: model_type is '%s', this is for 'superpoint'", file,
                        type == NULL ? "(no text)" : type);
    TAP_TRY(refuse_old_keys(config, file, err));
    memcpy(widths, tap_superpoint_widths, sizeof tap_superpoint_widths);
    if (tap_config_has(config, blocks)) {
        size_t n = tap_config_sizes(config, blocks, widths + TAP_WIDTH_BLOCK_0, N_BLOCKS);
        if (n != N_BLOCKS)
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "config.json beside %s: %s: must list %d sizes, has %zu; the cell of 8 "
                            "pixels needs four blocks",
                            file, blocks, N_BLOCKS, n);
        for (size_t i = 0; i < N_BLOCKS; i++)
            if (widths[TAP_WIDTH_BLOCK_0 + i] < 1 || widths[TAP_WIDTH_BLOCK_0 + i] > MAX_WIDTH)
                return tap_fail(err, TAP_ERR_FORMAT,
                                "config.json beside %s: %s: each must be in 1..%d", file, blocks,
                                MAX_WIDTH);
    }
    TAP_TRY(read_width(config, "decoder_hidden_size", &widths[TAP_WIDTH_HEAD], file, err));
    TAP_TRY(read_width(config, "keypoint_decoder_dim", &widths[TAP_WIDTH_CELL], file, err));
    TAP_TRY(read_width(config, "descriptor_decoder_dim", &widths[TAP_WIDTH_DESCRIPTOR], file, err));
    if (widths[TAP_WIDTH_CELL] != tap_superpoint_widths[TAP_WIDTH_CELL])
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "config.json beside %s: keypoint_decoder_dim: is %zu, must be 65, the 64 "
                        "pixels of a cell and one for none",
                        file, widths[TAP_WIDTH_CELL]);
    return TAP_OK;
}

/* ---- names --------------------------------------------------------------------------------- */

/* How a file names its tensors: prefix, layer, part. */
struct naming {
    char prefix[MAX_NAME / 2]; /* "", "module." */
    bool original;             /* Magic Leap's names */
};

static const char *const parts[] = {".weight", ".bias"};

static const char *layer_name(const tap_superpoint_layer *layer, bool original)
{
    return original ? layer->original : layer->name;
}

static void tensor_name(char name[MAX_NAME], const struct naming *naming, size_t layer, size_t part)
{
    snprintf(name, MAX_NAME, "%s%s%s", naming->prefix,
             layer_name(&tap_superpoint_layers[layer], naming->original), parts[part]);
}

/* "encoder.conv1a.weight", "keypoint_decoder.convSa.bias", "descriptor_decoder.convDa.weight". */
static bool is_old_name(const char *name)
{
    static const char encoder[] = "encoder.conv";
    const char *found = strstr(name, encoder);
    return (found != NULL && found[sizeof encoder - 1] >= '0' &&
            found[sizeof encoder - 1] <= '9') ||
           strstr(name, "keypoint_decoder.convS") != NULL ||
           strstr(name, "descriptor_decoder.convD") != NULL;
}

/* Whether the name is a tensor of ours, alone or after "something."; fills the naming. */
static bool read_naming(struct naming *naming, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < (size_t)N_LAYERS * 4; i++) {
        char tail[MAX_NAME];
        struct naming plain = {.original = i % 2 != 0};
        tensor_name(tail, &plain, i / 4, i / 2 % 2);
        size_t n = strlen(tail);
        if (n > length || strcmp(name + length - n, tail) != 0)
            continue;
        size_t before = length - n;
        if (before >= sizeof naming->prefix || (before > 0 && name[before - 1] != '.'))
            continue;
        *naming = plain;
        memcpy(naming->prefix, name, before);
        return true;
    }
    return false;
}

static tap_status find_naming(struct naming *naming, const tap_weights *weights, tap_error *err)
{
    const char *file = tap_weights_file(weights);
    size_t n = tap_weights_count(weights);
    for (size_t i = 0; i < n; i++) {
        const char *name = tap_weights_at(weights, i)->name;
        if (is_old_name(name))
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "%s: tensor '%s' is named as in a very old export, which is not "
                            "supported; export the model with a current transformers",
                            file, name);
    }
    for (size_t i = 0; i < n; i++)
        if (read_naming(naming, tap_weights_at(weights, i)->name))
            return TAP_OK;
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: not a SuperPoint: it has neither '%s.weight' nor '%s.weight'; its first "
                    "tensor is '%s'",
                    file, tap_superpoint_layers[0].name, tap_superpoint_layers[0].original,
                    n > 0 ? tap_weights_at(weights, 0)->name : "(none)");
}

/* ---- tensors ------------------------------------------------------------------------------- */

struct tensors {
    const tap_tensor *found[N_LAYERS][2]; /* weight, bias */
    size_t n_layers;
};

static bool is_found(const struct tensors *tensors, const tap_tensor *tensor)
{
    for (size_t layer = 0; layer < tensors->n_layers; layer++)
        if (tensors->found[layer][0] == tensor || tensors->found[layer][1] == tensor)
            return true;
    return false;
}

/* Every tensor there once, and no other. */
static tap_status find_tensors(struct tensors *tensors, const tap_weights *weights, tap_error *err)
{
    struct naming naming;
    char name[MAX_NAME];
    const char *file = tap_weights_file(weights);
    bool descriptors = false;
    TAP_TRY(find_naming(&naming, weights, err));
    for (size_t i = 0; i < (size_t)N_LAYERS * 2; i++) {
        tensor_name(name, &naming, i / 2, i % 2);
        tensors->found[i / 2][i % 2] = tap_weights_find(weights, name);
        if (i / 2 >= N_DETECTOR && tensors->found[i / 2][i % 2] != NULL)
            descriptors = true;
    }
    tensors->n_layers = descriptors ? N_LAYERS : N_DETECTOR;
    for (size_t i = 0; i < tensors->n_layers * 2; i++)
        if (tensors->found[i / 2][i % 2] == NULL) {
            tensor_name(name, &naming, i / 2, i % 2);
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: tensor '%s' is missing; the file is not a whole SuperPoint, fetch "
                            "or export it again",
                            file, name);
        }
    for (size_t i = 0; i < tap_weights_count(weights); i++)
        if (!is_found(tensors, tap_weights_at(weights, i)))
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: tensor '%s' is extra: SuperPoint has %zu tensors, this file %zu; "
                            "is it another kind of model?",
                            file, tap_weights_at(weights, i)->name, tensors->n_layers * 2,
                            tap_weights_count(weights));
    return TAP_OK;
}

/* "(64, 1, 3, 3)", with a word in place of 0. */
static void print_shape(char *text, size_t size, const size_t *shape, size_t rank, const char *zero)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (size_t i = 0; i < rank && used < size; i++) {
        const char *between = i == 0 ? "" : ", ";
        int n = shape[i] == 0 ? snprintf(text + used, size - used, "%s%s", between, zero)
                              : snprintf(text + used, size - used, "%s%zu", between, shape[i]);
        used += (size_t)n;
    }
    if (used < size)
        snprintf(text + used, size - used, ")");
}

/* A width of 0 is not known yet: the first tensor that has it decides. */
static tap_status check_shape(size_t *widths, const tap_tensor *tensor,
                              const tap_superpoint_layer *layer, bool bias, const char *why,
                              const char *file, tap_error *err)
{
    size_t wanted[4] = {widths[layer->out], widths[layer->in], layer->kernel, layer->kernel};
    size_t rank = bias ? 1 : 4;
    bool right = tensor->rank == rank;
    for (size_t i = 0; right && i < rank; i++)
        right = tensor->shape[i] > 0 && (wanted[i] == 0 || tensor->shape[i] == wanted[i]);
    if (!right) {
        char expected[64], found[TAP_TENSOR_MAX_RANK * 24];
        print_shape(expected, sizeof expected, wanted, rank, "any");
        print_shape(found, sizeof found, tensor->shape, tensor->rank, "0");
        return tap_fail(err, TAP_ERR_FORMAT, "%s: tensor '%s' has the shape %s, expected %s%s",
                        file, tensor->name, found, expected, why);
    }
    if (tensor->shape[0] > MAX_WIDTH)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: tensor '%s' has %zu channels, the limit is %d",
                        file, tensor->name, tensor->shape[0], MAX_WIDTH);
    widths[layer->out] = tensor->shape[0];
    return TAP_OK;
}

static size_t whole_lines(size_t n)
{
    return (n + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
}

/* The checked tensors into one block. MAX_WIDTH keeps the sizes from overflowing. */
static tap_status copy_tensors(tap_superpoint *model, const struct tensors *tensors,
                               const char *file, tap_error *err)
{
    size_t n_values = 0, used = 0;
    for (size_t i = 0; i < tensors->n_layers * 2; i++)
        n_values += whole_lines(tensors->found[i / 2][i % 2]->n_elements);
    model->values = tap_alloc(n_values, sizeof(float));
    if (model->values == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu weights", file, n_values);
    for (size_t i = 0; i < tensors->n_layers * 2; i++) {
        const tap_tensor *tensor = tensors->found[i / 2][i % 2];
        float *values = model->values + used;
        TAP_TRY(tap_tensor_to_f32(tensor, file, values, err));
        if (i % 2 == 0)
            model->weight[i / 2] = values;
        else
            model->bias[i / 2] = values;
        used += whole_lines(tensor->n_elements);
        model->n_parameters += tensor->n_elements;
    }
    return TAP_OK;
}

static tap_status read_model(tap_superpoint *model, const tap_weights *weights,
                             const tap_config *config, tap_error *err)
{
    struct tensors tensors;
    const char *file = tap_weights_file(weights), *why = "";
    model->widths[TAP_WIDTH_INPUT] = tap_superpoint_widths[TAP_WIDTH_INPUT];
    model->widths[TAP_WIDTH_CELL] = tap_superpoint_widths[TAP_WIDTH_CELL];
    if (config != NULL) {
        TAP_TRY(read_config(config, model->widths, file, err));
        why = " (by config.json)";
    }
    TAP_TRY(find_tensors(&tensors, weights, err));
    for (size_t i = 0; i < tensors.n_layers * 2; i++)
        TAP_TRY(check_shape(model->widths, tensors.found[i / 2][i % 2],
                            &tap_superpoint_layers[i / 2], i % 2 != 0, why, file, err));
    model->n_layers = tensors.n_layers;
    return copy_tensors(model, &tensors, file, err);
}

/* ---- the model ----------------------------------------------------------------------------- */

tap_status tap_superpoint_create(tap_superpoint **model, const tap_weights *weights,
                                 const tap_config *config, tap_error *err)
{
    *model = NULL;
    tap_superpoint *made = calloc(1, sizeof *made);
    if (made == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", tap_weights_file(weights));
    tap_status status = read_model(made, weights, config, err);
    if (status != TAP_OK) {
        tap_superpoint_free(made);
        return status;
    }
    *model = made;
    return TAP_OK;
}

void tap_superpoint_free(tap_superpoint *model)
{
    if (model == NULL)
        return;
    free(model->values);
    free(model);
}

size_t tap_superpoint_descriptor_dim(const tap_superpoint *model)
{
    return model->n_layers == N_LAYERS ? model->widths[TAP_WIDTH_DESCRIPTOR] : 0;
}

uint64_t tap_superpoint_parameters(const tap_superpoint *model)
{
    return model->n_parameters;
}

static tap_buffer add_conv(tap_plan *plan, const tap_superpoint *model, size_t layer, tap_buffer x,
                           bool relu, bool pool)
{
    const tap_superpoint_layer *table = &tap_superpoint_layers[layer];
    tap_conv conv = {.weight = model->weight[layer],
                     .bias = model->bias[layer],
                     .out = model->widths[table->out],
                     .kernel = table->kernel,
                     .relu = relu,
                     .pool = pool};
    return tap_plan_conv(plan, x, table->name, &conv);
}

tap_status tap_superpoint_plan(const tap_superpoint *model, size_t width, size_t height,
                               bool descriptors, tap_plan **plan, tap_error *err)
{
    enum { CELL = TAP_SUPERPOINT_CELL };
    *plan = NULL;
    if (width < CELL || width > MAX_SIDE || width % CELL != 0 || height < CELL ||
        height > MAX_SIDE || height % CELL != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "network input %zux%zu: both sides must be multiples of %d in %d..%d",
                        width, height, CELL, CELL, MAX_SIDE);
    if (descriptors && model->n_layers < N_LAYERS)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "descriptors: this model is a detector without a descriptor head; ask for "
                        "points only");
    tap_plan *made;
    TAP_TRY(tap_plan_create(&made, err));
    tap_buffer x = tap_plan_input(made, (tap_shape){height, width, 1});
    for (size_t block = 0; block < N_BLOCKS; block++) {
        x = add_conv(made, model, 2 * block, x, true, false);
        x = add_conv(made, model, 2 * block + 1, x, true, block + 1 < N_BLOCKS);
    }
    tap_buffer scores = add_conv(made, model, 8, x, true, false);
    scores = add_conv(made, model, 9, scores, false, false);
    tap_plan_output(made, tap_plan_cell_softmax(made, scores, "keypoint_decoder.softmax", CELL));
    if (descriptors) {
        tap_buffer map = add_conv(made, model, 10, x, true, false);
        map = add_conv(made, model, 11, map, false, false);
        tap_plan_output(made, tap_plan_l2_norm(made, map, "descriptor_decoder.normalize"));
    }
    tap_status status = tap_plan_finish(made, err);
    if (status != TAP_OK) {
        tap_plan_free(made);
        return status;
    }
    *plan = made;
    return TAP_OK;
}
