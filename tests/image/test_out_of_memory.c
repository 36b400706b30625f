/* Every allocation of every decode and encode fails once: the answer is "out of memory", nothing
 * leaks, nothing crashes. This program's malloc stands before the C library's, so the codecs' calls
 * come here too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "image/image.h"
#include "image/mesh.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* ---- memory that runs out -------------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *memory);

static long countdown = -1; /* this many calls still succeed, the next fails; negative: all do */
static bool failed;
static long n_live;

static bool fails_now(void)
{
    if (countdown < 0 || failed)
        return false;
    if (countdown-- > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

static void *count(void *memory)
{
    n_live += memory != NULL;
    return memory;
}

TAP_API void *malloc(size_t size)
{
    return fails_now() ? NULL : count(__libc_malloc(size));
}

TAP_API void *calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : count(__libc_calloc(n, size));
}

TAP_API void *realloc(void *memory, size_t size)
{
    if (fails_now())
        return NULL;
    void *moved = __libc_realloc(memory, size);
    n_live += memory == NULL && moved != NULL;
    n_live -= memory != NULL && size == 0;
    return moved;
}

TAP_API void *aligned_alloc(size_t align, size_t size)
{
    return fails_now() ? NULL : count(__libc_memalign(align, size));
}

TAP_API int posix_memalign(void **memory, size_t align, size_t size)
{
    if (fails_now())
        return ENOMEM;
    *memory = count(__libc_memalign(align, size));
    return *memory != NULL ? 0 : ENOMEM;
}

TAP_API void free(void *memory)
{
    n_live -= memory != NULL;
    __libc_free(memory);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

typedef tap_status (*action)(const tap_bytes *file, tap_error *err);

static uint32_t right_sum; /* of the picture decoded with all memory it wanted */

static tap_status decode(const tap_bytes *file, tap_error *err)
{
    tap_pixels pixels;
    tap_status status =
        tap_pixels_decode(&pixels, file->data, file->size, TAP_EXIF_APPLY, 100000, err);
    if (status == TAP_OK)
        status = tap_pixels_make_rgb(&pixels, err);
    if (status == TAP_OK) {
        uint32_t sum = 1;
        for (size_t i = 0; i < (size_t)pixels.width * pixels.height * 3; i++)
            sum = sum * 31 + pixels.data[i];
        if (!failed)
            right_sum = sum;
        else if (sum != right_sum)
            status = tap_fail(err, TAP_ERR_INTERNAL, "other pixels than with enough memory");
    }
    tap_pixels_free(&pixels);
    return status;
}

static bool is_png_of(const uint8_t *bytes, size_t n, const tap_pixels *pixels)
{
    tap_pixels again;
    size_t size = (size_t)pixels->width * pixels->height * 3;
    long paused = countdown;
    countdown = -1;
    tap_status status = tap_pixels_decode(&again, bytes, n, TAP_EXIF_IGNORE, size, NULL);
    bool same = status == TAP_OK && memcmp(again.data, pixels->data, size) == 0;
    tap_pixels_free(&again);
    countdown = paused;
    return same;
}

static tap_status encode(const tap_bytes *file, tap_error *err)
{
    uint8_t *bytes;
    size_t n;
    uint32_t side = (uint32_t)file->size;
    tap_pixels pixels;
    TAP_TRY(tap_pixels_create(&pixels, side, side, 3, err));
    for (size_t i = 0; i < (size_t)side * side * 3; i++)
        pixels.data[i] = (uint8_t)(i * 2654435761u >> 13); /* noise, so that the JPEG grows */
    tap_status status = tap_pixels_encode_png(&pixels, &bytes, &n, err);
    if (status == TAP_OK && !is_png_of(bytes, n, &pixels))
        status = tap_fail(err, TAP_ERR_INTERNAL, "the PNG is not of these pixels");
    free(bytes);
    if (status == TAP_OK) {
        status = tap_pixels_encode_jpeg(&pixels, 92, &bytes, &n, err);
        free(bytes);
    }
    tap_pixels_free(&pixels);
    return status;
}

/* Draws, turns, draws and writes a mesh in each format. */
static tap_status mesh(const tap_bytes *file, tap_error *err)
{
    static const float corners[3][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}};
    static const uint32_t face[3] = {0, 1, 2};
    static const char *const endings[3] = {"obj", "ply", "glb"};
    const tap_mesh one = {corners[0], 3, face, 1, {0, 0, 2}, tap_mesh_color};
    const tap_lens lens = {20, 20, 0, 0};
    tap_pixels pixels, side;
    TAP_TRY(tap_pixels_create(&pixels, 16, 16, 3, err));
    tap_status status = tap_draw_meshes(&pixels, &one, 1, &lens, err);
    tap_pixels_free(&pixels);
    TAP_TRY(status);
    TAP_TRY(tap_mesh_side_view(&side, 16, 16, &one, 1, err));
    tap_pixels_free(&side);
    for (int i = 0; i < 3; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/mesh.%s", (const char *)file->data, endings[i]);
        TAP_TRY(tap_mesh_write(path, &one, 1, err));
        if (remove(path) != 0)
            return tap_fail(err, TAP_ERR_INTERNAL, "%s is not there", path);
    }
    return TAP_OK;
}

/* Some codecs don't say: zlib's window and libwebp's alpha plane that could not be had look like
 * damaged streams. And some do without: libjpeg asks again for less, libspng only wanted to give
 * memory back; then the result must be the right one, which decode and encode check. */
static bool is_excused(tap_status status, const tap_error *err)
{
    return status == TAP_OK ||
           (status == TAP_ERR_FORMAT && (strstr(err->message, "IDAT stream") != NULL ||
                                         strstr(err->message, "WebP: damaged") != NULL));
}

static void sweep(action act, const tap_bytes *file, const char *name)
{
    tap_error err;
    tap_status first = act(file, &err); /* the libraries make tables of their own, once */
    if (first == TAP_ERR_UNSUPPORTED) {
        print_message("%s: %s\n", name, err.message); /* built without WebP */
        return;
    }
    assert_int_equal(first, TAP_OK);
    for (long k = 0;; k++) {
        long before = n_live;
        countdown = k;
        failed = false;
        tap_status status = act(file, &err);
        countdown = -1;
        if (n_live != before)
            fail_msg("%s: allocation %ld: %ld blocks left behind", name, k, n_live - before);
        if (!failed) {
            assert_int_equal(status, TAP_OK);
            print_message("%s: %ld allocations\n", name, k);
            return;
        }
        if (status != TAP_ERR_MEMORY && !is_excused(status, &err))
            fail_msg("%s: allocation %ld: %s: %s", name, k, tap_status_name(status),
                     status == TAP_OK ? "" : err.message);
    }
}

static void test_decode(void **state)
{
    (void)state;
    static const char folder[] = "fuzz/corpus/image";
    DIR *directory = opendir(folder);
    size_t n_files = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[512];
        tap_bytes file;
        tap_error err;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(tap_bytes_read(&file, path, 1 << 20, &err), TAP_OK);
        /* libwebp 1.2.4 itself follows a NULL pointer when a lossless picture's tables don't fit.
         */
        if (memmem(file.data, file.size, "VP8L", 4) == NULL)
            sweep(decode, &file, entry->d_name);
        tap_bytes_release(&file);
        n_files++;
    }
    closedir(directory);
    assert_true(n_files >= 20);
}

static void test_encode(void **state)
{
    (void)state;
    tap_bytes side = {.size = 300};
    sweep(encode, &side, "encode");
}

static void test_mesh(void **state)
{
    (void)state;
    char folder[] = "/tmp/tapetum-mesh-XXXXXX";
    assert_non_null(mkdtemp(folder));
    tap_bytes where = {.data = (const uint8_t *)folder};
    sweep(mesh, &where, "mesh");
    assert_int_equal(remove(folder), 0); /* empty: no temporary file was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_encode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("skipped: a sanitizer owns malloc, or this is not glibc");
    return 0;
}

#endif
