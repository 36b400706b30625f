#include "sniff.h"

#include "json.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool begins(const uint8_t *data, size_t size, const char *magic, size_t n)
{
    return size >= n && memcmp(data, magic, n) == 0;
}

/* The value after "key " at a line's start of an LFS pointer, cut to capacity. */
static void lfs_field(char *dst, size_t capacity, const uint8_t *data, size_t size, const char *key)
{
    const char *text = (const char *)data, *end = text + size;
    size_t n_key = strlen(key), n = 0;
    dst[0] = '\0';
    for (const char *line = text; line != NULL && (size_t)(end - line) > n_key;) {
        if (memcmp(line, key, n_key) == 0) {
            for (line += n_key; line + n < end && line[n] > ' ' && n + 1 < capacity; n++)
                dst[n] = line[n];
            dst[n] = '\0';
            return;
        }
        line = memchr(line, '\n', (size_t)(end - line));
        line = line != NULL ? line + 1 : NULL;
    }
}

static tap_status refuse_lfs(const uint8_t *data, size_t size, const char *file, tap_error *err)
{
    char oid[80], bytes[24];
    lfs_field(oid, sizeof oid, data, size, "oid ");
    lfs_field(bytes, sizeof bytes, data, size, "size ");
    return tap_fail(err, TAP_ERR_FORMAT,
                    "%s: this is a Git LFS pointer (%zu bytes) for %s of %s bytes, not the file; "
                    "fetch the real one with git lfs pull, or download it by itself",
                    file, size, oid[0] != '\0' ? oid : "a file", bytes[0] != '\0' ? bytes : "?");
}

/* HTML and XML may begin with a byte order mark and blank lines. */
static bool is_markup(const uint8_t *data, size_t size)
{
    static const char *const tags[] = {"<!doctype", "<html", "<head", "<?xml", "<body", "<error"};
    if (begins(data, size, "\xef\xbb\xbf", 3))
        data += 3, size -= 3;
    while (size > 0 && isspace(*data))
        data++, size--;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (size >= strlen(tags[i]) &&
            strncasecmp((const char *)data, tags[i], strlen(tags[i])) == 0)
            return true;
    return false;
}

/* A protobuf that begins as ONNX's ModelProto does: ir_version (field 1, a small number), then
 * producer_name, domain, graph or opset_import. */
static bool is_onnx(const uint8_t *data, size_t size)
{
    return size > 3 && data[0] == 0x08 && data[1] >= 1 && data[1] <= 20 &&
           (data[2] == 0x12 || data[2] == 0x22 || data[2] == 0x3a || data[2] == 0x42);
}

static bool is_text(const uint8_t *data, size_t size)
{
    size_t n = size < 64 ? size : 64;
    for (size_t i = 0; i < n; i++)
        if (data[i] >= 0x7f || (data[i] < ' ' && !isspace(data[i])))
            return false;
    return true;
}

/* NULL, or the name of a known format that is not for us. */
static const char *name_other(const uint8_t *data, size_t size)
{
    static const struct {
        const char *magic;
        size_t n, at;
        const char *name;
    } known[] = {
        {"\x1f\x8b", 2, 0, "a gzip archive; unpack it (gunzip, tar xzf)"},
        {"\xfd"
         "7zXZ",
         5, 0, "an xz archive; unpack it"},
        {"\x28\xb5\x2f\xfd", 4, 0, "a zstd archive; unpack it"},
        {"BZh", 3, 0, "a bzip2 archive; unpack it"},
        {"7z\xbc\xaf\x27\x1c", 6, 0, "a 7-Zip archive; unpack it"},
        {"Rar!", 4, 0, "a RAR archive; unpack it"},
        {"ustar", 5, 257,
         "a tar archive (PyTorch 0.1 wrote such files, too); unpack it, or save "
         "the weights again with a newer PyTorch"},
        {"\x93NUMPY", 6, 0, "a NumPy array (.npy)"},
        {"(dp", 3, 0, "a pickle of protocol 0; save it again with pickle.dump(object, file, 2)"},
        {"}q", 2, 0, "a pickle of protocol 1; save it again with pickle.dump(object, file, 2)"},
        {"GGUF", 4, 0, "a GGUF file (llama.cpp)"},
        {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file (Keras .h5)"},
        {"TFL3", 4, 4, "a TensorFlow Lite model"},
        {"\x89PNG", 4, 0, "a PNG picture"},
        {"\xff\xd8\xff", 3, 0, "a JPEG picture"},
        {"RIFF", 4, 0, "a RIFF file (WebP?)"},
        {"%PDF", 4, 0, "a PDF document"},
        {"\x7f"
         "ELF",
         4, 0, "an ELF program or library (a TensorRT engine?)"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size >= known[i].at + known[i].n &&
            memcmp(data + known[i].at, known[i].magic, known[i].n) == 0)
            return known[i].name;
    if (is_onnx(data, size))
        return "an ONNX model";
    if (is_text(data, size))
        return data[0] == '{' ? "JSON text" : "plain text";
    return NULL;
}

tap_status tap_format_sniff(tap_format *format, const uint8_t *data, size_t size,
                            const char *wanted, const char *file, tap_error *err)
{
    *format = TAP_FORMAT_OTHER;
    if (size == 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the file is empty; fetch it again", file);
    if (begins(data, size, "version https://git-lfs", 23))
        return refuse_lfs(data, size, file, err);
    if (is_markup(data, size))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: this is an HTML or XML page, not a model: the download got a web "
                        "page (a login, a licence, an error?); open it to see, and fetch the raw "
                        "file",
                        file);
    if (begins(data, size, "PK\3\4", 4) || begins(data, size, "PK\5\6", 4))
        *format = TAP_FORMAT_ZIP;
    else if (size >= 2 && data[0] == 0x80 && data[1] <= 5)
        *format = TAP_FORMAT_PICKLE;
    else if (size > 8 && data[8] == '{')
        *format = TAP_FORMAT_SAFETENSORS;
    if (*format == TAP_FORMAT_PICKLE && size > 8 && data[8] == '{' && data[3] == 0)
        *format = TAP_FORMAT_SAFETENSORS; /* a header whose length happens to begin 80 02 */
    if (*format != TAP_FORMAT_OTHER)
        return TAP_OK;
    const char *name = name_other(data, size);
    if (name != NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: this is %s; %s is wanted", file, name, wanted);
    if (size < 16)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: only %zu bytes: the download is incomplete, fetch it again", file,
                        size);
    return tap_fail(err, TAP_ERR_FORMAT,
                    "%s: not a format that is known here (begins %02x %02x %02x %02x %02x %02x "
                    "%02x %02x); %s is wanted",
                    file, data[0], data[1], data[2], data[3], data[4], data[5], data[6], data[7],
                    wanted);
}
