#include "zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13,
    FLAG_DESCRIPTOR = 1 << 3, /* CRC and sizes stand behind the data */
    FLAGS_KNOWN = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11
};

/* Little-endian fields, unaligned. */
static uint32_t get16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

struct reader {
    const uint8_t *data;
    size_t size;
    const char *file;
    size_t n, directory, directory_size;
};

static bool is_signature(const uint8_t *at, const char *letters)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == (uint8_t)letters[0] &&
           at[3] == (uint8_t)letters[1];
}

/* Why the file does not end with an end record. */
static tap_status refuse_end(const struct reader *reader, tap_error *err)
{
    size_t first = reader->size > END_SIZE + 65535 ? reader->size - END_SIZE - 65535 : 0;
    for (size_t at = first; at + END_SIZE <= reader->size; at++)
        if (is_signature(reader->data + at, "\5\6"))
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "%s: %zu bytes after the zip's end: a comment or another file, "
                            "neither is read here",
                            reader->file, reader->size - at - END_SIZE);
    return tap_fail(err, TAP_ERR_FORMAT,
                    "%s: a zip without its directory at the end: the download is incomplete, "
                    "fetch it again",
                    reader->file);
}

/* The zip64 end record, which lies right before its locator. Numbers that the old record can hold
 * must be the same there. */
static tap_status read_end64(struct reader *reader, const uint8_t *end, size_t locator,
                             tap_error *err)
{
    static const char lost[] = "the zip64 end record is not where it is said";
    if (locator < END64_SIZE)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: %s", reader->file, lost);
    const uint8_t *at = reader->data + locator, *record = at - END64_SIZE;
    if (get32(at + 4) != 0 || get32(at + 16) != 1 || get64(at + 8) != locator - END64_SIZE ||
        !is_signature(record, "\6\6") || get64(record + 4) != END64_SIZE - 12 ||
        get32(record + 16) != 0 || get32(record + 20) != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: %s", reader->file, lost);
    uint64_t n = get64(record + 32), size = get64(record + 40), offset = get64(record + 48);
    if (get64(record + 24) != n || (get16(end + 10) != 0xffff && get16(end + 10) != n) ||
        (get32(end + 12) != UINT32_MAX && get32(end + 12) != size) ||
        (get32(end + 16) != UINT32_MAX && get32(end + 16) != offset))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the zip's two end records disagree",
                        reader->file);
    reader->n = n;
    reader->directory = offset;
    reader->directory_size = size;
    return TAP_OK;
}

static tap_status read_end(struct reader *reader, tap_error *err)
{
    if (reader->size < END_SIZE || !is_signature(reader->data + reader->size - END_SIZE, "\5\6"))
        return refuse_end(reader, err);
    size_t position = reader->size - END_SIZE, sum;
    const uint8_t *end = reader->data + position;
    if (get16(end + 20) != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the zip's comment runs past the file's end",
                        reader->file);
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != get16(end + 10))
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: one part of a zip of several disks",
                        reader->file);
    reader->n = get16(end + 10);
    reader->directory_size = get32(end + 12);
    reader->directory = get32(end + 16);
    if (position >= LOCATOR_SIZE && is_signature(end - LOCATOR_SIZE, "\6\7")) {
        TAP_TRY(read_end64(reader, end, position - LOCATOR_SIZE, err));
        position -= LOCATOR_SIZE + END64_SIZE;
    }
    if (!tap_size_add(reader->directory, reader->directory_size, &sum) || sum != position)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: the zip's directory does not end where its end record begins: the "
                        "file is damaged, or something stands before it",
                        reader->file);
    if (reader->n > TAP_ZIP_MAX_ENTRIES)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: a zip of %zu members, over %d", reader->file,
                        reader->n, TAP_ZIP_MAX_ENTRIES);
    return TAP_OK;
}

/* Fields of 32 bits that are all ones stand in the zip64 extra block instead, in this order. Every
 * extra block must lie inside the field. false if they don't. */
