/* One value while it is read; shared by job_value.c (numbers, fields) and
 * job_value_text.c (words, texts, lists). */
#ifndef DYTI_FORMAT_JOB_VALUE_H
#define DYTI_FORMAT_JOB_VALUE_H

#include "format/job_options.h"

/* What a message says before its own words. */
struct dyti_spot {
    const struct dyti_option *option;
    const struct dyti_toml *value;
    const struct dyti_place *place;
    const char *shown;
    char text[512]; /* "job.toml:3:1: key" */
};

void dyti_spot_init(struct dyti_spot *spot, const struct dyti_option *option,
                    const struct dyti_toml *value,
                    const struct dyti_place *place, const char *shown);

/* "an integer", …: what the row's type is to a user.  Static. */
const char *dyti_value_wanted(const struct dyti_option *option);
enum dyt_status dyti_value_wrong_type(const struct dyti_spot *spot);

/* Each checks and gives a value; untouched on failure. */
enum dyt_status dyti_value_read_integer(const struct dyti_spot *spot,
                                        double most, int64_t *out);
enum dyt_status dyti_value_read_choice(const struct dyti_spot *spot,
                                       uint32_t *out);
enum dyt_status dyti_value_read_text(const struct dyti_spot *spot, char **out);
enum dyt_status dyti_value_read_u32s(const struct dyti_spot *spot,
                                     uint32_t **out, uint32_t *out_count);
enum dyt_status dyti_value_read_texts(const struct dyti_spot *spot, char ***out,
                                      uint32_t *out_count);
void dyti_value_free_texts(char **item, uint32_t count);

#endif /* DYTI_FORMAT_JOB_VALUE_H */
