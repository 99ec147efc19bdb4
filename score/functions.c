/* The reward functions that need nothing but two texts. */
#include "score/score.h"

#include "base/banned.h"

#include <ctype.h>
#include <math.h>

#define NUMBER_BYTES 512u

static unsigned char fold(char c, bool ignore_case)
{
    unsigned char u = (unsigned char)c;

    return ignore_case && u >= 'A' && u <= 'Z' ? (unsigned char)(u | 0x20u) : u;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Blanks around a text cut: *text moves, the length is the result. */
static size_t trim(const char **text)
{
    size_t bytes;

    while (blank(**text)) {
        (*text)++;
    }
    bytes = strlen(*text);
    while (bytes > 0 && blank((*text)[bytes - 1])) {
        bytes--;
    }
    return bytes;
}

double dyti_score_exact(const char *completion, const char *answer,
                        bool ignore_case)
{
    size_t bytes = trim(&completion);

    if (bytes != trim(&answer)) {
        return 0.0;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (fold(completion[i], ignore_case) != fold(answer[i], ignore_case)) {
            return 0.0;
        }
    }
    return 1.0;
}

/* Bytes of the UTF-8 character at `text`, 0 at its end; a stray byte is one. */
static size_t character(const char *text)
{
    size_t bytes = text[0] == '\0' ? 0 : 1;

    while (bytes > 0 && bytes < 4 &&
           ((unsigned char)text[0] & 0xc0u) == 0xc0u &&
           ((unsigned char)text[bytes] & 0xc0u) == 0x80u) {
        bytes++;
    }
    return bytes;
}

static bool same(const char *a, size_t a_bytes, const char *b, size_t b_bytes,
                 bool ignore_case)
{
    return a_bytes == b_bytes &&
           ((a_bytes == 1 &&
             fold(a[0], ignore_case) == fold(b[0], ignore_case)) ||
            memcmp(a, b, a_bytes) == 0);
}

/* Over the longer of the two, so that more text than asked for costs. */
double dyti_score_position_match(const char *completion, const char *answer,
                                 bool ignore_case)
{
    uint64_t right = 0, longest = 0;

    while (*completion != '\0' || *answer != '\0') {
        size_t c = character(completion), a = character(answer);

        right += a != 0 && same(completion, c, answer, a, ignore_case);
        longest++;
        completion += c;
        answer += a;
    }
    return longest == 0 ? 1.0 : (double)right / (double)longest;
}

/* ---- numbers ------------------------------------------------------------ */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A comma that groups thousands: three digits follow, and no fourth. */
static bool groups(const char *c)
{
    return c[0] == ',' && digit(c[1]) && digit(c[2]) && digit(c[3]) &&
           !digit(c[4]);
}

/* Minus or plus right before `at`, unless it joins two words: "3-4". */
static bool negative(const char *text, const char *at)
{
    const char *sign = at - 1;

    if (at - text >= 3 && memcmp(at - 3, "\xe2\x88\x92", 3) == 0) {
        sign = at - 3; /* the typographic minus */
    } else if (at == text || *sign != '-') {
        return false;
    }
    return sign == text || !isalnum((unsigned char)sign[-1]);
}

/* The number that begins at `at` (a digit, or a point before one), and where
 * it ends.  A run of digits longer than the buffer is no number of ours. */
static bool read_number(const char *at, double *out, const char **out_end)
{
    char buf[NUMBER_BYTES];
    size_t used = 0;
    bool point = false;

    while (used < sizeof(buf) - 1) {
        if (digit(*at)) {
            buf[used++] = *at++;
        } else if (*at == '.' && digit(at[1]) && !point) {
            point = true;
            buf[used++] = *at++;
        } else if (!point && used > 0 && groups(at)) {
            at++;
        } else {
            break;
        }
    }
    if ((*at == 'e' || *at == 'E') && used < sizeof(buf) - 8) {
        size_t sign = at[1] == '-' || at[1] == '+', i = 1 + sign;

        if (digit(at[i])) {
            buf[used++] = 'e';
            buf[used++] = sign ? at[1] : '+';
            for (size_t most = used + 4; digit(at[i]) && used < most; i++) {
                buf[used++] = at[i];
            }
            at += i;
        }
    }
    buf[used] = '\0';
    *out_end = at;
    *out = strtod(buf, NULL);
    return used < sizeof(buf) - 1;
}

bool dyti_score_last_number(const char *text, double *out_number)
{
    const char *at = text;
    bool found = false;

    while (*at != '\0') {
        const char *end;
        double number;

        if (!digit(*at) &&
            !(*at == '.' && digit(at[1]) && (at == text || !digit(at[-1])))) {
            at++;
            continue;
        }
        if (read_number(at, &number, &end)) {
            *out_number = negative(text, at) ? -number : number;
            found = true;
        }
        at = end;
    }
    return found;
}

double dyti_score_overlong(uint32_t tokens, uint32_t max_tokens,
                           uint32_t buffer, double factor)
{
    uint32_t free_tokens;
    double over;

    if (buffer == 0) {
        return 0.0;
    }
    free_tokens = max_tokens > buffer ? max_tokens - buffer : 0;
    if (tokens <= free_tokens) {
        return 0.0;
    }
    over = (double)(tokens - free_tokens) / (double)buffer;
    return (over > 1.0 ? 1.0 : over) * factor;
}