static bool read_extra(const uint8_t *extra, size_t size, uint64_t *values[3])
{
    bool found = false;
    while (size > 0) {
        if (size < 4 || get16(extra + 2) > size - 4)
            return false;
        size_t id = get16(extra), n = get16(extra + 2);
        const uint8_t *field = extra + 4;
        if (id == 1 && found)
            return false;
        if (id == 1) {
            size_t used = 0;
            found = true;
            for (size_t i = 0; i < 3; i++) {
                if (values[i] == NULL || *values[i] != UINT32_MAX)
                    continue;
                if (n - used < 8)
                    return false;
                *values[i] = get64(field + used);
                used += 8;
            }
        }
        extra += 4 + n;
        size -= 4 + n;
    }
    return true;
}

static tap_status bad_entry(const struct reader *reader, const tap_zip_entry *entry,
                            const char *what, tap_error *err)
{
    return tap_fail(err, TAP_ERR_FORMAT, "%s: zip member %.*s: %s", reader->file,
                    (int)entry->name_length, entry->name, what);
}

static tap_status check_entry(const struct reader *reader, const tap_zip_entry *entry,
                              tap_error *err)
{
    if (entry->name_length == 0 || entry->name_length > TAP_ZIP_MAX_NAME)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: a zip member's name of %zu bytes (1 to %d)",
                        reader->file, entry->name_length, TAP_ZIP_MAX_NAME);
    if (memchr(entry->name, '\0', entry->name_length) != NULL)
        return bad_entry(reader, entry, "a NUL in its name", err);
    if ((entry->flags & FLAG_ENCRYPTED) != 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: zip member %.*s is encrypted", reader->file,
                        (int)entry->name_length, entry->name);
    if ((entry->flags & ~(unsigned)FLAGS_KNOWN) != 0)
        return bad_entry(reader, entry, "flags that are not known here", err);
    if (entry->method != STORED && entry->method != DEFLATED)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: zip member %.*s: compression method %u is not read here", reader->file,
                        (int)entry->name_length, entry->name, entry->method);
    if (entry->method == STORED && entry->compressed != entry->size)
        return bad_entry(reader, entry, "stored, but of two sizes", err);
    return TAP_OK;
}

/* One record of the central directory at *at, which moves behind it. */
static tap_status read_central(const struct reader *reader, tap_zip_entry *entry, size_t *at,
                               tap_error *err)
{
    size_t left = reader->directory + reader->directory_size - *at;
    const uint8_t *record = reader->data + *at;
    if (left < CENTRAL_SIZE || !is_signature(record, "\1\2"))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the zip's directory is damaged at byte %zu",
                        reader->file, *at);
    size_t name = get16(record + 28), extra = get16(record + 30), comment = get16(record + 32);
    if (left - CENTRAL_SIZE < name + extra + comment)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the zip's directory is damaged at byte %zu",
                        reader->file, *at);
    uint64_t compressed = get32(record + 20), size = get32(record + 24), local = get32(record + 42);
    uint64_t *values[3] = {&size, &compressed, &local};
    *entry = (tap_zip_entry){.name = (const char *)record + CENTRAL_SIZE,
                             .name_length = name,
                             .flags = get16(record + 8),
                             .method = get16(record + 10),
                             .crc = get32(record + 16)};
    if (!read_extra(record + CENTRAL_SIZE + name, extra, values))
        return bad_entry(reader, entry, "its extra field is damaged", err);
    if (get16(record + 34) != 0)
        return bad_entry(reader, entry, "lies on another disk", err);
    entry->size = size;
    entry->compressed = compressed;
    entry->local = local;
    *at += CENTRAL_SIZE + name + extra + comment;
    return check_entry(reader, entry, err);
}

/* The data descriptor between the data's end and the next member: signature (optional), CRC, and
 * sizes of 4 or of 8 bytes. */
