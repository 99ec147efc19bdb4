#include "cli/exit.h"

#include <stdio.h>

int dyti_exit_code(enum dyt_status status)
{
    switch (status) {
    case DYT_OK:
        return DYTI_EXIT_OK;
    case DYT_ERR_PEER:
    case DYT_ERR_TIMEOUT:
        return DYTI_EXIT_PEER;
    case DYT_ERR_CANCELLED:
        return DYTI_EXIT_STOPPED;
    case DYT_ERR_DEVICE:
        return DYTI_EXIT_DEVICE;
    default:
        return dyt_status_class(status) == DYT_CLASS_CALLER ? DYTI_EXIT_CALLER
                                                            : DYTI_EXIT_RUN;
    }
}

enum dyt_status dyti_exit_given(enum dyt_status status)
{
    char text[2048];

    if (status != DYT_ERR_IO) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", dyti_error_message());
    return dyti_error_adopt(DYT_ERR_CONFIG, text);
}

int dyti_exit_fail(const char *command, enum dyt_status status)
{
    fflush(stdout);
    fprintf(stderr, "dynatrain %s: %s\n", command, dyti_error_message());
    return dyti_exit_code(status);
}
