/* What the parts of the tokenizer share about text: UTF-8, character classes,
 * the byte alphabet, normal forms, and a list of ids that grows. */
#ifndef DYTI_FORMAT_TOKENIZER_TEXT_H
#define DYTI_FORMAT_TOKENIZER_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Code point at `text`, its bytes in *out_bytes; -1 if it is not valid. */
int32_t dyti_utf8_next(const char *text, size_t size_bytes, size_t *out_bytes);
/* Start of the code point that ends at `end`; 0 < end, valid UTF-8. */
size_t dyti_utf8_before(const char *text, size_t end);
/* Offset of the first invalid byte, SIZE_MAX if there is none. */
size_t dyti_utf8_check(const char *text, size_t size_bytes);
/* 1..4 bytes into buf. */
size_t dyti_utf8_put(int32_t code, char buf[4]);

bool dyti_is_space(int32_t code);   /* White_Space */
bool dyti_is_word(int32_t code);    /* letters, marks, digits, connectors */
bool dyti_is_numeric(int32_t code); /* Nd, Nl, No */

/* The character that stands for a byte in vocabularies, and back (-1). */
int32_t dyti_byte_char(unsigned char byte);
int32_t dyti_char_byte(int32_t code);

/* Bytes that a vocabulary entry stands for; false if a character of it is not
 * in the byte alphabet.  buf has room for size_bytes. */
bool dyti_byte_text(const char *text, size_t size_bytes, char *buf,
                    size_t *out_bytes);

enum dyti_normal_form { DYTI_NFC, DYTI_NFD, DYTI_NFKC, DYTI_NFKD };

/* *out_text is malloc'ed. */
enum dyt_status dyti_normalize(enum dyti_normal_form form, const char *text,
                               size_t size_bytes, char **out_text,
                               size_t *out_bytes);

struct dyti_ids {
    int32_t *id; /* [count] */
    size_t count, cap;
};
enum dyt_status dyti_ids_push(struct dyti_ids *ids, int32_t id);

#endif /* DYTI_FORMAT_TOKENIZER_TEXT_H */