static bool is_descriptor(const uint8_t *at, size_t n, const tap_zip_entry *entry)
{
    if ((n == 16 || n == 24) && is_signature(at, "\7\x8"))
        at += 4, n -= 4;
    if (n == 12)
        return get32(at) == entry->crc && get32(at + 4) == entry->compressed &&
               get32(at + 8) == entry->size;
    return n == 20 && get32(at) == entry->crc && get64(at + 4) == entry->compressed &&
           get64(at + 12) == entry->size;
}

/* The local header must say what the directory says. With a data descriptor it may say 0. */
static tap_status read_local(const struct reader *reader, tap_zip_entry *entry, size_t end,
                             tap_error *err)
{
    size_t room = end - entry->local;
    const uint8_t *record = reader->data + entry->local;
    if (room < LOCAL_SIZE || !is_signature(record, "\3\4"))
        return bad_entry(reader, entry, "no local header where the directory says", err);
    size_t name = get16(record + 26), extra = get16(record + 28);
    if (room - LOCAL_SIZE < name + extra)
        return bad_entry(reader, entry, "its local header runs into the next member", err);
    uint64_t compressed = get32(record + 18), size = get32(record + 22);
    uint64_t *values[3] = {&size, &compressed, NULL};
    bool later = (entry->flags & FLAG_DESCRIPTOR) != 0;
    if (!read_extra(record + LOCAL_SIZE + name, extra, values))
        return bad_entry(reader, entry, "its extra field is damaged", err);
    if (name != entry->name_length || memcmp(record + LOCAL_SIZE, entry->name, name) != 0 ||
        get16(record + 6) != entry->flags || get16(record + 8) != entry->method ||
        (get32(record + 14) != entry->crc && !(later && get32(record + 14) == 0)) ||
        (compressed != entry->compressed && !(later && compressed == 0)) ||
        (size != entry->size && !(later && size == 0)))
        return bad_entry(reader, entry, "its local header and the directory disagree", err);
    room -= LOCAL_SIZE + name + extra;
    entry->data = record + LOCAL_SIZE + name + extra;
    if (entry->compressed > room)
        return bad_entry(reader, entry, "overlaps what comes after it", err);
    room -= entry->compressed;
    if (later ? !is_descriptor(entry->data + entry->compressed, room, entry) : room != 0)
        return bad_entry(reader, entry,
                         later ? "its data descriptor disagrees with the directory"
                               : "bytes after it that belong to no member",
                         err);
    return TAP_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const tap_zip_entry *x = a, *y = b;
    return (x->local > y->local) - (x->local < y->local);
}

static int compare_names(const void *a, const void *b)
{
    const tap_zip_entry *x = a, *y = b;
    if (x->name_length != y->name_length)
        return x->name_length < y->name_length ? -1 : 1;
    return memcmp(x->name, y->name, x->name_length);
}

