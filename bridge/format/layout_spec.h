/* How people write a layout: on one line, or as [layout] of a TOML file.
 * in: text   out: layout/layout.h's description
 *
 *   megatron:tp=8,pp=4,dp=2,zero=1
 *   vllm:tp=8,ep=8,experts=round_robin
 *   native:tp=2,dp=2,ranks=4-7,pp_layers=10+12
 *
 *   [layout]
 *   dialect = "megatron"
 *   tp = 8
 *   pp_layers = [10, 12]
 *   dtype.param = "bf16"
 *
 * Keys: layout/spec.h.
 * Threads: any. */
#ifndef DYTI_FORMAT_LAYOUT_SPEC_H
#define DYTI_FORMAT_LAYOUT_SPEC_H

#include "layout/spec.h"

/**
 * From a line, or from a file where the text ends in ".toml".
 * @return DYT_ERR_CONFIG  names key (and place in the file) and the nearest
 * @return DYT_ERR_IO      the file cannot be read
 */
enum dyt_status dyti_layout_spec_read(const char *text,
                                      struct dyti_layout_spec *out_spec);

/* The [layout] table (or any table with those keys) of a file that is open;
 * `file` is shown in messages. */
struct dyti_toml;
enum dyt_status dyti_layout_spec_from_toml(const struct dyti_toml *table,
                                           const char *file,
                                           struct dyti_layout_spec *out_spec);

#endif /* DYTI_FORMAT_LAYOUT_SPEC_H */
