/* tapetum: vision models from the shell. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const tap_verb *const verbs[] = {&tap_verb_superpoint, &tap_verb_match, &tap_verb_hamer,
                                        &tap_verb_serve,      &tap_verb_fetch, &tap_verb_convert,
                                        &tap_verb_synth,      &tap_verb_check, &tap_verb_eval,
                                        &tap_verb_validate,   &tap_verb_info};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const char try_help[] = "type 'tapetum --help'";

static const tap_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static void print_help(void)
{
    puts("Vision models, run and served natively.\n"
         "\n"
         "  tapetum fetch superpoint                         # the weights, once\n"
         "  tapetum superpoint photo.jpg --draw points.png   # find keypoints, see them\n"
         "  tapetum superpoint photos/ --json > points.jsonl # a folder, one object a line\n"
         "  tapetum match left.jpg right.jpg --draw both.png # which points are the same\n"
         "  tapetum hamer photo.jpg --bbox 218,38,378,200 --draw hand.png   # a hand's shape\n"
         "  tapetum serve superpoint                         # HTTP on 127.0.0.1:20000\n"
         "\n"
         "Verbs:");
    for (size_t i = 0; i < N_VERBS; i++)
        printf("  %-12s%s\n", verbs[i]->name, verbs[i]->summary);
    puts(
        "  help VERB   the same as VERB --help\n"
        "\n"
        "Options:\n"
        "  -h, --help     this text\n"
        "      --version  version, compiler, libraries\n"
        "\n"
        "Exit status: 0 all done; 1 a picture or file failed; 2 wrong usage; 3 no usable weights;\n"
        "4 the server could not start or broke off. `man tapetum` has the rest.");
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_help();
        return tap_cli_finish(TAP_EXIT_OK);
    }
    const tap_verb *verb = find_verb(argv[1]);
    if (verb == NULL) {
        tap_cli_complain("help: there is no verb '%s': %s", argv[1], try_help);
        return TAP_EXIT_USAGE;
    }
    tap_cli_help(verb);
    return tap_cli_finish(TAP_EXIT_OK);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        tap_cli_complain("no verb is given: %s", try_help);
        return TAP_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help();
        return tap_cli_finish(TAP_EXIT_OK);
    }
    if (strcmp(word, "--version") == 0) {
        puts(tap_build_info());
        return tap_cli_finish(TAP_EXIT_OK);
    }
    if (strcmp(word, "help") == 0)
        return help(argc - 1, argv + 1);
    const tap_verb *verb = find_verb(word);
    if (verb != NULL)
        return verb->run(verb, argc - 1, argv + 1);
    tap_cli_complain(word[0] == '-' ? "there is no option '%s': %s" : "there is no verb '%s': %s",
                     word, try_help);
    return TAP_EXIT_USAGE;
}
