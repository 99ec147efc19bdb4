/* Text under the tokenizer; Unicode properties come from utf8proc. */
#include "format/tokenizer_text.h"

#include "base/array.h"

#include "base/banned.h"

#include <utf8proc.h>

int32_t dyti_utf8_next(const char *text, size_t size_bytes, size_t *out_bytes)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t used;
    unsigned char first;

    if (size_bytes == 0) {
        return -1;
    }
    first = (unsigned char)text[0];
    if (first < 0x80) {
        *out_bytes = 1;
        return first;
    }
    used = utf8proc_iterate((const utf8proc_uint8_t *)text,
                            size_bytes < 4 ? (utf8proc_ssize_t)size_bytes : 4,
                            &code);
    if (used <= 0) {
        return -1;
    }
    *out_bytes = (size_t)used;
    return code;
}

size_t dyti_utf8_before(const char *text, size_t end)
{
    do {
        end--;
    } while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80);
    return end;
}

size_t dyti_utf8_check(const char *text, size_t size_bytes)
{
    size_t at = 0, used = 0;

    while (at < size_bytes) {
        if (dyti_utf8_next(text + at, size_bytes - at, &used) < 0) {
            return at;
        }
        at += used;
    }
    return SIZE_MAX;
}

size_t dyti_utf8_put(int32_t code, char buf[4])
{
    return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)buf);
}

bool dyti_is_space(int32_t code)
{
    switch (code) {
    case 0x20:
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000:
        return true;
    default:
        return (code >= 0x09 && code <= 0x0d) ||
               (code >= 0x2000 && code <= 0x200a);
    }
}

bool dyti_is_word(int32_t code)
{
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return code == 0x200c || code == 0x200d; /* joiners */
    }
}

bool dyti_is_numeric(int32_t code)
{
    utf8proc_category_t category = utf8proc_category(code);

    return category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

/* ---- the byte alphabet -------------------------------------------------- */

/* Printable Latin-1 stands for itself; the other 68 bytes, in order, are moved
 * to U+0100 and on. */
static bool stands_for_itself(int32_t x)
{
    return (x >= '!' && x <= '~') || (x >= 0xa1 && x <= 0xac) ||
           (x >= 0xae && x <= 0xff);
}

int32_t dyti_byte_char(unsigned char byte)
{
    if (stands_for_itself(byte)) {
        return byte;
    }
    if (byte <= 0x20) {
        return 0x100 + byte;
    }
    return byte == 0xad ? 0x143 : 0x121 + (byte - 0x7f);
}

int32_t dyti_char_byte(int32_t code)
{
    if (code < 0x100) {
        return stands_for_itself(code) ? code : -1;
    }
    if (code <= 0x120) {
        return code - 0x100;
    }
    if (code <= 0x142) {
        return code - 0x121 + 0x7f;
    }
    return code == 0x143 ? 0xad : -1;
}

bool dyti_byte_text(const char *text, size_t size_bytes, char *buf,
                    size_t *out_bytes)
{
    size_t at = 0, used = 0, put = 0;

    while (at < size_bytes) {
        int32_t code = dyti_utf8_next(text + at, size_bytes - at, &used);
        int32_t byte = code < 0 ? -1 : dyti_char_byte(code);

        if (byte < 0) {
            return false;
        }
        buf[put++] = (char)(unsigned char)byte;
        at += used;
    }
    *out_bytes = put;
    return true;
}

/* ---- normal forms ------------------------------------------------------- */

enum dyt_status dyti_normalize(enum dyti_normal_form form, const char *text,
                               size_t size_bytes, char **out_text,
                               size_t *out_bytes)
{
    static const utf8proc_option_t option[] = {
        [DYTI_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [DYTI_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [DYTI_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [DYTI_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t length;

    length = utf8proc_map((const utf8proc_uint8_t *)text,
                          (utf8proc_ssize_t)size_bytes, &result, option[form]);
    if (length < 0) {
        return DYTI_FAIL(
            length == UTF8PROC_ERROR_NOMEM ? DYT_ERR_NOMEM : DYT_ERR_INVALID,
            "normalizing %zu bytes: %s", size_bytes, utf8proc_errmsg(length));
    }
    *out_text = (char *)result;
    *out_bytes = (size_t)length;
    return DYT_OK;
}

enum dyt_status dyti_ids_push(struct dyti_ids *ids, int32_t id)
{
    enum dyt_status st = DYTI_GROW(ids->id, ids->cap, ids->count + 1);

    if (st == DYT_OK) {
        ids->id[ids->count++] = id;
    }
    return st;
}
