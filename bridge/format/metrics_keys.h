/* The keys of metrics.jsonl. */
#ifndef DYTI_FORMAT_METRICS_KEYS_H
#define DYTI_FORMAT_METRICS_KEYS_H

#include <stdbool.h>

/* True for a key of the table; "*" in it stands for any name. */
bool dyti_metrics_known(const char *key);

#endif /* DYTI_FORMAT_METRICS_KEYS_H */
