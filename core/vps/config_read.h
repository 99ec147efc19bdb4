/* Typed access to a flattened configuration: what is wrong is said with file
 * and key by the function that sees it first.  For config*.c. */
#ifndef DYTI_VPS_CONFIG_READ_H
#define DYTI_VPS_CONFIG_READ_H

#include "vps/config.h"

/* Where keys lie: prefix (may be "") goes before each: "rope_scaling.". */
struct dyti_config_at {
    const char *file, *prefix;
    const struct dyti_config *config; /* NULL: every key is absent */
};

/* There and not null / there at all. */
bool dyti_config_has(const struct dyti_config_at *at, const char *key);
bool dyti_config_given(const struct dyti_config_at *at, const char *key);

/* DYT_ERR_FORMAT: absent, or of another type.  The value is in [least, most].
 * *out is set only on DYT_OK. */
enum dyt_status dyti_config_int(const struct dyti_config_at *at,
                                const char *key, int64_t least, int64_t most,
                                int64_t *out);
/* The same with a fallback: absent or null gives it. */
enum dyt_status dyti_config_int_or(const struct dyti_config_at *at,
                                   const char *key, int64_t least, int64_t most,
                                   int64_t fallback, int64_t *out);
enum dyt_status dyti_config_real_or(const struct dyti_config_at *at,
                                    const char *key, double fallback,
                                    double *out);
enum dyt_status dyti_config_bool_or(const struct dyti_config_at *at,
                                    const char *key, bool fallback, bool *out);
enum dyt_status dyti_config_text_or(const struct dyti_config_at *at,
                                    const char *key, const char *fallback,
                                    const char **out);
/* A number, or true and false as 1 and 0. */
bool dyti_config_number(const struct dyti_config_at *at, const char *key,
                        double *out);
/* Elements of a list; absent or null: 0. */
enum dyt_status dyti_config_array(const struct dyti_config_at *at,
                                  const char *key, size_t *out_count);
/* A text of a list, NULL: that element is none. */
const char *dyti_config_item(const struct dyti_config_at *at, const char *key,
                             size_t index);
enum dyt_status dyti_config_object(const struct dyti_config_at *at,
                                   const char *key, bool *out_there);

/* torch_dtype or dtype. */
enum dyt_status dyti_config_dtype(const struct dyti_config_at *at,
                                  enum dyti_dtype *out);

/* Whether model_type is one of the families that are not run; reading it. */
bool dyti_config_planned_has(const char *model_type,
                             enum dyti_family *out_family);
enum dyt_status dyti_config_planned_read(const struct dyti_config_at *at,
                                         enum dyti_family family,
                                         struct dyti_arch *out_arch);

#endif /* DYTI_VPS_CONFIG_READ_H */
