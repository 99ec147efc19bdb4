/* Finds the smallest failing case of a property test.  A case is a list of
 * numbers; smaller numbers make smaller cases.
 *
 *   static const char *check(const int64_t *value);   NULL: it holds
 *   ...
 *   dyt_shrink_hold(check, name, least, value, COUNT);
 *
 * Each number is tried at its least, at half way down and one less, as long as
 * the case still fails; the last one that fails is printed. */
#ifndef DYT_SHRINK_H
#define DYT_SHRINK_H

#include "dyt_test.h"

#include <inttypes.h>

typedef const char *(*dyt_shrink_fn)(const int64_t *value);

static inline bool dyt_shrink_once(dyt_shrink_fn check, const int64_t *least,
                                   int64_t *value, size_t count,
                                   const char **why)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t down = value[i] - least[i];
        const int64_t tries[] = {least[i], value[i] - down / 2, value[i] - 1};

        for (size_t k = 0; k < 3 && down > 0; k++) {
            int64_t keep = value[i];
            const char *now;

            if (tries[k] == keep) {
                continue;
            }
            value[i] = tries[k];
            now = check(value);
            if (now != NULL) {
                *why = now;
                return true;
            }
            value[i] = keep;
        }
    }
    return false;
}

/* Makes a case as small as it gets while it fails, and says why that one does;
 * NULL: it holds as it is. */
static inline const char *dyt_shrink_down(dyt_shrink_fn check,
                                          const int64_t *least, int64_t *value,
                                          size_t count)
{
    const char *why = check(value);

    while (why != NULL && dyt_shrink_once(check, least, value, count, &why)) {
    }
    return why;
}

static inline void dyt_shrink_hold(dyt_shrink_fn check, const char *const *name,
                                   const int64_t *least, int64_t *value,
                                   size_t count)
{
    const char *why = dyt_shrink_down(check, least, value, count);

    if (why == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        print_error("  %s %" PRId64 "\n", name[i], value[i]);
    }
    fail_msg("the smallest case that fails: %s", why);
}

#endif /* DYT_SHRINK_H */
