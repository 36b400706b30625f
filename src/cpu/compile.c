/* From a plan to a program: steps fused, weights packed, buffers laid into one block. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct compiler {
    const tap_plan *plan;
    const tap_program *share;
    tap_program *program;
    bool done[TAP_PLAN_MAX_OPS]; /* fused into an earlier step */
};

void tap_cpu_free_program(tap_program *program)
{
    if (program == NULL)
        return;
    for (size_t i = 0; i < program->n_packed; i++)
        tap_packed_release(program->packed[i]);
    free(program->packed);
    free(program->places);
    free(program->steps);
    free(program);
}

/* ---- places -------------------------------------------------------------------------------- */

static int find_port(const tap_buffer *ports, size_t n, tap_buffer buffer)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == buffer)
            return (int)i;
    return -1;
}

/* Whether a step writes this buffer where the caller wants it; any other output is exported. */
static bool writes_dense(tap_op_kind kind)
{
    return kind == TAP_OP_CELL_SOFTMAX || kind == TAP_OP_L2_NORM || kind == TAP_OP_SIMILARITY;
}

static const tap_op *producer_of(const tap_plan *plan, tap_buffer buffer)
{
    for (size_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].output == buffer)
            return &plan->ops[i];
    return NULL;
}

static size_t count_readers(const tap_plan *plan, tap_buffer buffer)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_ops; i++)
        n += (plan->ops[i].input == buffer) + (plan->ops[i].second == buffer);
    return n;
}

/* A picture: one channel, dense in a row, as an input or a softmax makes it. */
static bool is_plane(const tap_plan *plan, tap_buffer buffer)
{
    const tap_op *producer = producer_of(plan, buffer);
    return plan->shapes[buffer].channels == 1 &&
           (producer == NULL || producer->kind == TAP_OP_CELL_SOFTMAX);
}

static void fill_place(struct place *place, tap_shape shape, bool plane)
{
    *place = (struct place){.height = shape.height,
                            .width = shape.width,
                            .channels = shape.channels,
                            .padded = plane ? 1 : padded_channels(shape.channels),
                            .rows = tiles_of(shape.height) * TAP_TILE_OUT + 2,
                            .columns = tiles_of(shape.width) * TAP_TILE_OUT + 2,
                            .port = -1};
}

/* ---- weights ------------------------------------------------------------------------------- */

static struct packed *find_shared(const tap_program *share, const char *name)
{
    for (size_t i = 0; share != NULL && i < share->n_packed; i++)
        if (strcmp(share->packed[i]->name, name) == 0)
            return tap_packed_retain(share->packed[i]);
    return NULL;
}

static bool is_one_channel(const tap_plan *plan, const tap_op *op)
{
    return op->kind == TAP_OP_CONV && op->kernel == 3 && is_plane(plan, op->input);
}

static bool is_winograd(const tap_plan *plan, const tap_op *op)
{
    return op->kind == TAP_OP_CONV && op->kernel == 3 && !is_plane(plan, op->input);
}

static tap_status get_packed(struct packed **out, struct compiler *compiler, const tap_op *op,
                             tap_error *err)
{
    const tap_plan *plan = compiler->plan;
    tap_program *program = compiler->program;
    size_t in = plan->shapes[op->input].channels, n_out = plan->shapes[op->output].channels;
    *out = find_shared(compiler->share, op->name);
    if (*out == NULL && is_one_channel(plan, op))
        TAP_TRY(tap_pack_one(out, op, n_out, err));
    else if (*out == NULL && is_winograd(plan, op))
        TAP_TRY(tap_pack_winograd(out, program->pool, op, in, n_out, err));
    else if (*out == NULL)
        TAP_TRY(tap_pack_pointwise(out, op, in, n_out, err));
    program->packed[program->n_packed++] = *out;
    program->packed_bytes += (*out)->size_bytes;
    return TAP_OK;
}

/* ---- steps --------------------------------------------------------------------------------- */

static struct step *add_step(struct compiler *compiler, enum step_kind kind, tap_buffer input,
                             tap_buffer output, const char *name)
{
    tap_program *program = compiler->program;
    struct step *step = &program->steps[program->n_steps++];
    *step = (struct step){
        .kind = kind, .input = (size_t)input, .n_outputs = 1, .outputs = {(size_t)output}};
    snprintf(step->name, sizeof step->name, "%s", name);
    return step;
}

