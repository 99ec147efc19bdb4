#include "base/errno_text.h"

#include <errno.h>
#include <string.h>

const char *dyti_errno_text(int code)
{
    switch (code) {
    case EFBIG:
        return "File too large: this process may not write as much (ulimit -f)";
    case EMFILE:
        return "Too many open files: this process may not have more (ulimit "
               "-n)";
    default:
        return strerror(code);
    }
}
