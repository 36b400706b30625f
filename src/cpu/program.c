/* Compiling and running: operations become steps, buffers get places, a run replays the steps. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same address in every page makes loads wait for stores to "the same" address; workers' and
 * buffers' memory is staggered by this. */
enum { STAGGER = 5 * TAP_ALIGN };

/* A buffer given to the caller that no step writes there: an input, or the same buffer twice. */
struct copy {
    tap_place from;
    size_t output, n_bytes;
};

struct tap_program {
    const tap_backend_state *state;
    size_t n_steps, n_copies;
    tap_step *steps;
    struct copy copies[TAP_PLAN_MAX_PORTS];
    size_t shared_offset, workers_offset, worker_stride, scratch_bytes, packed_bytes;
};

/* ---- operations to steps ------------------------------------------------------------------- */

static bool is_few_channel_conv(const tap_plan *plan, const tap_op *op)
{
    return op->kind == TAP_OP_CONV &&
           tap_packed_form(op->kernel, plan->shapes[op->input].channels) == TAP_FORM_DIRECT;
}

/* The only operation that reads the buffer; NULL if there are more or none, or if it is output. */
static const tap_op *only_reader(const tap_plan *plan, tap_buffer buffer)
{
    const tap_op *reader = NULL;
    if (tap_plan_last_use(plan, buffer) == plan->n_ops)
        return NULL;
    for (size_t i = 0; i < plan->n_ops; i++) {
        const tap_op *op = &plan->ops[i];
        if (op->input != buffer && op->second != buffer)
            continue;
        if (reader != NULL)
            return NULL;
        reader = op;
    }
    return reader;
}

/* Whether a first layer can be computed into the strips of the layer after it. */
static bool fuses_with_reader(const tap_plan *plan, const tap_op *op)
{
    if (!is_few_channel_conv(plan, op) || op->pool)
        return false;
    const tap_op *reader = only_reader(plan, op->output);
    return reader != NULL && reader->kind == TAP_OP_CONV && reader->kernel == 3 &&
           !is_few_channel_conv(plan, reader);
}

/* The fused first layer whose output the operation reads, or NULL. */
static const tap_op *find_front(const tap_plan *plan, const tap_op *op)
{
    for (size_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].output == op->input && fuses_with_reader(plan, &plan->ops[i]))
            return &plan->ops[i];
    return NULL;
}

/* What a compilation carries along. */
struct compiling {
    const tap_plan *plan;
    const tap_compile_options *options;
    const tap_product *product, *exact; /* of linear operations */
    tap_packing *packings;
    size_t n_packings, n_threads;
};

/* Whether the packed weights are those of this operation, of such sizes; a table that is long
 * enough is a shorter one too. */
static bool is_same(const tap_packed *found, const tap_packed *wanted)
{
    return found != NULL && found->form == wanted->form && found->in == wanted->in &&
           found->out == wanted->out && found->product == wanted->product &&
           found->n_biases >= wanted->n_biases && strcmp(found->name, wanted->name) == 0;
}

/* Retains what share has packed, or makes an empty one and notes it to be filled. */
static tap_status get_packed(tap_packed **packed, struct compiling *compiling, const tap_op *op,
                             tap_error *err)
{
    const tap_plan *plan = compiling->plan;
    const tap_program *share = compiling->options->share;
    bool linear = op->kind == TAP_OP_LINEAR || op->kind == TAP_OP_PATCH_EMBED;
    tap_shape out = plan->shapes[op->output];
    size_t in = op->kind == TAP_OP_CONSTANT ? out.channels
                : op->kind == TAP_OP_PATCH_EMBED
                    ? op->kernel * op->kernel * plan->shapes[op->input].channels
                    : plan->shapes[op->input].channels;
    TAP_TRY(tap_packed_create(packed, op, in, out.channels,
                              op->kind == TAP_OP_PATCH_EMBED ? out.width : 1,
                              !linear     ? NULL
                              : op->exact ? compiling->exact
                                          : compiling->product,
                              err));
    for (size_t i = 0; share != NULL && i < 2 * share->n_steps; i++) {
        tap_packed *found = i % 2 ? share->steps[i / 2].front : share->steps[i / 2].weights;
        if (is_same(found, *packed)) {
            tap_packed_release(*packed);
            *packed = tap_packed_retain(found);
            return TAP_OK;
        }
    }
    compiling->packings[compiling->n_packings++] = (tap_packing){*packed, op};
    return TAP_OK;
}

