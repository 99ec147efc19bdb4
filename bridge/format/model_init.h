/* `model init`: a Hugging Face directory with random, seeded weights.
 * Every element is a pure function of (seed, tensor, index), so it does not
 * depend on any layout, order or dtype of memory. */
#ifndef DYTI_FORMAT_MODEL_INIT_H
#define DYTI_FORMAT_MODEL_INIT_H

#include "vps/model.h"

struct dyti_model_preset {
    const char *name;
    const char *summary; /* one line for --help */
    struct dyti_arch arch;
};

/* In the order of the table; NULL behind the last. */
const struct dyti_model_preset *dyti_model_preset_at(size_t index);
/* @return DYT_ERR_INVALID  no such preset; the text lists all */
enum dyt_status dyti_model_preset_find(
    const char *name, const struct dyti_model_preset **out_preset);

/* What element `index` (row-major) of a tensor is given: normal(0, init_std),
 * 1 for norms. */
float dyti_model_init_value(const struct dyti_model *model, uint32_t tensor,
                            uint64_t index, uint64_t seed);

/**
 * Write config.json, generation_config.json, tokenizer.json (one token a
 * character of DYTI_INIT_CHARS), tokenizer_config.json and model.safetensors,
 * the weights last.  The directory is made; its parent must exist.
 * overwrite: false = a directory that has a config.json is left alone.
 * @return DYT_ERR_STATE  there is a model already
 * @return DYT_ERR_IO, DYT_ERR_NOMEM
 */
#define DYTI_INIT_CHARS "\n0123456789abcdefghijklmnopqrstuvwxyz+-=>$ "
enum dyt_status dyti_model_init(const char *dir,
                                const struct dyti_model_preset *preset,
                                uint64_t seed, bool overwrite);

#endif /* DYTI_FORMAT_MODEL_INIT_H */
