/* The 503 tensors of a HaMeR checkpoint: names and shapes. */
#include "hamer.h"

#include <stdio.h>
#include <string.h>

enum { PATCH = 16, CHANNELS = 3, POSITIONS = TAP_HAMER_TOKENS + 1 };

const tap_hamer_config tap_hamer_full = {.dim = 1280,
                                         .depth = 32,
                                         .heads = 16,
                                         .mlp = 5120,
                                         .head_dim = 1024,
                                         .head_depth = 6,
                                         .head_heads = 8,
                                         .head_inner = 512,
                                         .head_mlp = 1024};
const tap_hamer_config tap_hamer_tiny = {.dim = 64,
                                         .depth = 2,
                                         .heads = 4,
                                         .mlp = 256,
                                         .head_dim = 48,
                                         .head_depth = 2,
                                         .head_heads = 2,
                                         .head_inner = 32,
                                         .head_mlp = 96};

size_t tap_hamer_block(size_t block)
{
    return TAP_HAMER_N_FIXED + block * TAP_BLOCK_N;
}

size_t tap_hamer_layer(const tap_hamer_config *config, size_t layer)
{
    return tap_hamer_block(config->depth) + layer * TAP_LAYER_N;
}

size_t tap_hamer_n_tensors(const tap_hamer_config *config)
{
    return tap_hamer_layer(config, config->head_depth);
}

/* A row of a table: shape entries of 0 end it. */
struct row {
    const char *name;
    size_t shape[4];
};

static void set(tap_hamer_tensor *tensor, const char *prefix, const struct row *row)
{
    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, row->name);
    memcpy(tensor->shape, row->shape, sizeof tensor->shape);
    tensor->rank = 0;
    while (tensor->rank < 4 && row->shape[tensor->rank] != 0)
        tensor->rank++;
}

static void fixed_at(tap_hamer_tensor *tensor, const tap_hamer_config *c, size_t i)
{
    const struct row rows[TAP_HAMER_N_FIXED] = {
        {"backbone.pos_embed", {1, POSITIONS, c->dim}},
        {"backbone.patch_embed.proj.weight", {c->dim, CHANNELS, PATCH, PATCH}},
        {"backbone.patch_embed.proj.bias", {c->dim}},
        {"backbone.last_norm.weight", {c->dim}},
        {"backbone.last_norm.bias", {c->dim}},
        {"mano_head.init_hand_pose", {1, TAP_HAMER_POSE}},
        {"mano_head.init_betas", {1, TAP_HAMER_BETAS}},
        {"mano_head.init_cam", {1, TAP_HAMER_CAMERA}},
        {"mano_head.transformer.pos_embedding", {1, 1, c->head_dim}},
        {"mano_head.transformer.to_token_embedding.weight", {c->head_dim, 1}},
        {"mano_head.transformer.to_token_embedding.bias", {c->head_dim}},
        {"mano_head.decpose.weight", {TAP_HAMER_POSE, c->head_dim}},
        {"mano_head.decpose.bias", {TAP_HAMER_POSE}},
        {"mano_head.decshape.weight", {TAP_HAMER_BETAS, c->head_dim}},
        {"mano_head.decshape.bias", {TAP_HAMER_BETAS}},
        {"mano_head.deccam.weight", {TAP_HAMER_CAMERA, c->head_dim}},
        {"mano_head.deccam.bias", {TAP_HAMER_CAMERA}}};
    set(tensor, "", &rows[i]);
}

static void block_at(tap_hamer_tensor *tensor, const tap_hamer_config *c, size_t block, size_t i)
{
    const struct row rows[TAP_BLOCK_N] = {{"norm1.weight", {c->dim}},
                                          {"norm1.bias", {c->dim}},
                                          {"attn.qkv.weight", {3 * c->dim, c->dim}},
                                          {"attn.qkv.bias", {3 * c->dim}},
                                          {"attn.proj.weight", {c->dim, c->dim}},
                                          {"attn.proj.bias", {c->dim}},
                                          {"norm2.weight", {c->dim}},
                                          {"norm2.bias", {c->dim}},
                                          {"mlp.fc1.weight", {c->mlp, c->dim}},
                                          {"mlp.fc1.bias", {c->mlp}},
                                          {"mlp.fc2.weight", {c->dim, c->mlp}},
                                          {"mlp.fc2.bias", {c->dim}}};
    char prefix[TAP_HAMER_NAME / 2];
    snprintf(prefix, sizeof prefix, "backbone.blocks.%zu.", block);
    set(tensor, prefix, &rows[i]);
}

static void layer_at(tap_hamer_tensor *tensor, const tap_hamer_config *c, size_t layer, size_t i)
{
    const struct row rows[TAP_LAYER_N] = {{"0.norm.weight", {c->head_dim}},
                                          {"0.norm.bias", {c->head_dim}},
                                          {"0.fn.to_qkv.weight", {3 * c->head_inner, c->head_dim}},
                                          {"0.fn.to_out.0.weight", {c->head_dim, c->head_inner}},
                                          {"0.fn.to_out.0.bias", {c->head_dim}},
                                          {"1.norm.weight", {c->head_dim}},
                                          {"1.norm.bias", {c->head_dim}},
                                          {"1.fn.to_kv.weight", {2 * c->head_inner, c->dim}},
                                          {"1.fn.to_q.weight", {c->head_inner, c->head_dim}},
                                          {"1.fn.to_out.0.weight", {c->head_dim, c->head_inner}},
                                          {"1.fn.to_out.0.bias", {c->head_dim}},
                                          {"2.norm.weight", {c->head_dim}},
                                          {"2.norm.bias", {c->head_dim}},
                                          {"2.fn.net.0.weight", {c->head_mlp, c->head_dim}},
                                          {"2.fn.net.0.bias", {c->head_mlp}},
                                          {"2.fn.net.3.weight", {c->head_dim, c->head_mlp}},
                                          {"2.fn.net.3.bias", {c->head_dim}}};
    char prefix[TAP_HAMER_NAME / 2 + 16];
    snprintf(prefix, sizeof prefix, "mano_head.transformer.transformer.layers.%zu.", layer);
    set(tensor, prefix, &rows[i]);
}

void tap_hamer_tensor_at(tap_hamer_tensor *tensor, const tap_hamer_config *config, size_t i)
{
    size_t first_layer = tap_hamer_block(config->depth);
    if (i < TAP_HAMER_N_FIXED)
        fixed_at(tensor, config, i);
    else if (i < first_layer)
        block_at(tensor, config, (i - TAP_HAMER_N_FIXED) / TAP_BLOCK_N,
                 (i - TAP_HAMER_N_FIXED) % TAP_BLOCK_N);
    else
        layer_at(tensor, config, (i - first_layer) / TAP_LAYER_N, (i - first_layer) % TAP_LAYER_N);
}
