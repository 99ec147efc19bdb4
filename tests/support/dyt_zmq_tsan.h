/* For programs that run ZeroMQ under the thread sanitizer: the system's libzmq
 * is not built with it, so its own locking is not seen and everything that its
 * thread touches looks like a race; nor is libsodium, which it uses.  Include
 * once per program. */
#ifndef DYT_ZMQ_TSAN_H
#define DYT_ZMQ_TSAN_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DYT_UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(DYT_UNDER_TSAN)

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(
    void);

const char *__tsan_default_suppressions(void)
{
    return "race:libzmq.so\n"
           "called_from_lib:libzmq.so\n"
           "race:libsodium.so\n"
           "called_from_lib:libsodium.so\n";
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void);

/* Children that are to be killed start threads of ZeroMQ. */
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

#endif
#endif /* DYT_ZMQ_TSAN_H */
