/* cache: packed weights in a file that later loads map, so that a large model is ready at once and
 * processes share its pages. docs/hamer.md, "The cache". Private to api.
 *
 * File    a header of HEADER_BYTES: what the weights were packed from and for, the blocks, what the
 *         reference executor said at the warm-up gate, a checksum of all that; then the blocks,
 * each at a multiple of a page. It is written beside and renamed when all is in it. */
#ifndef TAP_API_CACHE_H
#define TAP_API_CACHE_H

#include "net/net.h"
#include "weights/weights.h"

typedef struct tap_cache tap_cache;

/* Looks in the folder (NULL: $TAPETUM_CACHE, $XDG_CACHE_HOME/tapetum, ~/.cache/tapetum; "": *cache
 * is NULL) for what weights were packed into for this layout ("avx2-f32"). A file that does not fit
 * them to the byte, is damaged, or is not this user's own counts as none.
 * Errors  TAP_ERR_MEMORY only: all else means packing afresh. */
tap_status tap_cache_open(tap_cache **cache, const char *folder, const tap_weights *weights,
                          const char *layout, tap_error *err);
/* Unmaps; the programs that were packed there must be gone. NULL is fine. */
void tap_cache_free(tap_cache *cache);

/* There is a file, made from these weights. */
bool tap_cache_found(const tap_cache *cache);
/* Forgets it: what is packed from now on goes into a new one. */
void tap_cache_drop(tap_cache *cache);
/* Its blocks were used. NULL gives false. */
bool tap_cache_hit(const tap_cache *cache);

/* Memory for a program's weights: the file's, or a new file's, or if that can't be made (a full
 * disk, no such folder) plain memory. TAP_ERR_INTERNAL: the file has other blocks than are asked
 * for; drop it. */
tap_pack_store tap_cache_store(tap_cache *cache);

/* The gate's reference, n values; NULL without a hit, or if it has another length. */
const float *tap_cache_reference(const tap_cache *cache, size_t n);

/* Makes the new file appear, with the gate's reference. Nothing to do after a hit. A failure costs
 * the next load its time and nothing else: the message is for the log. */
tap_status tap_cache_commit(tap_cache *cache, const float *reference, size_t n, tap_error *err);

#endif
