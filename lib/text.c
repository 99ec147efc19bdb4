/* Texts that callers give back, and structs that they made. */
#include "lib/handles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dyt_text_free(char *text)
{
    free(text);
}

enum dyt_status dyti_struct_check(const char *name, uint32_t struct_size,
                                  uint32_t least)
{
    return struct_size >= least
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "struct %s has struct_size %u, the first release "
                           "had %u: set it to sizeof(struct %s)",
                           name, struct_size, least, name);
}

enum dyt_status dyti_null_argument(const char *function)
{
    return DYTI_FAIL(DYT_ERR_INVALID, "%s: a NULL argument", function);
}

enum dyt_status dyti_text_open(struct dyti_text *text)
{
    *text = (struct dyti_text){0};
    text->file = open_memstream(&text->bytes, &text->count);
    return text->file != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM, "a text: %s", strerror(errno));
}

enum dyt_status dyti_text_finish(struct dyti_text *text, enum dyt_status st,
                                 char **out_text)
{
    if (text->file != NULL && fclose(text->file) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a text of %zu bytes", text->count);
    }
    if (st != DYT_OK) {
        free(text->bytes);
        return st;
    }
    *out_text = text->bytes;
    return DYT_OK;
}
