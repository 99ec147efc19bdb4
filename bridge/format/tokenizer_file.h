/* An open tokenizer.json: shared by the files that read and use it. */
#ifndef DYTI_FORMAT_TOKENIZER_FILE_H
#define DYTI_FORMAT_TOKENIZER_FILE_H

#include "format/tokenizer_added.h"
#include "format/tokenizer_bpe.h"
#include "format/tokenizer_pre.h"

#define DYTI_MOST_FORMS 4u

struct dyti_tokenizer_file {
    struct dyti_bpe bpe;
    struct dyti_pre pre;
    struct dyti_added raw;        /* looked for in the text as it comes */
    struct dyti_added normalized; /* … after the normalizer */
    enum dyti_normal_form form[DYTI_MOST_FORMS]; /* [form_count], in order */
    size_t form_count;
    struct dyti_ids prefix, suffix; /* what the post-processor adds */
};

/* *out_text is malloc'ed; the normalizer of the file applied to it. */
enum dyt_status dyti_tokenizer_normalize(const struct dyti_tokenizer_file *file,
                                         const char *text, size_t text_bytes,
                                         char **out_text, size_t *out_bytes);

/* Fill from the parsed document.  fini() also after a failure. */
enum dyt_status dyti_tokenizer_file_init(struct dyti_tokenizer_file *file,
                                         const struct dyti_json_at *top);
void dyti_tokenizer_file_fini(struct dyti_tokenizer_file *file);

#endif /* DYTI_FORMAT_TOKENIZER_FILE_H */
