/* cli: the tapetum program. One file a verb; each verb is a table that parses its options, prints
 * its --help and is compared with its man page. Private to the room. */
#ifndef TAP_CLI_H
#define TAP_CLI_H

#include "core/core.h"
#include "hub/hub.h"

#include "tapetum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the shell sees; tapetum(1), EXIT STATUS. */
enum {
    TAP_EXIT_OK = 0,
    TAP_EXIT_FAILED = 1,  /* a picture or file failed; the others were done */
    TAP_EXIT_USAGE = 2,   /* the command line is wrong; nothing was done */
    TAP_EXIT_WEIGHTS = 3, /* the weights are missing, wrong, or could not be fetched */
    TAP_EXIT_SERVER = 4   /* the server could not start, or broke off */
};

/* ---- tables of options (options.c) --------------------------------------------------------- */

typedef enum tap_option_kind {
    TAP_OPTION_ON,      /* bool, set true */
    TAP_OPTION_OFF,     /* bool, set false */
    TAP_OPTION_TEXT,    /* const char * */
    TAP_OPTION_I32,     /* int32_t */
    TAP_OPTION_U32,     /* uint32_t */
    TAP_OPTION_U64,     /* uint64_t */
    TAP_OPTION_F32,     /* float */
    TAP_OPTION_SECONDS, /* uint32_t, in milliseconds; asked for in seconds, fractions allowed */
    TAP_OPTION_MIB,     /* size_t, in bytes; asked for in MiB */
    TAP_OPTION_CHOICE   /* an enum whose members are choices' indices */
} tap_option_kind;

typedef struct tap_option {
    const char *name;     /* "nms-radius" */
    char letter;          /* 'o', or 0 */
    const char *argument; /* "N"; NULL for ON and OFF */
    const char *help;     /* its defaults and ranges too; lines are broken by '\n' */
    tap_option_kind kind;
    size_t offset;              /* of its field in the verb's settings */
    double least, most;         /* for numbers, both allowed */
    const char *const *choices; /* for CHOICE: ends with NULL */
} tap_option;

/* Rows whose offsets count from a part of the settings; several verbs share one table. */
typedef struct tap_option_group {
    const tap_option *options; /* ends with a row without a name; NULL: no more groups */
    size_t offset;
} tap_option_group;

enum { TAP_OPTION_GROUPS = 4 };

typedef struct tap_verb {
    const char *name;
    const char *operands;                       /* "IMAGE..." */
    const char *summary;                        /* one line, no full stop */
    const char *examples;                       /* lines of shell and remarks */
    const char *notes;                          /* after the options; NULL: none */
    tap_option_group groups[TAP_OPTION_GROUPS]; /* the last one stays empty */
    /* argv[0] is the verb's name. Returns the exit status. */
    int (*run)(const struct tap_verb *verb, int argc, char **argv);
} tap_verb;

/* Reads argv into settings, which holds the defaults. *operands: argv's index of the first operand
 * (they follow one another up to argc). Returns -1, or the exit status with which to end: --help
 * has been printed, or the error has. */
int tap_cli_parse(const tap_verb *verb, int argc, char **argv, void *settings, int *operands);

/* What is wrong with the command line, on stderr, with the way to the help. TAP_EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int tap_cli_usage(const tap_verb *verb, const char *format,
                                                        ...);

/* The verb's help on stdout. */
void tap_cli_help(const tap_verb *verb);

/* ---- talking (talk.c) ---------------------------------------------------------------------- */

/* "tapetum: ..." on stderr, control characters as '?'. */
__attribute__((format(printf, 1, 2))) void tap_cli_complain(const char *format, ...);

/* Flushes stdout; if anything was lost (a full disk) complains and gives TAP_EXIT_FAILED, else
 * status. */
int tap_cli_finish(int status);

/* A bar on stderr where that is a terminal; else nothing at all. */
typedef struct tap_progress {
    bool active, color;
    uint64_t total, done; /* total 0: not known yet */
    double shown_ms;
} tap_progress;

