/* NCCL's library: found, old enough to be too old, or missing. */
#include "comm/nccl/calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REMEDY                                                                 \
    "install NVIDIA's package libnccl2, or pip's nvidia-nccl-cu12 or -cu13 "   \
    "with its folder in LD_LIBRARY_PATH"

__attribute__((format(printf, 3, 4))) static bool tell(
    struct dyti_group_report *r, const char *state, const char *form, ...)
{
    va_list args;

    r->state = state;
    va_start(args, form);
    vsnprintf(r->text, sizeof(r->text), form, args);
    va_end(args);
    return false;
}

/* Functions and objects have one size here. */
static bool find(void *library, const char *name, void *out_function)
{
    void *at = dlsym(library, name);

    memcpy(out_function, &at, sizeof(at));
    return at != NULL;
}

static bool find_calls(void *library, struct dyti_nccl_calls *out,
                       struct dyti_group_report *r)
{
#define FIND(f)                                                                \
    if (!find(library, #f, &out->f)) {                                         \
        return tell(r, "call missing", "the library has no %s: " REMEDY, #f);  \
    }
    DYTI_NCCL_CALLS(FIND)
#undef FIND
    if (!find(library, "ncclCommRegister", &out->ncclCommRegister) ||
        !find(library, "ncclCommDeregister", &out->ncclCommDeregister)) {
        out->ncclCommRegister = NULL;
    }
    return true;
}

static uint32_t major_of(int version)
{
    return (uint32_t)(version / (version < 10000 ? 1000 : 10000));
}

static uint32_t minor_of(int version)
{
    return (uint32_t)(version < 10000 ? version / 100 % 10
                                      : version / 100 % 100);
}

static bool check_version(void *library, struct dyti_group_report *r)
{
    __typeof__(&ncclGetVersion) get = NULL;
    int version = 0;

    if (!find(library, "ncclGetVersion", &get) ||
        get(&version) != ncclSuccess || version <= 0) {
        return tell(r, "call missing",
                    "the library does not say its version, "
                    "so it is not NCCL's: " REMEDY);
    }
    r->version = (uint32_t)version;
    if (major_of(version) != NCCL_MAJOR) {
        return tell(r, "another version",
                    "the library is NCCL %u.%u.%u, and this module is made for "
                    "NCCL %d: " REMEDY,
                    major_of(version), minor_of(version), r->version % 100,
                    NCCL_MAJOR);
    }
    if (version < DYTI_NCCL_MIN) {
        return tell(r, "too old",
                    "the library is NCCL %u.%u.%u, and 2.18 is needed: " REMEDY,
                    major_of(version), minor_of(version), r->version % 100);
    }
    return true;
}

bool dyti_nccl_open(const char *library, struct dyti_nccl_calls *out,
                    struct dyti_group_report *out_report)
{
    struct dyti_group_report *r = out_report;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *why = handle == NULL ? dlerror() : NULL;
    Dl_info info = {0};

    memset(r, 0, sizeof(*r));
    if (handle == NULL) {
        return tell(r, "no library", "%.200s: " REMEDY,
                    why != NULL ? why : library);
    }
    if (!check_version(handle, r) || !find_calls(handle, out, r)) {
        return false;
    }
    (void)dladdr(dlsym(handle, "ncclGetVersion"), &info);
    (void)tell(r, "ready", "NCCL %u.%u.%u (%.200s)%s",
               major_of((int)r->version), minor_of((int)r->version),
               r->version % 100,
               info.dli_fname != NULL ? info.dli_fname : library,
               out->ncclCommRegister != NULL
                   ? ""
                   : "; buffers are not registered, which 2.19 can");
    return true;
}

enum dyt_status dyti_nccl_calls(const struct dyti_nccl_calls **out_calls)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct dyti_nccl_calls calls;
    static bool is_open;
    struct dyti_group_report report;
    bool found;

    (void)pthread_mutex_lock(&lock);
    found = is_open || dyti_nccl_open(DYTI_NCCL_LIBRARY, &calls, &report);
    is_open = found;
    (void)pthread_mutex_unlock(&lock);
    if (!found) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "NCCL: %s: %s", report.state,
                         report.text);
    }
    *out_calls = &calls;
    return DYT_OK;
}
