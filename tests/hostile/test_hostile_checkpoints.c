/* Checkpoints that are not HaMeR's are refused with their own words, and nothing in any of them is
 * run; those of make_models.py, opened as checkpoints or MANO files, do no harm either. */
#include "check.h"

#include "models/models.h"

/* The system's before any other: only the standard library is needed. */
#define PYTHON "PATH=/usr/bin:$PATH python3"

static char folder[] = "/tmp/tap_checkpoints_XXXXXX";

static void make_files(const char *program)
{
    char command[256];
    if (system(PYTHON " -c '' 2>/dev/null") != 0) {
        printf("SKIP: no python3, which writes the bad files\n");
        skip();
    }
    snprintf(command, sizeof command, PYTHON " tests/hostile/%s %s", program, folder);
    assert_int_equal(system(command), 0);
}

static tap_status load(const char *name, tap_error *err)
{
    char path[1024];
    tap_weights *weights;
    tap_hamer *model = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TAP_TRY(tap_weights_open_checkpoint(&weights, path, err));
    tap_status status = tap_hamer_create(&model, weights, err);
    if (status == TAP_OK)
        status = tap_hamer_read(model, err);
    tap_hamer_free(model);
    tap_weights_close(weights);
    return status;
}

static bool answers(const char *name, const char *wanted, const char *words)
{
    char path[64];
    tap_error err = {.status = TAP_OK, .message = ""};
    tap_status status = load(name, &err);
    snprintf(path, sizeof path, "%s/owned", folder);
    if (access(path, F_OK) == 0)
        fail_msg("%s: something in it was run", name);
    if (strcmp(tap_status_name(status), wanted) == 0 && strstr(err.message, words) != NULL)
        return true;
    printf("%s: wanted %s with \"%s\", got %s \"%s\"\n", name, wanted, words,
           tap_status_name(status), err.message);
    return false;
}

/* How many files the list has; *wrong: how many of them were answered otherwise. */
static size_t check_list(bool (*check)(const char *name, const char *status, const char *words),
                         size_t *wrong)
{
    char line[512];
    size_t n = 0;
    *wrong = 0;
    snprintf(line, sizeof line, "%s/list.txt", folder);
    FILE *list = fopen(line, "r");
    assert_non_null(list);
    while (fgets(line, sizeof line, list) != NULL) {
        char *status = strchr(line, '\t'), *words = status ? strchr(status + 1, '\t') : NULL;
        assert_non_null(words);
        *status++ = *words++ = '\0';
        words[strcspn(words, "\n")] = '\0';
        *wrong += !check(line, status, words);
        n++;
    }
    fclose(list);
    return n;
}

static void checkpoints_are_told_what_they_are(void **state)
{
    (void)state;
    size_t wrong;
    make_files("make_checkpoints.py");
    size_t n = check_list(answers, &wrong);
    printf("%zu checkpoints, %zu not answered as they should be\n", n, wrong);
    assert_int_equal(wrong, 0);
    assert_true(n >= 40);
}

/* Objects are marks here and no errors, so that the words may be others; but no file is a HaMeR. */
static bool is_refused(const char *name, const char *status, const char *words)
{
    (void)status, (void)words;
    tap_error err = {.status = TAP_OK, .message = ""};
    tap_status result = load(name, &err);
    if (result != TAP_OK && result == err.status && err.message[0] != '\0')
        return true;
    printf("%s: %s\n", name, tap_status_name(result));
    return false;
}

/* A zip's faults are a .npz's, too, and have the same words. */
static bool is_no_hand(const char *name, const char *status, const char *words)
{
    static const char *const same[] = {"zip_encrypted", "zip_disk",   "zip_two_directories",
                                       "zip_count_",    "zip_offset", "zip_overlap",
                                       "lfs_",          "html",       "empty"};
    char path[1024];
    tap_mano *mano;
    tap_error err = {.status = TAP_OK, .message = ""};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tap_status result = tap_mano_load(&mano, path, &err);
    tap_mano_free(mano);
    bool right = result != TAP_OK && result == err.status && err.message[0] != '\0';
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strncmp(name, same[i], strlen(same[i])) == 0)
            right = right && strcmp(tap_status_name(result), status) == 0 &&
                    strstr(err.message, words) != NULL;
    if (!right)
        printf("%s: %s \"%s\"\n", name, tap_status_name(result), err.message);
    return right;
}

static void no_bad_file_is_a_checkpoint_or_a_hand(void **state)
{
    (void)state;
    size_t wrong;
    make_files("make_models.py");
    assert_true(check_list(is_refused, &wrong) >= 200);
    assert_int_equal(wrong, 0);
    check_list(is_no_hand, &wrong);
    assert_int_equal(wrong, 0);
    assert_int_not_equal(access("/tmp/owned", F_OK), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_are_told_what_they_are),
        cmocka_unit_test(no_bad_file_is_a_checkpoint_or_a_hand),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