static void append_name(struct step *step, const char *format, const char *text)
{
    size_t used = strlen(step->name);
    snprintf(step->name + used, sizeof step->name - used, format, text);
}

/* The Winograd convolutions not yet done that read the same buffer join the step. */
static tap_status join_siblings(struct compiler *compiler, struct step *step, size_t i_op,
                                tap_error *err)
{
    const tap_plan *plan = compiler->plan;
    for (size_t i = i_op + 1; i < plan->n_ops && step->n_outputs < MAX_OUTPUTS_PER_STEP; i++) {
        const tap_op *other = &plan->ops[i];
        if (compiler->done[i] || other->input != plan->ops[i_op].input || !is_winograd(plan, other))
            continue;
        size_t n = step->n_outputs++;
        TAP_TRY(get_packed(&step->packed[n], compiler, other, err));
        step->outputs[n] = (size_t)other->output;
        step->relu[n] = other->relu;
        step->pool[n] = other->pool;
        compiler->done[i] = true;
        append_name(step, " + %s", other->name);
    }
    return TAP_OK;
}

/* A one-channel convolution whose only reader is the Winograd step at hand is computed there, strip
 * by strip: at 480x640 its result would be 79 MB. */
static tap_status fuse_first(struct compiler *compiler, struct step *step, tap_error *err)
{
    const tap_plan *plan = compiler->plan;
    const tap_op *first = producer_of(plan, (tap_buffer)step->input);
    if (first == NULL || compiler->done[first - plan->ops] || !is_one_channel(plan, first))
        return TAP_OK;
    TAP_TRY(get_packed(&step->first, compiler, first, err));
    step->first_relu = first->relu;
    step->input = (size_t)first->input;
    compiler->done[first - plan->ops] = true;
    append_name(step, ", fused with %s before it", first->name);
    return TAP_OK;
}

/* Whether this operation waits for its one reader, a Winograd step that will compute it. */
static bool waits_for_reader(const struct compiler *compiler, const tap_op *op)
{
    const tap_plan *plan = compiler->plan;
    if (!is_one_channel(plan, op) || op->pool || count_readers(plan, op->output) != 1 ||
        find_port(plan->outputs, plan->n_outputs, op->output) >= 0)
        return false;
    for (size_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].input == op->output)
            return is_winograd(plan, &plan->ops[i]);
    return false;
}

static tap_status add_conv(struct compiler *compiler, size_t i_op, tap_error *err)
{
    const tap_plan *plan = compiler->plan;
    const tap_op *op = &plan->ops[i_op];
    bool winograd = is_winograd(plan, op), one = is_one_channel(plan, op);
    struct step *step = add_step(compiler,
                                 one        ? STEP_CONV_ONE
                                 : winograd ? STEP_WINOGRAD
                                            : STEP_POINTWISE,
                                 op->input, op->output, op->name);
    if (op->pool && !winograd) {
        /* Into a buffer of its own, then pooled. */
        tap_program *program = compiler->program;
        tap_shape full = plan->shapes[op->input];
        full.channels = plan->shapes[op->output].channels;
        size_t extra = program->n_places++;
        fill_place(&program->places[extra], full, false);
        step->outputs[0] = extra;
        add_step(compiler, STEP_POOL, (tap_buffer)extra, op->output, op->name);
        append_name(&program->steps[program->n_steps - 1], ": %s", "2x2 maximum");
    }
    TAP_TRY(get_packed(&step->packed[0], compiler, op, err));
    step->relu[0] = op->relu;
    step->pool[0] = op->pool && winograd;
    if (winograd) {
        TAP_TRY(join_siblings(compiler, step, i_op, err));
        TAP_TRY(fuse_first(compiler, step, err));
        size_t in = padded_channels(plan->shapes[op->input].channels);
        step->tiles = in <= 64 ? 48 : in <= 256 ? 24 : 12;
    }
    append_name(step, ": %s", one ? "direct 3x3" : winograd ? "Winograd 4x4" : "1x1");
    return TAP_OK;
}

/* The second matrix is packed like weights, at every run: it is data. */
static void add_similarity(struct compiler *compiler, const tap_op *op)
{
    tap_program *program = compiler->program;
    tap_shape rows = compiler->plan->shapes[op->second];
    size_t panels = program->n_places++;
    program->places[panels] = (struct place){.height = padded_channels(rows.width) / TAP_PANEL,
                                             .width = rows.channels,
                                             .channels = TAP_PANEL,
                                             .padded = TAP_PANEL,
                                             .rows = padded_channels(rows.width) / TAP_PANEL,
                                             .columns = rows.channels,
                                             .port = -1};
    append_name(add_step(compiler, STEP_PACK_ROWS, op->second, (tap_buffer)panels, op->name), "%s",
                ": packed");
    struct step *step = add_step(compiler, STEP_SIMILARITY, op->input, op->output, op->name);
    step->second = panels;
    append_name(step, ": %s", "matrix product");
}