static void name_step(tap_step *step, const tap_op *op, const tap_op *front)
{
    static const char *const kinds[] = {
        [TAP_STEP_WINOGRAD] = "conv3x3, winograd 4x4",
        [TAP_STEP_DIRECT] = "conv3x3, direct",
        [TAP_STEP_MATRIX] = "conv1x1, matrix product",
        [TAP_STEP_CELL_SOFTMAX] = "cell softmax",
        [TAP_STEP_L2_NORM] = "l2 norm",
        [TAP_STEP_SIMILARITY] = "similarity, matrix product",
        [TAP_STEP_LINEAR] = "linear",
        [TAP_STEP_PATCH_EMBED] = "patches, linear",
        [TAP_STEP_ATTENTION] = "attention, a head at a time",
        [TAP_STEP_LAYER_NORM] = "layer norm",
        [TAP_STEP_CONSTANT] = "constant",
    };
    /* Names that share a stem are written once: "block.0.conv_a + .conv_b". */
    const char *tail = op->name;
    if (front != NULL) {
        const char *dot = strrchr(op->name, '.');
        if (dot != NULL && strncmp(front->name, op->name, (size_t)(dot - op->name) + 1) == 0)
            tail = dot;
    }
    const tap_product *product = step->weights == NULL ? NULL : step->weights->product;
    snprintf(step->name, sizeof step->name, "%s%s%s: %s%s%s%s%s%s%s%s",
             front == NULL ? "" : front->name, front == NULL ? "" : " + ", tail,
             front == NULL ? "" : "conv3x3, direct; ", kinds[step->kind],
             product == NULL ? "" : ", ", product == NULL ? "" : product->name,
             step->relu ? ", relu" : "", step->gelu ? ", gelu" : "", step->pool ? ", pool" : "",
             step->kind == TAP_STEP_LINEAR && step->second >= 0 ? ", residual" : "");
}

static bool plan_step(tap_step *step, size_t n_threads)
{
    switch (step->kind) {
    case TAP_STEP_WINOGRAD:
        return tap_winograd_plan(step, n_threads);
    case TAP_STEP_DIRECT:
        return tap_direct_plan(step);
    case TAP_STEP_MATRIX:
        return tap_matrix_plan(step);
    case TAP_STEP_CELL_SOFTMAX:
        step->worker_bytes = step->in.channels * sizeof(float);
        return true;
    case TAP_STEP_SIMILARITY:
        return tap_similarity_plan(step);
    case TAP_STEP_LINEAR:
        return tap_linear_plan(step, n_threads);
    case TAP_STEP_PATCH_EMBED:
        return tap_patch_embed_plan(step, n_threads);
    case TAP_STEP_ATTENTION:
        return tap_attention_plan(step);
    case TAP_STEP_L2_NORM:
    case TAP_STEP_LAYER_NORM:
    case TAP_STEP_CONSTANT:
        break;
    }
    return true;
}

static tap_status make_conv(tap_step *step, struct compiling *compiling, const tap_op *op,
                            const tap_op **front, tap_error *err)
{
    TAP_TRY(get_packed(&step->weights, compiling, op, err));
    step->kind = step->weights->form == TAP_FORM_WINOGRAD ? TAP_STEP_WINOGRAD
                 : step->weights->form == TAP_FORM_DIRECT ? TAP_STEP_DIRECT
                                                          : TAP_STEP_MATRIX;
    *front = find_front(compiling->plan, op);
    if (*front == NULL)
        return TAP_OK;
    TAP_TRY(get_packed(&step->front, compiling, *front, err));
    step->x = (*front)->input;
    step->in = compiling->plan->shapes[step->x];
    step->front_relu = (*front)->relu;
    return TAP_OK;
}

