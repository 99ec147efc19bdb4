/* How far two words are apart, for "did you mean". */
#include "base/edit.h"

#include <stddef.h>
#include <string.h>

#define WORD_MAX 64u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t dyti_edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    uint32_t row[3][WORD_MAX]; /* before the last, the last, this one */

    if (la >= WORD_MAX || lb >= WORD_MAX) {
        return UINT32_MAX;
    }
    for (uint32_t j = 0; j <= lb; j++) {
        row[1][j] = j;
    }
    for (uint32_t i = 1; i <= la; i++) {
        row[2][0] = i;
        for (uint32_t j = 1; j <= lb; j++) {
            uint32_t d = row[1][j - 1] + (a[i - 1] != b[j - 1]);

            d = least(d, least(row[1][j], row[2][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1]) {
                d = least(d, row[0][j - 2] + 1);
            }
            row[2][j] = d;
        }
        memcpy(row[0], row[1], sizeof(row[0]));
        memcpy(row[1], row[2], sizeof(row[1]));
    }
    return row[1][lb];
}
