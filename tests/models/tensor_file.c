#include "models/tensor_file.h"

static const char *const layers[3][12] = {
    {"encoder.conv_blocks.0.conv_a", "encoder.conv_blocks.0.conv_b", "encoder.conv_blocks.1.conv_a",
     "encoder.conv_blocks.1.conv_b", "encoder.conv_blocks.2.conv_a", "encoder.conv_blocks.2.conv_b",
     "encoder.conv_blocks.3.conv_a", "encoder.conv_blocks.3.conv_b",
     "keypoint_decoder.conv_score_a", "keypoint_decoder.conv_score_b",
     "descriptor_decoder.conv_descriptor_a", "descriptor_decoder.conv_descriptor_b"},
    {"conv1a", "conv1b", "conv2a", "conv2b", "conv3a", "conv3b", "conv4a", "conv4b", "convPa",
     "convPb", "convDa", "convDb"},
    {"encoder.conv1a", "encoder.conv1b", "encoder.conv2a", "encoder.conv2b", "encoder.conv3a",
     "encoder.conv3b", "encoder.conv4a", "encoder.conv4b", "keypoint_decoder.convSa",
     "keypoint_decoder.convSb", "descriptor_decoder.convDa", "descriptor_decoder.convDb"}};

void file_init(struct tensor_file *file, enum naming naming, const char *prefix)
{
    static const size_t sizes[12][3] = {{1, 4, 3},  {4, 4, 3},   {4, 4, 3},  {4, 4, 3},
                                        {4, 8, 3},  {8, 8, 3},   {8, 8, 3},  {8, 8, 3},
                                        {8, 12, 3}, {12, 65, 1}, {8, 12, 3}, {12, 20, 1}};
    *file = (struct tensor_file){.n = FILE_TENSORS};
    for (size_t i = 0; i < FILE_TENSORS; i++) {
        const size_t *size = sizes[i / 2];
        struct file_tensor *tensor = &file->tensors[i];
        *tensor = (struct file_tensor){.dtype = "F32", .place = i, .sign = 1};
        snprintf(tensor->name, sizeof tensor->name, "%s%s%s", prefix, layers[naming][i / 2],
                 i % 2 ? ".bias" : ".weight");
        tensor->rank = i % 2 ? 1 : 4;
        tensor->shape[0] = size[1];
        tensor->shape[1] = size[0];
        tensor->shape[2] = tensor->shape[3] = size[2];
    }
}

struct file_tensor *file_find(struct tensor_file *file, const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

void file_remove(struct tensor_file *file, const char *name)
{
    struct file_tensor *removed = file_find(file, name);
    *removed = file->tensors[--file->n];
}

struct file_tensor *file_add(struct tensor_file *file, const char *name)
{
    assert_true(file->n < FILE_CAPACITY);
    struct file_tensor *tensor = &file->tensors[file->n++];
    *tensor = (struct file_tensor){.dtype = "F32", .rank = 1, .shape = {3}, .sign = 1};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return tensor;
}

static size_t element_size(const char *dtype)
{
    const char *digits = dtype + strcspn(dtype, "0123456789");
    return *digits == '\0' ? 1 : strtoul(digits, NULL, 10) / 8;
}

static size_t n_elements(const struct file_tensor *tensor)
{
    size_t n = 1;
    for (size_t i = 0; i < tensor->rank; i++)
        n *= tensor->shape[i];
    return n;
}

/* Multiples of 1/64 in -0.5..0.484: exact in float32, float16 and bfloat16. */
static void write_values(unsigned char *to, const struct file_tensor *tensor)
{
    size_t n = n_elements(tensor), size = element_size(tensor->dtype);
    memset(to, 0, n * size);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = tap_splitmix64(tensor->place, i + 1);
        float value = tensor->sign * ((float)(z >> 58) - 32) / 64;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        uint16_t half =
            size == 2 && tensor->dtype[0] == 'B' ? (uint16_t)(bits >> 16) : tap_f32_to_f16(value);
        if (strcmp(tensor->dtype, "F32") == 0)
            memcpy(to + 4 * i, &value, 4);
        else if (strchr("FB", tensor->dtype[0]) != NULL && size == 2)
            memcpy(to + 2 * i, &half, 2);
    }
}

const tap_weights *file_open(struct tensor_file *file)
{
    enum { HEADER = 16384 };
    size_t data = 0, used = 1;
    tap_error err;
    char *header = calloc(1, HEADER);
    assert_non_null(header);
    file_close(file);
    header[0] = '{';
    for (size_t i = 0; i < file->n; i++) {
        const struct file_tensor *tensor = &file->tensors[i];
        size_t bytes = n_elements(tensor) * element_size(tensor->dtype);
        used +=
            (size_t)snprintf(header + used, HEADER - used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                             i ? "," : "", tensor->name, tensor->dtype);
        for (size_t k = 0; k < tensor->rank; k++)
            used += (size_t)snprintf(header + used, HEADER - used, "%s%zu", k ? "," : "",
                                     tensor->shape[k]);
        used += (size_t)snprintf(header + used, HEADER - used, "],\"data_offsets\":[%zu,%zu]}",
                                 data, data + bytes);
        data += bytes;
    }
    header[used++] = '}';
    while (used % 8 != 0)
        header[used++] = ' ';
    assert_true(used < HEADER);
    file->bytes = malloc(8 + used + data);
    assert_non_null(file->bytes);
    for (size_t i = 0; i < 8; i++)
        file->bytes[i] = (unsigned char)(used >> 8 * i);
    memcpy(file->bytes + 8, header, used);
    free(header);
    unsigned char *to = file->bytes + 8 + used;
    for (size_t i = 0; i < file->n; i++) {
        write_values(to, &file->tensors[i]);
        to += n_elements(&file->tensors[i]) * element_size(file->tensors[i].dtype);
    }
    assert_ok(tap_safetensors_parse(&file->weights, file->bytes, 8 + used + data,
                                    "model.safetensors", &err),
              err);
    return file->weights;
}

void file_poke(struct tensor_file *file, const char *name, size_t i, float value)
{
    const tap_tensor *tensor = tap_weights_find(file->weights, name);
    assert_non_null(tensor);
    memcpy(file->bytes + (tensor->data - file->bytes) + 4 * i, &value, 4);
}

void file_close(struct tensor_file *file)
{
    tap_weights_close(file->weights);
    free(file->bytes);
    file->weights = NULL;
    file->bytes = NULL;
}
