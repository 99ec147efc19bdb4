/* The calls, found in the driver where the system has it. */
#include "device/cuda/calls.h"

#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Filled in once, as the driver itself is there once. */
static struct {
    pthread_once_t once;
    pid_t process;
    enum dyt_status status;
    char why[384];
    struct dyti_cuda_calls calls;
} driver = {.once = PTHREAD_ONCE_INIT};

/* NULL, or the name of a call that is missing. */
static const char *find_calls(void *library)
{
    void *at;

#define TEXT_OF(f) #f
#define FIND(f)                                                                \
    at = dlsym(library, TEXT_OF(f));                                           \
    if (at == NULL) {                                                          \
        return TEXT_OF(f);                                                     \
    }                                                                          \
    memcpy(&driver.calls.f, &at, sizeof(at));
    DYTI_CUDA_CALLS(FIND)
#undef FIND
#undef TEXT_OF
    dyti_cuda_calls_complete(&driver.calls);
    return NULL;
}

static void open_once(void)
{
    void *library =
        dlopen(DYTI_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *why = library == NULL ? dlerror() : NULL, *missing;
    CUresult error;

    driver.process = getpid();
    driver.status = DYT_ERR_UNSUPPORTED;
    if (library == NULL) {
        snprintf(driver.why, sizeof(driver.why), "no driver: %.200s",
                 why != NULL ? why : DYTI_CUDA_DRIVER);
        return;
    }
    missing = find_calls(library);
    if (missing != NULL) {
        snprintf(driver.why, sizeof(driver.why), "driver too old: it has no %s",
                 missing);
        return;
    }
    error = driver.calls.cuInit(0);
    if (error != CUDA_SUCCESS) {
        driver.status = error == CUDA_ERROR_NO_DEVICE ? DYT_ERR_UNSUPPORTED
                        : error == CUDA_ERROR_OUT_OF_MEMORY ? DYT_ERR_NOMEM
                                                            : DYT_ERR_DEVICE;
        (void)dyti_cuda_fail(&driver.calls, error, "starting the driver", 0);
        snprintf(driver.why, sizeof(driver.why), "%.300s",
                 dyti_error_message());
        return;
    }
    driver.status = DYT_OK;
}

enum dyt_status dyti_cuda_calls(const struct dyti_cuda_calls **out_calls)
{
    (void)pthread_once(&driver.once, open_once);
    if (driver.status != DYT_OK) {
        return DYTI_FAIL(driver.status,
                         "%s: \"dynatrain doctor\" says what to do about it",
                         driver.why);
    }
    if (driver.process != getpid()) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "process %d is a fork of %d, which had started the "
                         "driver: start a program instead, or fork before",
                         (int)getpid(), (int)driver.process);
    }
    *out_calls = &driver.calls;
    return DYT_OK;
}