static tap_status make_step(tap_step *step, struct compiling *compiling, const tap_op *op,
                            tap_error *err)
{
    static const tap_step_kind kinds[] = {
        [TAP_OP_CELL_SOFTMAX] = TAP_STEP_CELL_SOFTMAX, [TAP_OP_L2_NORM] = TAP_STEP_L2_NORM,
        [TAP_OP_SIMILARITY] = TAP_STEP_SIMILARITY,     [TAP_OP_PATCH_EMBED] = TAP_STEP_PATCH_EMBED,
        [TAP_OP_LAYER_NORM] = TAP_STEP_LAYER_NORM,     [TAP_OP_LINEAR] = TAP_STEP_LINEAR,
        [TAP_OP_ATTENTION] = TAP_STEP_ATTENTION,       [TAP_OP_CONSTANT] = TAP_STEP_CONSTANT};
    static const tap_shape none = {0, 0, 0};
    const tap_plan *plan = compiling->plan;
    const tap_op *front = NULL;
    *step = (tap_step){.x = op->input,
                       .second = op->second,
                       .y = op->output,
                       .in = op->input < 0 ? none : plan->shapes[op->input],
                       .out = plan->shapes[op->output],
                       .second_shape = op->second < 0 ? none : plan->shapes[op->second],
                       .relu = op->relu,
                       .pool = op->pool,
                       .gelu = op->gelu,
                       .cell = op->cell,
                       .n_second = op->second < 0 ? 0 : plan->shapes[op->second].width,
                       .n_heads = op->n_heads,
                       .second_channel = op->second_channel,
                       .epsilon = op->epsilon,
                       .kernel = op->kernel,
                       .stride = op->stride,
                       .padding = op->padding,
                       .picture_height = op->picture_height};
    if (op->kind == TAP_OP_CONV)
        TAP_TRY(make_conv(step, compiling, op, &front, err));
    else
        step->kind = kinds[op->kind];
    if (op->kind == TAP_OP_LINEAR || op->kind == TAP_OP_PATCH_EMBED ||
        op->kind == TAP_OP_LAYER_NORM || op->kind == TAP_OP_CONSTANT)
        TAP_TRY(get_packed(&step->weights, compiling, op, err));
    name_step(step, op, front);
    if (!plan_step(step, compiling->n_threads))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: too large", op->name);
    return TAP_OK;
}

