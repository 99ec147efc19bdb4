/* Edit distances with a limit that shrinks to the best one found so far, so
 * that a catalogue of tens of thousands of names is searched in milliseconds.
 */
#include "plugin/near.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES 255u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What two texts begin and end with alike costs nothing. */
static void strip(const char **a, size_t *a_bytes, const char **b,
                  size_t *b_bytes)
{
    while (*a_bytes > 0 && *b_bytes > 0 && **a == **b) {
        ++*a, ++*b, --*a_bytes, --*b_bytes;
    }
    while (*a_bytes > 0 && *b_bytes > 0 &&
           (*a)[*a_bytes - 1] == (*b)[*b_bytes - 1]) {
        --*a_bytes, --*b_bytes;
    }
}

uint32_t dyti_near_distance(const char *a, const char *b, uint32_t limit)
{
    size_t a_bytes = strnlen(a, MOST_BYTES), b_bytes = strnlen(b, MOST_BYTES);
    uint32_t row[MOST_BYTES + 1];

    strip(&a, &a_bytes, &b, &b_bytes);
    if ((a_bytes > b_bytes ? a_bytes - b_bytes : b_bytes - a_bytes) > limit) {
        return limit + 1;
    }
    for (uint32_t j = 0; j <= b_bytes; j++) {
        row[j] = j;
    }
    for (uint32_t i = 1; i <= a_bytes; i++) {
        /* Further than `limit` from the diagonal nothing can be near. */
        uint32_t lo = i > limit ? i - limit : 1;
        uint32_t hi = least((uint32_t)b_bytes, i + limit);
        uint32_t diagonal = row[lo - 1], best = limit + 1;

        row[lo - 1] = lo == 1 ? i : limit + 1;
        best = least(best, row[lo - 1]);
        for (uint32_t j = lo; j <= hi; j++) {
            uint32_t change = diagonal + (a[i - 1] != b[j - 1]);
            uint32_t above = j < i + limit ? row[j] : limit + 1;

            diagonal = row[j];
            row[j] = least(change, 1 + least(above, row[j - 1]));
            best = least(best, row[j]);
        }
        if (best > limit) {
            return limit + 1;
        }
    }
    return row[b_bytes] > limit ? limit + 1 : row[b_bytes];
}

void dyti_near_tensors(const struct dyti_model *catalogue, const char *name,
                       uint32_t out_tensor[DYTI_NEAR])
{
    uint32_t limit = (uint32_t)strnlen(name, MOST_BYTES) / 3 + 1;
    uint32_t distance[DYTI_NEAR];

    for (uint32_t n = 0; n < DYTI_NEAR; n++) {
        out_tensor[n] = UINT32_MAX;
        distance[n] = limit + 1;
    }
    for (uint32_t t = 0; t < catalogue->tensor_count; t++) {
        uint32_t worst = distance[DYTI_NEAR - 1], d, at = DYTI_NEAR - 1;

        if (worst == 0) {
            break;
        }
        d = dyti_near_distance(catalogue->tensor[t].name, name, worst - 1);
        if (d >= worst) {
            continue;
        }
        for (; at > 0 && distance[at - 1] > d; at--) {
            distance[at] = distance[at - 1];
            out_tensor[at] = out_tensor[at - 1];
        }
        distance[at] = d;
        out_tensor[at] = t;
    }
}

struct dyti_near_words dyti_near_words(const struct dyti_model *catalogue,
                                       const char *name)
{
    struct dyti_near_words words = {""};
    uint32_t near[DYTI_NEAR];

    dyti_near_tensors(catalogue, name, near);
    if (near[0] == UINT32_MAX) {
        return words;
    }
    (void)snprintf(
        words.text, sizeof(words.text), " (nearest: %s%s%s)",
        catalogue->tensor[near[0]].name, near[1] == UINT32_MAX ? "" : ", ",
        near[1] == UINT32_MAX ? "" : catalogue->tensor[near[1]].name);
    return words;
}
