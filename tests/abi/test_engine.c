/* An engine that was built with a released header, loaded and driven with
 * today's: one entry symbol, a table, sizes that say what it knows. */
#include <dynatrain/engine.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static char reason[128];

static void hear(int level, const char *line)
{
    (void)level;
    (void)line;
}

static enum dyt_status hear_why(enum dyt_status status, const char *text)
{
    (void)snprintf(reason, sizeof(reason), "%s", text);
    return status;
}

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                 \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static int drive(const struct dyt_engine_ops *ops)
{
    const int32_t token[] = {5, 7};
    struct dyt_engine_open open = {.struct_size = sizeof(open)};
    struct dyt_engine_prompt prompt = {.struct_size = sizeof(prompt),
                                       .token_count = 2,
                                       .token = token,
                                       .id = 42};
    struct dyt_engine_sample sample = {.struct_size = sizeof(sample)};
    struct dyt_switch_report report = {.struct_size = sizeof(report)};
    void *self = NULL;

    CHECK(ops->struct_size >= offsetof(struct dyt_engine_ops, release));
    CHECK(strcmp(ops->name, "echo") == 0);
    CHECK(ops->open(&open, &self) == DYT_OK);
    CHECK(ops->submit(self, &prompt, 1) == DYT_ERR_STATE);
    CHECK(strstr(reason, "nothing was committed") != NULL);
    CHECK(ops->update(self, 3, 0, &report) == DYT_OK && report.version == 3);
    CHECK(ops->submit(self, &prompt, 1) == DYT_OK);
    CHECK(ops->collect(self, 0, &sample) == DYT_OK);
    CHECK(sample.id == 42 && sample.token[0] == 7);
    CHECK(sample.span[0].version == 3);
    CHECK(ops->collect(self, 0, &sample) == DYT_PENDING);
    CHECK(!DYT_HAS(struct dyt_engine_ops, ops, release));
    ops->close(self);
    return 0;
}

int main(void)
{
    static const struct dyt_engine_host host = {
        .struct_size = sizeof(host), .log = hear, .fail = hear_why};
    void *module = dlopen(DYT_ENGINE_PATH, RTLD_NOW | RTLD_LOCAL);
    dyt_engine_entry_fn entry;
    void *symbol;

    if (module == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    symbol = dlsym(module, DYT_ENGINE_ENTRY_NAME);
    CHECK(symbol != NULL);
    memcpy(&entry, &symbol, sizeof(entry));
    return drive(entry(&host));
}
