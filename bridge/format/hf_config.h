/* Hugging Face config.json and generation_config.json, in and out.
 * in: a model directory   out: vps/arch.h
 *
 * What a model needs and we do not have (rope kinds, sliding windows in use,
 * quantisation, biases on o_proj or in the MLP, …) is DYT_ERR_UNSUPPORTED and
 * named; what is malformed is DYT_ERR_FORMAT with file and key.
 * Threads: any. */
#ifndef DYTI_FORMAT_HF_CONFIG_H
#define DYTI_FORMAT_HF_CONFIG_H

#include "base/error.h"
#include "vps/arch.h"

#define DYTI_MAX_EOS 32u

/* What decoding needs beside the weights; ids are -1 where none is given. */
struct dyti_generation_config {
    int32_t bos, pad;
    int32_t eos[DYTI_MAX_EOS]; /* [eos_count] */
    uint32_t eos_count;
    bool do_sample;
    double temperature, top_p, min_p; /* 1, 1, 0 where not given */
    double repetition_penalty;        /* 1 = none */
    int32_t top_k;                    /* 0 = off */
};

/**
 * Read <dir>/config.json of the Llama, Mistral, Qwen2 or Qwen3 family, or of
 * one that can be laid out and planned (dyti_arch_check_runs() refuses it).
 * @return DYT_ERR_IO           no such file
 * @return DYT_ERR_FORMAT       not JSON, a key is missing or has a bad value
 * @return DYT_ERR_UNSUPPORTED  needs what we do not have, by name
 */
enum dyt_status dyti_hf_config_read(const char *dir,
                                    struct dyti_arch *out_arch);

/* The same from a text; `file` is shown in messages. */
enum dyt_status dyti_hf_config_parse(const char *file, const char *text,
                                     size_t size_bytes,
                                     struct dyti_arch *out_arch);

/**
 * Write <dir>/config.json so that transformers and we read `arch` back.
 * gen: the bos and eos ids to name in it; NULL = none.
 */
enum dyt_status dyti_hf_config_write(const char *dir,
                                     const struct dyti_arch *arch,
                                     const struct dyti_generation_config *gen);

/* <dir>/generation_config.json; ids that it does not give, and a directory
 * without that file, fall back to config.json as transformers does. */
enum dyt_status dyti_generation_config_read(
    const char *dir, struct dyti_generation_config *out_gen);
enum dyt_status dyti_generation_config_write(
    const char *dir, const struct dyti_generation_config *gen);

#endif /* DYTI_FORMAT_HF_CONFIG_H */
