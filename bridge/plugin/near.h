/* Names that look like another: for "did you mean". */
#ifndef DYTI_PLUGIN_NEAR_H
#define DYTI_PLUGIN_NEAR_H

#include "vps/model.h"

#define DYTI_NEAR 2u

/* The nearest tensors of a catalogue by edit distance, nearest first; at most
 * `most` edits away by a third of the name.  UINT32_MAX: none. */
void dyti_near_tensors(const struct dyti_model *catalogue, const char *name,
                       uint32_t out_tensor[DYTI_NEAR]);

/* The same in words: " (nearest: a, b)", or "" if nothing is near. */
struct dyti_near_words {
    char text[2 * 255 + 24];
};
struct dyti_near_words dyti_near_words(const struct dyti_model *catalogue,
                                       const char *name);

/* Edit distance of two names; limit + 1 where it is more than `limit`. */
uint32_t dyti_near_distance(const char *a, const char *b, uint32_t limit);

#endif /* DYTI_PLUGIN_NEAR_H */