static tap_status make_steps(tap_program *program, const tap_plan *plan,
                             const tap_compile_options *options, tap_error *err)
{
    tap_pool *pool = program->state->pool;
    const char *precision = options->precision == NULL ? "f32" : options->precision;
    const char *exact = strcmp(precision, "int8") == 0 ? "f16" : precision;
    struct compiling compiling = {.plan = plan,
                                  .options = options,
                                  .product = tap_product_find(program->state->table, precision),
                                  .exact = tap_product_find(program->state->table, exact),
                                  .packings = calloc(plan->n_ops + 1, sizeof(tap_packing)),
                                  .n_threads = tap_pool_threads(pool)};
    program->steps = calloc(plan->n_ops + 1, sizeof *program->steps);
    tap_status status = TAP_OK;
    if (compiling.packings == NULL || program->steps == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu steps", plan->n_ops);
    else if (compiling.product == NULL || compiling.exact == NULL)
        status = tap_fail(err, TAP_ERR_UNSUPPORTED,
                          "precision '%s': not one that this CPU backend has", precision);
    for (size_t i = 0; status == TAP_OK && i < plan->n_ops; i++)
        if (!fuses_with_reader(plan, &plan->ops[i]))
            status = make_step(&program->steps[program->n_steps++], &compiling, &plan->ops[i], err);
    if (status == TAP_OK)
        status = tap_packed_fill(compiling.packings, compiling.n_packings, options, pool, err);
    free(compiling.packings);
    return status;
}

/* ---- places -------------------------------------------------------------------------------- */

/* A buffer in the scratch, and the steps during which it must stay. */
struct room {
    tap_buffer buffer;
    size_t born, last, offset, size;
};

static bool overlap_in_time(const struct room *a, const struct room *b)
{
    return a->born <= b->last && b->born <= a->last;
}

/* The lowest offset at which no room of the same time lies. */
static bool place_room(struct room *rooms, size_t n)
{
    struct room *room = &rooms[n];
    room->offset = 0;
    for (size_t i = 0; i < n;) {
        const struct room *other = &rooms[i++];
        if (!overlap_in_time(room, other) || other->offset >= room->offset + room->size ||
            room->offset >= other->offset + other->size)
            continue;
        room->offset = other->offset + other->size;
        i = 0;
    }
    size_t end;
    return tap_size_add(room->offset, room->size, &end) && end <= PTRDIFF_MAX;
}

/* The largest first: the small ones then fill the gaps. */
static int by_size(const void *left, const void *right)
{
    const struct room *a = left, *b = right;
    if (a->size != b->size)
        return a->size < b->size ? 1 : -1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static bool find_place(const tap_plan *plan, tap_buffer buffer, tap_place *place)
{
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (plan->inputs[i] == buffer) {
            *place = (tap_place){TAP_PLACE_INPUT, i};
            return true;
        }
    for (size_t i = 0; i < plan->n_outputs; i++)
        if (plan->outputs[i] == buffer) {
            *place = (tap_place){TAP_PLACE_OUTPUT, i};
            return true;
        }
    return false;
}

/* Rooms for what the steps write and no caller owns. Every operation writes a buffer of its own, so
 * a buffer is born at one step. */
static bool collect_rooms(const tap_program *program, const tap_plan *plan, struct room *rooms,
                          size_t *n_rooms)
{
    *n_rooms = 0;
    for (size_t i = 0; i < program->n_steps; i++) {
        tap_buffer buffer = program->steps[i].y;
        tap_place place;
        if (find_place(plan, buffer, &place))
            continue;
        struct room room = {.buffer = buffer, .born = i, .last = i};
        for (size_t j = i + 1; j < program->n_steps; j++)
            if (program->steps[j].x == buffer || program->steps[j].second == buffer)
                room.last = j;
        if (!tap_size_mul(tap_plan_elements(plan, buffer), sizeof(float), &room.size) ||
            !tap_size_align(room.size, TAP_ALIGN, &room.size) ||
            !tap_size_add(room.size, STAGGER, &room.size))
            return false;
        rooms[(*n_rooms)++] = room;
    }
    return true;
}

static tap_place lookup(const tap_plan *plan, const struct room *rooms, size_t n, tap_buffer buffer)
{
    tap_place place = {TAP_PLACE_SCRATCH, 0};
    if (find_place(plan, buffer, &place))
        return place;
    for (size_t i = 0; i < n; i++)
        if (rooms[i].buffer == buffer)
            place.index = rooms[i].offset;
    return place;
}

static void note_copies(tap_program *program, const tap_plan *plan)
{
    for (size_t i = 0; i < plan->n_outputs; i++) {
        tap_place place;
        find_place(plan, plan->outputs[i], &place);
        if (place.kind == TAP_PLACE_OUTPUT && place.index == i)
            continue;
        program->copies[program->n_copies++] =
            (struct copy){place, i, tap_plan_elements(plan, plan->outputs[i]) * sizeof(float)};
    }
}

/* The scratch: buffers, then the largest step's shared memory, then the workers'. */
static bool lay_out(tap_program *program, const tap_plan *plan, struct room *rooms)
{
    size_t n_rooms, end = 0, shared = 0, worker = 0, total;
    size_t n_threads = tap_pool_threads(program->state->pool);
    if (!collect_rooms(program, plan, rooms, &n_rooms))
        return false;
    qsort(rooms, n_rooms, sizeof *rooms, by_size);
    for (size_t i = 0; i < n_rooms; i++) {
        if (!place_room(rooms, i))
            return false;
        if (rooms[i].offset + rooms[i].size > end)
            end = rooms[i].offset + rooms[i].size;
    }
    for (size_t i = 0; i < program->n_steps; i++) {
        tap_step *step = &program->steps[i];
        if (step->x >= 0)
            step->x_place = lookup(plan, rooms, n_rooms, step->x);
        step->y_place = lookup(plan, rooms, n_rooms, step->y);
        if (step->second >= 0)
            step->second_place = lookup(plan, rooms, n_rooms, step->second);
        shared = step->shared_bytes > shared ? step->shared_bytes : shared;
        worker = step->worker_bytes > worker ? step->worker_bytes : worker;
    }
    program->shared_offset = end;
    if (!tap_size_add(end, shared, &end) || !tap_size_align(end, TAP_ALIGN, &end) ||
        !tap_size_align(worker, 4096, &worker) || !tap_size_add(worker, STAGGER, &worker))
        return false;
    program->workers_offset = end;
    program->worker_stride = worker;
    note_copies(program, plan);
    return tap_size_mul(worker, n_threads, &total) &&
           tap_size_add(end, total, &program->scratch_bytes) &&
           program->scratch_bytes <= PTRDIFF_MAX;
}

/* ---- the verbs ----------------------------------------------------------------------------- */

static tap_status build(tap_program *program, const tap_plan *plan,
                        const tap_compile_options *options, tap_error *err)
{
    TAP_TRY(tap_plan_finish(plan, err));
    TAP_TRY(make_steps(program, plan, options, err));
    struct room *rooms = calloc(program->n_steps + 1, sizeof *rooms);
    if (rooms == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the plan's buffers");
    bool fits = lay_out(program, plan, rooms);
    free(rooms);
    if (!fits)
        return tap_fail(err, TAP_ERR_LIMIT,
                        "the network at this size needs more memory than a "
                        "process can address; give a smaller size");
    for (size_t i = 0; i < program->n_steps; i++) {
        const tap_step *step = &program->steps[i];
        program->packed_bytes += (step->weights == NULL ? 0 : step->weights->n_bytes) +
                                 (step->front == NULL ? 0 : step->front->n_bytes);
    }
    return TAP_OK;
}

tap_status tap_program_compile(tap_backend_state *state, const tap_plan *plan,
                               const tap_compile_options *options, tap_program **out,
                               tap_error *err)
{
    static const tap_compile_options defaults = {.share = NULL};
    *out = NULL;
    tap_program *program = calloc(1, sizeof *program);
    if (program == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a program");
    program->state = state;
    tap_status status = build(program, plan, options == NULL ? &defaults : options, err);
    if (status != TAP_OK) {
        tap_program_free(program);
        return status;
    }
    *out = program;
    return TAP_OK;
}

static void run_step(const tap_step_run *run, tap_pool *pool)
{
    switch (run->step->kind) {
    case TAP_STEP_WINOGRAD:
        tap_winograd_run(run, pool);
        break;
    case TAP_STEP_DIRECT:
        tap_direct_run(run, pool);
        break;
    case TAP_STEP_MATRIX:
        tap_matrix_run(run, pool);
        break;
    case TAP_STEP_CELL_SOFTMAX:
        tap_cell_softmax_run(run, pool);
        break;
    case TAP_STEP_L2_NORM:
        tap_l2_norm_run(run, pool);
        break;
    case TAP_STEP_SIMILARITY:
        tap_similarity_run(run, pool);
        break;
    case TAP_STEP_LINEAR:
        tap_linear_run(run, pool);
        break;
    case TAP_STEP_PATCH_EMBED:
        tap_patch_embed_run(run, pool);
        break;
    case TAP_STEP_ATTENTION:
        tap_attention_run(run, pool);
        break;
    case TAP_STEP_LAYER_NORM:
        tap_layer_norm_run(run, pool);
        break;
    case TAP_STEP_CONSTANT:
        tap_constant_run(run);
        break;
    }
}

static const float *read_from(tap_place place, uint8_t *scratch, const float *const *inputs,
                              float *const *outputs)
{
    switch (place.kind) {
    case TAP_PLACE_INPUT:
        return inputs[place.index];
    case TAP_PLACE_OUTPUT:
        return outputs[place.index];
    case TAP_PLACE_SCRATCH:
        break;
    }
    return (const float *)(void *)(scratch + place.index);
}

tap_status tap_program_run(const tap_program *program, void *memory, const float *const *inputs,
                           float *const *outputs, double *step_ms, tap_error *err)
{
    uint8_t *scratch = memory;
    double before = step_ms == NULL ? 0 : tap_clock_ms();
    if ((uintptr_t)memory % TAP_ALIGN != 0)
        return tap_fail(err, TAP_ERR_INTERNAL, "the scratch memory is not aligned to %d bytes",
                        TAP_ALIGN);
    for (size_t i = 0; i < program->n_steps; i++) {
        const tap_step *step = &program->steps[i];
        tap_place to = step->y_place;
        tap_step_run run = {
            .step = step,
            .kernels = &program->state->kernels,
            .x = step->x < 0 ? NULL : read_from(step->x_place, scratch, inputs, outputs),
            .second =
                step->second < 0 ? NULL : read_from(step->second_place, scratch, inputs, outputs),
            .y = to.kind == TAP_PLACE_OUTPUT ? outputs[to.index]
                                             : (float *)(void *)(scratch + to.index),
            .shared = (float *)(void *)(scratch + program->shared_offset),
            .workers = scratch + program->workers_offset,
            .worker_stride = program->worker_stride,
            .n_workers = tap_pool_threads(program->state->pool)};
        run_step(&run, program->state->pool);
        if (step_ms != NULL) {
            double now = tap_clock_ms();
            step_ms[i] = now - before;
            before = now;
        }
    }
    for (size_t i = 0; i < program->n_copies; i++) {
        const struct copy *copy = &program->copies[i];
        memcpy(outputs[copy->output], read_from(copy->from, scratch, inputs, outputs),
               copy->n_bytes);
    }
    return TAP_OK;
}

tap_status tap_program_layout(const tap_backend_state *state, const char *precision, char *text,
                              size_t size, tap_error *err)
{
    enum { LAYOUT = 3 }; /* one more with every change of a packed form */
    const tap_product *product = tap_product_find(state->table, precision);
    if (product == NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "precision '%s': not one that this CPU backend has with %s", precision,
                        state->table->isa);
    snprintf(text, size, "%s-%s-%d", product->isa == NULL ? "cpu" : product->isa, precision,
             LAYOUT);
    return TAP_OK;
}

const char *tap_program_step_name(const tap_program *program, size_t step)
{
    return step < program->n_steps ? program->steps[step].name : "";
}

void tap_program_inspect(const tap_program *program, tap_program_info *info)
{
    *info = (tap_program_info){.scratch_bytes = program->scratch_bytes,
                               .packed_bytes = program->packed_bytes,
                               .n_steps = program->n_steps};
}

void tap_program_free(tap_program *program)
{
    if (program == NULL)
        return;
    for (size_t i = 0; i < program->n_steps; i++) {
        tap_packed_release(program->steps[i].weights);
        tap_packed_release(program->steps[i].front);
    }
    free(program->steps);
    free(program);
}