static tap_status add_op(struct compiler *compiler, size_t i_op, tap_error *err)
{
    const tap_op *op = &compiler->plan->ops[i_op];
    struct step *step;
    switch (op->kind) {
    case TAP_OP_CONV:
        return add_conv(compiler, i_op, err);
    case TAP_OP_CELL_SOFTMAX:
        step = add_step(compiler, STEP_SOFTMAX, op->input, op->output, op->name);
        step->cell = op->cell;
        append_name(step, ": %s", "softmax, unfolded");
        return TAP_OK;
    case TAP_OP_L2_NORM:
        step = add_step(compiler, STEP_NORM, op->input, op->output, op->name);
        append_name(step, ": %s", "unit length");
        return TAP_OK;
    case TAP_OP_SIMILARITY:
        add_similarity(compiler, op);
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: the CPU backend has no operation %d", op->name,
                    (int)op->kind);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* First and last step that touches a place. */
static void find_life(const tap_program *program, size_t place, size_t *first, size_t *last)
{
    *first = program->n_steps;
    *last = 0;
    for (size_t i = 0; i < program->n_steps; i++) {
        const struct step *step = &program->steps[i];
        bool touches =
            step->input == place || (step->kind == STEP_SIMILARITY && step->second == place);
        for (size_t j = 0; j < step->n_outputs; j++)
            touches = touches || step->outputs[j] == place;
        if (!touches)
            continue;
        if (*first > i)
            *first = i;
        *last = i;
    }
}

static bool place_bytes(const struct place *place, size_t *bytes)
{
    return tap_size_mul(place->rows, place->columns, bytes) &&
           tap_size_mul(*bytes, place->padded, bytes) &&
           tap_size_mul(*bytes, sizeof(float), bytes) && tap_size_align(*bytes, TAP_ALIGN, bytes);
}

/* Lowest offset where the place overlaps no other that lives at the same time: first fit, in order
 * of the places. Places are few. */
static tap_status lay_out(tap_program *program, tap_error *err)
{
    size_t *first = calloc(program->n_places, 3 * sizeof *first);
    if (first == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory to lay out buffers");
    size_t *last = first + program->n_places, *size = last + program->n_places;
    for (size_t i = 0; i < program->n_places; i++) {
        struct place *place = &program->places[i];
        find_life(program, i, &first[i], &last[i]);
        if (place->port >= 0 || first[i] == program->n_steps)
            continue; /* the caller's, or fused away */
        if (!place_bytes(place, &size[i])) {
            free(first);
            return tap_fail(err, TAP_ERR_LIMIT, "a buffer of %zux%zux%zu is too large",
                            place->height, place->width, place->channels);
        }
        for (size_t j = 0; j < i; j++) {
            const struct place *other = &program->places[j];
            bool apart = size[j] == 0 || last[j] < first[i] || last[i] < first[j] ||
                         other->offset_bytes + size[j] <= place->offset_bytes ||
                         place->offset_bytes + size[i] <= other->offset_bytes;
            if (!apart) {
                place->offset_bytes = other->offset_bytes + size[j];
                j = (size_t)-1; /* look again from the beginning at the new offset */
            }
        }
        if (program->buffer_bytes < place->offset_bytes + size[i])
            program->buffer_bytes = place->offset_bytes + size[i];
    }
    free(first);
    return TAP_OK;
}

/* Each worker's own memory for the largest step. */
static tap_status size_workers(tap_program *program, tap_error *err)
{
    size_t floats = 0;
    for (size_t i = 0; i < program->n_steps; i++) {
        const struct step *step = &program->steps[i];
        size_t need = 0;
        if (step->kind == STEP_WINOGRAD) {
            size_t in = step->first != NULL ? padded_channels(step->first->out_channels)
                                            : program->places[step->input].padded;
            need = TAP_PLANES *
                   (plane_stride(step->tiles * in) + plane_stride(step->tiles * CHANNELS_PER_PASS));
            if (step->first != NULL)
                need += TAP_TILE_IN * strip_columns(STRIP_TILES) * in;
        } else if (step->kind == STEP_SOFTMAX) {
            need = program->places[step->input].padded + TAP_PANEL;
        } else if (step->kind == STEP_SIMILARITY) {
            need = SIMILARITY_ROWS * TAP_PANEL;
        }
        floats = need > floats ? need : floats;
    }
    size_t total;
    if (!tap_size_align(floats * sizeof(float), TAP_ALIGN, &program->worker_bytes) ||
        !tap_size_mul(program->worker_bytes, tap_pool_threads(program->pool), &total) ||
        !tap_size_add(program->buffer_bytes, total, &program->scratch_bytes))
        return tap_fail(err, TAP_ERR_LIMIT, "the network's memory is too large");
    return TAP_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Inputs: a one-channel picture and any other buffer that convolutions read are imported into
 * padded memory; matrices for the matcher are read where they lie. */
static void add_imports(struct compiler *compiler)
{
    const tap_plan *plan = compiler->plan;
    tap_program *program = compiler->program;
    for (size_t i = 0; i < plan->n_inputs; i++) {
        tap_buffer buffer = plan->inputs[i];
        size_t dense = program->n_places++;
        program->places[dense] = program->places[buffer];
        program->places[dense].port = (int)i;
        bool matrix = true;
        for (size_t j = 0; j < plan->n_ops; j++)
            if (plan->ops[j].input == buffer && plan->ops[j].kind != TAP_OP_SIMILARITY)
                matrix = false;
        if (matrix)
            program->places[buffer].port = (int)i;
        else
            append_name(add_step(compiler, STEP_IMPORT, (tap_buffer)dense, buffer, "input"), "%s",
                        ": copied between zeros");
    }
}

static void add_exports(struct compiler *compiler)
{
    const tap_plan *plan = compiler->plan;
    tap_program *program = compiler->program;
    for (size_t i = 0; i < plan->n_outputs; i++) {
        tap_buffer buffer = plan->outputs[i];
        const tap_op *op = producer_of(plan, buffer);
        bool first_time = find_port(plan->outputs, i, buffer) < 0;
        if (op != NULL && writes_dense(op->kind) && count_readers(plan, buffer) == 0 &&
            first_time) {
            program->places[buffer].port = (int)i;
            continue;
        }
        size_t dense = program->n_places++;
        program->places[dense] = program->places[buffer];
        program->places[dense].port = (int)i;
        append_name(add_step(compiler, STEP_EXPORT, buffer, (tap_buffer)dense, "output"), "%s",
                    ": copied out");
    }
}

static tap_status build(struct compiler *compiler, tap_error *err)
{
    const tap_plan *plan = compiler->plan;
    tap_program *program = compiler->program;
    for (size_t i = 0; i < plan->n_buffers; i++)
        fill_place(&program->places[i], plan->shapes[i], is_plane(plan, (tap_buffer)i));
    program->n_places = plan->n_buffers;
    add_imports(compiler);
    for (size_t i = 0; i < plan->n_ops; i++) {
        if (compiler->done[i] || waits_for_reader(compiler, &plan->ops[i]))
            continue;
        TAP_TRY(add_op(compiler, i, err));
    }
    add_exports(compiler);
    TAP_TRY(lay_out(program, err));
    return size_workers(program, err);
}

tap_status tap_cpu_compile(tap_backend_state *state, const tap_plan *plan, const tap_program *share,
                           tap_program **out, tap_error *err)
{
    *out = NULL;
    tap_program *program = calloc(1, sizeof *program);
    struct compiler compiler = {.plan = plan, .share = share, .program = program};
    if (program == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a program");
    program->kernels = state->kernels;
    program->pool = state->pool;
    /* Each operation makes at most two steps, a place and a pack; each port a step and a place. */
    size_t n_ports = plan->n_inputs + plan->n_outputs;
    program->steps = calloc(2 * plan->n_ops + n_ports, sizeof *program->steps);
    program->places = calloc(plan->n_buffers + plan->n_ops + n_ports, sizeof *program->places);
    program->packed = calloc(plan->n_ops + 1, sizeof(struct packed *));
    tap_status status = TAP_OK;
    if (program->steps == NULL || program->places == NULL || program->packed == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a program");
    if (status == TAP_OK)
        status = build(&compiler, err);
    if (status != TAP_OK) {
        tap_cpu_free_program(program);
        return status;
    }
    *out = program;
    return TAP_OK;
}
