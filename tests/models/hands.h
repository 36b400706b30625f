/* What the tests of HaMeR's network share: its reference data and synthetic weights. */
#ifndef TAP_TESTS_MODELS_HANDS_H
#define TAP_TESTS_MODELS_HANDS_H

#include "models/arrays.h"

#include "models/hamer.h"

enum { N_CROPS = 2, N_CROP_VALUES = TAP_HAMER_HEIGHT * TAP_HAMER_WIDTH * 3 };

/* golden/hamer/NAME under the shared reference data, or the test is skipped. */
const char *hamer_path(char *path, size_t size, const char *name);

/* The two crops as the network sees them [N_CROPS][256][192][3], from malloc. */
float *load_crops(void);

/* Synthetic weights through a file that is gone again. */
tap_weights *open_synthetic(const tap_hamer_config *config);

/* n values of each crop, which lie stride apart from ours on, against a golden file. */
void compare_crops(const float *ours, size_t stride, size_t n, const char *name, double tolerance);

/* The network's outputs [N_CROPS][109] against CONFIG_rot6d.npy, CONFIG_betas.npy, CONFIG_cam.npy.
 */
void compare_outputs(const float *outputs, const char *config, double tolerance);

#endif