void tap_progress_begin(tap_progress *progress, uint64_t total, bool wanted);
void tap_progress_show(tap_progress *progress, uint64_t done, const char *name);
/* Takes the bar off the screen, before another line is written and at the end. */
void tap_progress_clear(tap_progress *progress);

/* ---- weights, engine, model (model.c) ------------------------------------------------------ */

/* The repository that SuperPoint's weights come from, with $HF_MODEL and $TT_WEIGHTS_REVISION. */
tap_hub_repo tap_cli_repo(void);

extern const char *const tap_cli_weights_files[2];

/* Where the weights are: given, else $SP_WEIGHTS_DIR, else the hub's cache. *path is freed by the
 * caller. TAP_ERR_NOT_FOUND: the message says what to type. */
tap_status tap_cli_find_weights(char **path, const char *given, tap_error *err);

typedef struct tap_cli_model_settings {
    const char *weights, *isa;
    uint32_t n_threads;
    bool quiet;
} tap_cli_model_settings;

/* --weights, --threads, --isa, --quiet: offsets in the struct above. */
extern const tap_option tap_cli_model_options[];

typedef struct tap_cli_model {
    tap_engine *engine;
    tap_model *model;
    tap_session *session;
} tap_cli_model;

/* Opens all three and says on stderr which weights these are and what their licence asks, unless
 * quiet. Returns -1, or the exit status after a complaint. */
int tap_cli_open(tap_cli_model *model, const tap_cli_model_settings *settings);
void tap_cli_close(tap_cli_model *model);

/* ---- SuperPoint's options, for the verbs that run it (model.c) ------------------------------ */

typedef struct tap_cli_points_settings {
    tap_superpoint_options options;
    const char *input_size; /* "640x480", "native" */
} tap_cli_points_settings;

/* --size, --max-keypoints and the rest: offsets in the struct above. */
extern const tap_option tap_cli_points_options[];

void tap_cli_points_init(tap_cli_points_settings *settings);

/* input_size into the options. TAP_ERR_ARGUMENT. */
tap_status tap_cli_points_finish(tap_cli_points_settings *settings, tap_error *err);

/* "WxH", "native" */
tap_status tap_cli_read_size(const char *text, uint32_t *width, uint32_t *height, bool *native,
                             tap_error *err);

extern const char *const tap_cli_nms[], *const tap_cli_gray[], *const tap_cli_exif[],
                                                                   *const tap_cli_coordinates[];

/* ---- pictures to work on (inputs.c) -------------------------------------------------------- */

/* Paths in the order given; a folder's pictures by name. "-" is standard input. */
typedef struct tap_inputs {
    char **paths;
    size_t n, capacity;
} tap_inputs;

/* Adds a file, "-", or the pictures of a folder (.jpg .jpeg .png .webp; not those of its folders).
 * Errors: a folder that can't be read or has none, TAP_ERR_MEMORY. */
tap_status tap_inputs_add(tap_inputs *inputs, const char *path, tap_error *err);
void tap_inputs_free(tap_inputs *inputs);

/* The file that an input's result goes to. One input: target itself. Several: the folder target,
 * with the input's last name and suffix after it. *path is freed by the caller. */
tap_status tap_inputs_target(char **path, const char *target, bool several, const char *input,
                             const char *suffix, tap_error *err);

/* Refuses a target, or NULL not, before anything is done: for several inputs' results one that is
 * no folder; else one that exists and is no regular file, since a file is written by renaming,
 * which would replace a device or a pipe. Returns -1, or TAP_EXIT_USAGE after a complaint. */
int tap_cli_check_target(const tap_verb *verb, const char *target, bool several);

/* Several inputs of one last name would overwrite one another: TAP_ERR_ARGUMENT. */
tap_status tap_inputs_check_names(const tap_inputs *inputs, tap_error *err);

/* ---- verbs --------------------------------------------------------------------------------- */

extern const tap_verb tap_verb_superpoint, tap_verb_match, tap_verb_serve, tap_verb_fetch,
    tap_verb_synth, tap_verb_info;

#endif
