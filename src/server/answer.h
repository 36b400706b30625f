/* Answers as JSON. Private to the server; the program's door is tap_answer_superpoint. */
#ifndef TAP_SERVER_ANSWER_H
#define TAP_SERVER_ANSWER_H

#include "server.h"
#include "text.h"

/* The contract's answer to /predict. npz: what "descriptors" carries; NULL without. asked: the
 * options of the request, for "params". Errors: TAP_ERR_INTERNAL: a number is not finite. */
tap_status tap_answer_points(tap_text *text, const char *file, const tap_keypoints_view *view,
                             const tap_superpoint_options *asked, const uint8_t *npz, size_t n_npz,
                             const tap_engine_info *engine, tap_error *err);

/* The answer to /match: pairs, similarities, and both results without their descriptors. */
tap_status tap_answer_match(tap_text *text, const tap_keypoints_view views[2],
                            const tap_superpoint_options *asked, const tap_match_options *match,
                            const tap_match_pair *pairs, size_t n_pairs, double match_ms,
                            const tap_engine_info *engine, tap_error *err);

/* The contract's answer to HaMeR's /predict. view: the result's own, or as the caller completed it.
 * Errors: as above. */
tap_status tap_answer_hands(tap_text *text, const char *file, const tap_hands *hands,
                            const tap_hands_view *view, const tap_hands_answer *answer,
                            tap_error *err);

/* The answer about n hands has no more bytes than this. */
size_t tap_answer_hands_bytes(size_t n, bool mano_available, const tap_hands_answer *answer);

/* {"detail": "..."} */
void tap_answer_detail(tap_text *text, const char *words);

/* How many points' answer stays under max_bytes, as JSON or as NPZ. */
size_t tap_answer_max_points(size_t max_bytes, bool descriptors, uint32_t dim, bool npz);

#endif
