/* Every bad file that make_models.py writes is refused with its own words. */
#include "check.h"

#include "weights/weights.h"

/* The system's before any other: only the standard library is needed. */
#define PYTHON "PATH=/usr/bin:$PATH python3"

static int make_files(char *folder)
{
    char command[256];
    if (system(PYTHON " -c '' 2>/dev/null") != 0) {
        printf("SKIP: no python3, which writes the bad files\n");
        return 1;
    }
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, PYTHON " tests/hostile/make_models.py %s", folder);
    assert_int_equal(system(command), 0);
    return 0;
}

static bool refuses(const char *folder, const char *name, const char *status, const char *words)
{
    char path[1024];
    tap_weights *weights = NULL;
    tap_error err = {.status = TAP_OK};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tap_status result = tap_weights_open(&weights, path, &err);
    tap_weights_close(weights);
    if (result == err.status && strcmp(tap_status_name(result), status) == 0 &&
        strstr(err.message, words) != NULL)
        return true;
    printf("%s: wanted %s with \"%s\", got %s \"%s\"\n", name, status, words,
           tap_status_name(result), result != TAP_OK ? err.message : "");
    return false;
}

static void test_bad_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/tap_hostile_XXXXXX", line[512], command[256];
    if (make_files(folder) != 0)
        skip();
    snprintf(line, sizeof line, "%s/list.txt", folder);
    FILE *list = fopen(line, "r");
    assert_non_null(list);
    size_t n = 0, wrong = 0;
    while (fgets(line, sizeof line, list) != NULL) {
        char *status = strchr(line, '\t'), *words = status ? strchr(status + 1, '\t') : NULL;
        assert_non_null(words);
        *status++ = *words++ = '\0';
        words[strcspn(words, "\n")] = '\0';
        wrong += !refuses(folder, line, status, words);
        n++;
    }
    fclose(list);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    printf("%zu hostile model files, %zu not refused as they should be\n", n, wrong);
    assert_int_equal(wrong, 0);
    assert_true(n >= 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