static tap_status read_entries(const struct reader *reader, tap_zip *zip, tap_error *err)
{
    size_t at = reader->directory;
    for (; zip->n < reader->n; zip->n++)
        TAP_TRY(read_central(reader, &zip->entries[zip->n], &at, err));
    if (at != reader->directory + reader->directory_size)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the zip's directory holds more than it counts",
                        reader->file);
    qsort(zip->entries, zip->n, sizeof *zip->entries, compare_offsets);
    if (zip->n == 0 ? reader->directory != 0 : zip->entries[0].local != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: bytes before the zip's first member",
                        reader->file);
    for (size_t i = 0; i < zip->n; i++) {
        size_t end = i + 1 < zip->n ? zip->entries[i + 1].local : reader->directory;
        if (end > reader->directory)
            return bad_entry(reader, &zip->entries[i + 1], "lies outside of the members' part",
                             err);
        TAP_TRY(read_local(reader, &zip->entries[i], end, err));
    }
    qsort(zip->entries, zip->n, sizeof *zip->entries, compare_names);
    for (size_t i = 1; i < zip->n; i++)
        if (compare_names(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return bad_entry(reader, &zip->entries[i], "is there twice", err);
    return TAP_OK;
}

tap_status tap_zip_open(tap_zip *zip, const uint8_t *data, size_t size, const char *file,
                        tap_error *err)
{
    struct reader reader = {.data = data, .size = size, .file = file};
    *zip = (tap_zip){.file = file};
    TAP_TRY(read_end(&reader, err));
    zip->entries = malloc((reader.n + 1) * sizeof *zip->entries);
    if (zip->entries == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its directory", file);
    tap_status status = read_entries(&reader, zip, err);
    if (status != TAP_OK)
        tap_zip_close(zip);
    return status;
}

void tap_zip_close(tap_zip *zip)
{
    free(zip->entries);
    *zip = (tap_zip){0};
}

tap_zip_entry *tap_zip_find(const tap_zip *zip, const char *name, size_t length)
{
    tap_zip_entry wanted = {.name = name, .name_length = length};
    if (zip->n == 0)
        return NULL;
    return bsearch(&wanted, zip->entries, zip->n, sizeof wanted, compare_names);
}

static tap_status check_crc(const tap_zip *zip, tap_zip_entry *entry, const uint8_t *bytes,
                            tap_error *err)
{
    if (entry->checked)
        return TAP_OK;
    uint32_t crc = (uint32_t)crc32_z(0, bytes, entry->size);
    if (crc != entry->crc)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: zip member %.*s: its CRC is %08" PRIx32 " where the directory says "
                        "%08" PRIx32 ": the file is damaged, fetch it again",
                        zip->file, (int)entry->name_length, entry->name, crc, entry->crc);
    entry->checked = true;
    return TAP_OK;
}

tap_status tap_zip_stored(const tap_zip *zip, tap_zip_entry *entry, tap_error *err)
{
    if (entry->method != STORED)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: zip member %.*s: tensors are read in place and must be stored, not "
                        "compressed; save the file again with torch.save",
                        zip->file, (int)entry->name_length, entry->name);
    return check_crc(zip, entry, entry->data, err);
}

/* The whole member at once: its size is declared, small, and not exceeded. */
static bool inflate_into(uint8_t *dst, const tap_zip_entry *entry)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)entry->data,
                       .avail_in = (uInt)entry->compressed,
                       .next_out = dst,
                       .avail_out = (uInt)entry->size};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return false;
    int result = inflate(&stream, Z_FINISH);
    bool whole = result == Z_STREAM_END && stream.avail_in == 0 && stream.avail_out == 0;
    inflateEnd(&stream);
    return whole;
}

tap_status tap_zip_load(const tap_zip *zip, tap_zip_entry *entry, const uint8_t **bytes,
                        uint8_t **memory, tap_error *err)
{
    *memory = NULL;
    *bytes = entry->data;
    if (entry->size > TAP_ZIP_MAX_INFLATED)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: zip member %.*s: %zu bytes, over %d", zip->file,
                        (int)entry->name_length, entry->name, entry->size, TAP_ZIP_MAX_INFLATED);
    if (entry->method == STORED)
        return check_crc(zip, entry, entry->data, err);
    if (entry->size / TAP_ZIP_MAX_RATIO > entry->compressed)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: zip member %.*s: compressed over %d to 1: a bomb?",
                        zip->file, (int)entry->name_length, entry->name, TAP_ZIP_MAX_RATIO);
    if (entry->compressed > TAP_ZIP_MAX_INFLATED)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: zip member %.*s: %zu bytes, over %d", zip->file,
                        (int)entry->name_length, entry->name, entry->compressed,
                        TAP_ZIP_MAX_INFLATED);
    uint8_t *inflated = malloc(entry->size + 1);
    if (inflated == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory to inflate %.*s", zip->file,
                        (int)entry->name_length, entry->name);
    tap_status status =
        inflate_into(inflated, entry)
            ? check_crc(zip, entry, inflated, err)
            : tap_fail(err, TAP_ERR_FORMAT, "%s: zip member %.*s: its compressed data is damaged",
                       zip->file, (int)entry->name_length, entry->name);
    if (status != TAP_OK) {
        free(inflated);
        return status;
    }
    *bytes = *memory = inflated;
    return TAP_OK;
}
