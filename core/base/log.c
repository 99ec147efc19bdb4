#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"error", "warn", "info", "debug", "trace"};

/* Set once at start, before threads. */
static enum dyti_log_level limit = DYTI_LOG_WARN;
static char areas[256];

static atomic_ullong complaints;
static _Thread_local int32_t self_rank = -1;
static _Thread_local const char *self_phase = "-";

int dyti_log_configure(const char *level, const char *area_list)
{
    int known = level == NULL;

    limit = DYTI_LOG_WARN;
    for (size_t i = 0; level != NULL && i < 5; i++) {
        if (strcmp(level, names[i]) == 0) {
            limit = (enum dyti_log_level)i;
            known = 1;
        }
    }
    snprintf(areas, sizeof(areas), "%s", area_list != NULL ? area_list : "");
    return known;
}

void dyti_log_identity(int32_t rank, const char *phase)
{
    self_rank = rank;
    self_phase = phase;
}

int32_t dyti_log_rank(void)
{
    return self_rank;
}

/* True if the len bytes at `area` are one of the words of `list`. */
static int area_listed(const char *list, const char *area, size_t len)
{
    for (const char *p = list; *p != '\0'; p += *p == ',') {
        size_t word = strcspn(p, ",");

        if (word == len && memcmp(p, area, len) == 0) {
            return 1;
        }
        p += word;
    }
    return 0;
}

int dyti_log_area_unknown(const char *list, char word[64])
{
    for (const char *p = list; p != NULL && *p != '\0'; p += *p == ',') {
        size_t len = strcspn(p, ",");

        if (len > 0 && !area_listed(DYTI_LOG_AREAS, p, len)) {
            snprintf(word, 64, "%.*s", len < 63 ? (int)len : 63, p);
            return 1;
        }
        p += len;
    }
    return 0;
}

int dyti_log_enabled(enum dyti_log_level level, const char *area)
{
    if (level > limit) {
        return 0;
    }
    return areas[0] == '\0' || level <= DYTI_LOG_WARN ||
           area_listed(areas, area, strlen(area));
}

void dyti_log_write(enum dyti_log_level level, const char *area,
                    const char *fmt, ...)
{
    char line[1024];
    int used = snprintf(line, sizeof(line), "dynatrain %s %s rank %d phase %s ",
                        names[level], area, self_rank, self_phase);
    va_list args;

    if (level <= DYTI_LOG_WARN) {
        atomic_fetch_add(&complaints, 1);
    }
    va_start(args, fmt);
    used += vsnprintf(line + used, sizeof(line) - (size_t)used, fmt, args);
    va_end(args);
    if (used > (int)sizeof(line) - 2) {
        used = (int)sizeof(line) - 2;
    }
    line[used] = '\n';
    if (write(STDERR_FILENO, line, (size_t)used + 1) < 0) {
        return; /* nowhere to say it */
    }
}

uint64_t dyti_log_complaints(void)
{
    return atomic_load(&complaints);
}
