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
    TAP_OPTION_CHOICE,  /* an enum whose members are choices' indices */
    TAP_OPTION_OWN      /* read by the verb itself, each time that it is given */
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

enum { TAP_OPTION_GROUPS = 5 };

typedef struct tap_verb {
    const char *name;
    const char *operands;                       /* "IMAGE..." */
    const char *summary;                        /* one line, no full stop */
    const char *examples;                       /* lines of shell and remarks */
    const char *notes;                          /* after the options; NULL: none */
    tap_option_group groups[TAP_OPTION_GROUPS]; /* the last one stays empty */
    /* Reads an option of kind OWN, in the order of the command line; value is NULL for one without
     * an argument. The message, without the option's name, is said as wrong usage. */
    tap_status (*take)(void *settings, const char *name, const char *value, tap_error *err);
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

/* ---- which models there are, and where their weights are (weights.c) ------------------------ */

typedef struct tap_cli_kind {
    const char *name;           /* "superpoint" */
    const char *title;          /* "SuperPoint" */
    const char *repo;           /* on the hub; $HF_MODEL names another */
    const char *revision;       /* " ; $TT_WEIGHTS_REVISION names another */
    const char *variable;       /* "SP_WEIGHTS_DIR": a folder or file, before the hub's cache */
    const char *const *files;   /* [n_files] of the repository */
    const uint64_t *most_bytes; /* [n_files] */
    size_t n_files;
    bool one_file;       /* the model is loaded by its last file's name, not its folder's */
    const char *licence; /* a sentence without full stop, for fetch */
    const char *terms;   /* the same in a few words */
} tap_cli_kind;

extern const tap_cli_kind tap_cli_superpoint, tap_cli_hamer;

/* NULL: there is no such model. */
const tap_cli_kind *tap_cli_find_kind(const char *name);

/* For a verb whose operand i (up to argc) is a model: *kind, or TAP_EXIT_USAGE after a complaint.
 * Returns -1 if there is one. */
int tap_cli_need_kind(const tap_verb *verb, const char *name, const tap_cli_kind **kind);

/* The repository that the weights come from, with $HF_MODEL and $TT_WEIGHTS_REVISION. */
tap_hub_repo tap_cli_repo(const tap_cli_kind *kind);

/* Where the weights are: given, else what kind->variable names, else the hub's cache. *path is
 * freed by the caller. TAP_ERR_NOT_FOUND: the message says what to type. */
tap_status tap_cli_find_weights(char **path, const tap_cli_kind *kind, const char *given,
                                tap_error *err);

/* A variable's value, or otherwise if it is not set or empty. */
const char *tap_cli_environment(const char *name, const char *otherwise);

/* ---- engine, model (model.c) ---------------------------------------------------------------- */

typedef struct tap_cli_model_settings {
    const char *weights, *isa;
    uint32_t n_threads;
    bool quiet;
    unsigned precision; /* HaMeR: index in tap_cli_precisions */
    const char *mano;   /* HaMeR; "none" */
    bool skip_gate;
} tap_cli_model_settings;

extern const char *const tap_cli_precisions[];

/* Offsets in the struct above: --threads, --isa, --quiet; --weights of SuperPoint; --weights and
 * --precision of HaMeR, and --mano. */
extern const tap_option tap_cli_model_options[], tap_cli_superpoint_weights[],
    tap_cli_hamer_weights[], tap_cli_mano_options[];

typedef struct tap_cli_model {
    tap_engine *engine;
    tap_model *model;
    tap_session *session;
} tap_cli_model;

/* Opens all three, with a bar while weights are packed, and says on stderr which weights these are
 * and what their licence asks, unless quiet. Returns -1, or the exit status after a complaint. */
int tap_cli_open(tap_cli_model *model, const tap_cli_kind *kind,
                 const tap_cli_model_settings *settings);
void tap_cli_close(tap_cli_model *model);

/* A tap_progress_callback whose user is a tap_progress. */
bool tap_cli_show_progress(void *user, const char *what, uint64_t done, uint64_t total);

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

/* ---- boxes of hands (boxes.c) -------------------------------------------------------------- */

/* A box, and the picture that it is in: its path or last name; NULL: it is in every picture. */
typedef struct tap_cli_box {
    tap_hand_box box;
    char *file;
} tap_cli_box;

typedef struct tap_cli_boxes {
    tap_cli_box *boxes;
    size_t n, capacity;
    bool is_right; /* of boxes that do not say */
} tap_cli_boxes;

/* Numbers with commas between, all finite. False: text is something else. */
bool tap_cli_read_numbers(const char *text, double *values, size_t n);

/* Adds "x1,y1,x2,y2", or with ",left" or ",right" after it. Errors TAP_ERR_ARGUMENT: not four
 * numbers, an empty or reversed box. */
tap_status tap_cli_boxes_add(tap_cli_boxes *boxes, const char *text, tap_error *err);

/* Adds a file's boxes; "-": standard input. JSON or CSV, by its first character; tapetum-hamer(1),
 * BOXES. Errors: the message names the file and the box or line. */
tap_status tap_cli_boxes_read(tap_cli_boxes *boxes, const char *path, tap_error *err);

/* The boxes that are in this picture, in order, at most TAP_HANDS_MAX; returns how many there are,
 * which may be more. */
size_t tap_cli_boxes_of(const tap_cli_boxes *boxes, const char *input,
                        tap_hand_box found[TAP_HANDS_MAX]);

void tap_cli_boxes_free(tap_cli_boxes *boxes);

/* ---- pictures to work on (inputs.c) -------------------------------------------------------- */

enum { TAP_PICTURE_BYTES = 1 << 30 }; /* the largest file that is read as a picture */

/* Paths in the order given; a folder's pictures by name. "-" is standard input. */
typedef struct tap_inputs {
    char **paths;
    size_t n, capacity;
    bool several; /* more than one operand, or a folder: results go to a folder */
    bool failed;  /* one could not be added, which was complained about */
} tap_inputs;

/* Adds a file, "-", or the pictures of a folder (.jpg .jpeg .png .webp; not those of its folders).
 * Errors: a folder that can't be read or has none, TAP_ERR_MEMORY. */
tap_status tap_inputs_add(tap_inputs *inputs, const char *path, tap_error *err);
void tap_inputs_free(tap_inputs *inputs);

/* Adds the operands argv[operand] to argv[argc - 1]. Returns -1, or TAP_EXIT_USAGE after a
 * complaint: there is none, or standard input is named twice. */
int tap_inputs_gather(tap_inputs *inputs, const tap_verb *verb, int argc, char **argv, int operand);

/* Calls one for each input, with a bar where there are several, unless quiet. one takes the bar off
 * before it writes, and returns false after a complaint. Returns the exit status. */
int tap_inputs_run(const tap_inputs *inputs, bool quiet,
                   bool (*one)(void *user, tap_progress *progress, const char *input), void *user);

/* What went wrong with an input. The library's messages about a picture's bytes do not know its
 * name: named is false for those. Always false, as `one` above ends with. */
bool tap_inputs_complain(tap_progress *progress, const char *input, bool named,
                         const tap_error *err);

/* The file that an input's result goes to. One input: target itself. Several: the folder target,
 * with the input's last name and suffix after it. *path is freed by the caller. */
tap_status tap_inputs_target(char **path, const char *target, bool several, const char *input,
                             const char *suffix, tap_error *err);

/* Refuses a target, or NULL not, before anything is done: for several inputs' results one that is
 * no folder; else one that exists and is no regular file, since a file is written by renaming,
 * which would replace a device or a pipe. Returns -1, or TAP_EXIT_USAGE after a complaint. */
int tap_cli_check_target(const tap_verb *verb, const char *target, bool several);

/* The same for each of targets, and that no two results would go to one file. */
int tap_inputs_check_targets(const tap_inputs *inputs, const tap_verb *verb,
                             const char *const *targets, size_t n_targets);

/* ---- verbs --------------------------------------------------------------------------------- */

extern const tap_verb tap_verb_superpoint, tap_verb_match, tap_verb_hamer, tap_verb_serve,
    tap_verb_fetch, tap_verb_convert, tap_verb_synth, tap_verb_check, tap_verb_eval, tap_verb_info,
    tap_verb_validate;

#endif
