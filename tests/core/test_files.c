#include "check.h"

#include "core/core.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tap-test-files-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static const char *in_folder(char *path, const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

static size_t count_files(void)
{
    size_t n = 0;
    DIR *listing = opendir(folder);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(listing);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[256];
    for (const char *const *name = (const char *const[]){"a", "empty", "fifo", "loop", NULL};
         *name != NULL; name++)
        unlink(in_folder(path, *name));
    return rmdir(folder);
}

static void a_written_file_is_mapped_and_read(void **state)
{
    (void)state;
    char path[256];
    tap_error err;
    tap_bytes bytes;
    assert_ok(tap_file_write(in_folder(path, "a"), "tapetum", 7, &err), err);
    assert_ok(tap_bytes_map(&bytes, path, 7, &err), err);
    assert_true(bytes.size == 7 && bytes.mapped && memcmp(bytes.data, "tapetum", 7) == 0);
    tap_bytes_release(&bytes);
    assert_ok(tap_bytes_read(&bytes, path, 7, &err), err);
    assert_true(bytes.size == 7 && !bytes.mapped && memcmp(bytes.data, "tapetum", 7) == 0);
    tap_bytes_release(&bytes);
    assert_null(bytes.data);
    assert_fails(tap_bytes_map(&bytes, path, 6, &err), TAP_ERR_LIMIT, err, "limit of 6");
    assert_fails(tap_bytes_read(&bytes, path, 6, &err), TAP_ERR_LIMIT, err, "limit of 6");
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    char path[256];
    tap_error err;
    tap_bytes bytes;
    assert_int_equal(mkfifo(in_folder(path, "fifo"), 0600), 0);
    assert_fails(tap_bytes_map(&bytes, path, 100, &err), TAP_ERR_ARGUMENT, err, "pipe or device");
    /* Nor is it written to: renaming would put a file in its place. */
    struct stat there;
    assert_fails(tap_file_write(path, "x", 1, &err), TAP_ERR_IO, err, "pipe");
    assert_int_equal(stat(path, &there), 0);
    assert_true(S_ISFIFO(there.st_mode));
    assert_fails(tap_file_write(folder, "x", 1, &err), TAP_ERR_IO, err, "folder");
    assert_fails(tap_bytes_map(&bytes, "/dev/zero", 100, &err), TAP_ERR_ARGUMENT, err, "device");
    assert_fails(tap_bytes_map(&bytes, folder, 100, &err), TAP_ERR_ARGUMENT, err, "is a folder");
    assert_fails(tap_bytes_map(&bytes, in_folder(path, "none"), 100, &err), TAP_ERR_NOT_FOUND, err,
                 "check the path");
    assert_int_equal(symlink(in_folder(path, "loop"), path), 0);
    assert_fails(tap_bytes_map(&bytes, path, 100, &err), TAP_ERR_IO, err, "symbolic links");
    assert_ok(tap_file_write(in_folder(path, "empty"), "", 0, &err), err);
    assert_ok(tap_bytes_map(&bytes, path, 100, &err), err);
    assert_int_equal(bytes.size, 0);
    tap_bytes_release(&bytes);
}

static void standard_input_is_bounded(void **state)
{
    (void)state;
    tap_error err;
    tap_bytes bytes;
    int saved = dup(STDIN_FILENO), zero = open("/dev/zero", O_RDONLY);
    dup2(zero, STDIN_FILENO);
    assert_fails(tap_bytes_read(&bytes, "-", 1 << 20, &err), TAP_ERR_LIMIT, err, "standard input");
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    dup2(ends[0], STDIN_FILENO);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    close(ends[1]);
    assert_ok(tap_bytes_read(&bytes, "-", 1 << 20, &err), err);
    assert_true(bytes.size == 3 && memcmp(bytes.data, "abc", 3) == 0);
    tap_bytes_release(&bytes);
    dup2(saved, STDIN_FILENO);
    close(saved), close(zero), close(ends[0]);
}

/* A file-size limit stands for the full disk: the write fails half way through. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    char path[256];
    tap_error err;
    tap_bytes bytes;
    struct rlimit old, small;
    char *large = calloc(1, 100000);
    assert_ok(tap_file_write(in_folder(path, "a"), "old", 3, &err), err);
    size_t n_files = count_files();
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 50000, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    tap_status status = tap_file_write(path, large, 100000, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    free(large);
    assert_int_equal(status, TAP_ERR_IO);
    assert_non_null(strstr(err.message, "cannot write: File too large"));
    assert_int_equal(count_files(), n_files);
    assert_ok(tap_bytes_read(&bytes, path, 100, &err), err);
    assert_true(bytes.size == 3 && memcmp(bytes.data, "old", 3) == 0);
    tap_bytes_release(&bytes);
    assert_fails(tap_file_write("/proc/none/a", "x", 1, &err), TAP_ERR_NOT_FOUND, err,
                 "cannot create a file beside it");
}

static void permissions_follow_the_umask(void **state)
{
    (void)state;
    char path[256];
    tap_error err;
    struct stat status;
    mode_t old = umask(027);
    assert_ok(tap_file_write(in_folder(path, "a"), "x", 1, &err), err);
    umask(old);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_is_mapped_and_read),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(standard_input_is_bounded),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(permissions_follow_the_umask),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
