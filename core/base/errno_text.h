/* The system's error numbers in words, with the remedy where it is a limit of
 * the process that people do not think of.
 * Threads: any. */
#ifndef DYTI_BASE_ERRNO_TEXT_H
#define DYTI_BASE_ERRNO_TEXT_H

/* Valid until the thread's next call, as strerror's. */
const char *dyti_errno_text(int code);

#endif /* DYTI_BASE_ERRNO_TEXT_H */
