/* How far two words are apart, for "did you mean". */
#ifndef DYTI_BASE_EDIT_H
#define DYTI_BASE_EDIT_H

#include <stdint.h>

/* Insertions, deletions, replacements and swaps between two words; words of
 * more than 63 bytes are far from everything. */
uint32_t dyti_edit_distance(const char *a, const char *b);

#endif /* DYTI_BASE_EDIT_H */
