/* A strict zip reader (PKWARE's APPNOTE.TXT, 4.3 to 4.5): members are found by the central
 * directory and must lie one after another from the first byte to it, so that no program that reads
 * from the front, or from the back, sees another file than we do. Private to weights. */
#ifndef TAP_WEIGHTS_ZIP_H
#define TAP_WEIGHTS_ZIP_H

#include "core/core.h"

enum {
    TAP_ZIP_MAX_ENTRIES = 16384, /* a checkpoint has one a tensor and a handful more */
    TAP_ZIP_MAX_NAME = 512,
    TAP_ZIP_MAX_INFLATED = 16 << 20,
    TAP_ZIP_MAX_RATIO = 100 /* over it a compressed member is taken for a bomb */
};

typedef struct tap_zip_entry {
    const char *name; /* not terminated; holds no NUL */
    size_t name_length;
    unsigned flags, method;
    uint32_t crc;
    size_t compressed, size;
    size_t local;        /* offset of the local header */
    const uint8_t *data; /* of compressed bytes */
    bool checked;        /* its CRC was found right */
} tap_zip_entry;

typedef struct tap_zip {
    const char *file;
    tap_zip_entry *entries; /* ordered by name */
    size_t n;
} tap_zip;

/* Reads the central directory and every local header. data is borrowed until tap_zip_close.
 * Errors TAP_ERR_FORMAT, TAP_ERR_UNSUPPORTED (encrypted, several disks, a comment), TAP_ERR_LIMIT;
 * each names the member. */
tap_status tap_zip_open(tap_zip *zip, const uint8_t *data, size_t size, const char *file,
                        tap_error *err);
void tap_zip_close(tap_zip *zip);

/* NULL where there is none. */
tap_zip_entry *tap_zip_find(const tap_zip *zip, const char *name, size_t length);

/* Makes sure that the member's bytes, entry->data, are stored and fit its CRC (once). Errors:
 * TAP_ERR_UNSUPPORTED (compressed), TAP_ERR_FORMAT. */
tap_status tap_zip_stored(const tap_zip *zip, tap_zip_entry *entry, tap_error *err);

/* The member's bytes, from wherever: *bytes points into the file, or to *memory, which the caller
 * frees (else NULL). At most TAP_ZIP_MAX_INFLATED bytes. */
tap_status tap_zip_load(const tap_zip *zip, tap_zip_entry *entry, const uint8_t **bytes,
                        uint8_t **memory, tap_error *err);

#endif
