/* What the distribution's static libzmq asks for and we do not give it.
 *
 * libdynatrain.so links libzmq.a, so that it needs no library but libc's.  That
 * archive was built with transports that we never open (NORM, PGM) and one way
 * of authentication that we never choose (GSSAPI).  Their entry points are
 * here, each of which answers that it cannot.  Endpoints are checked before
 * they reach libzmq: tcp, ipc and inproc only.
 *
 * It was also built for programs, not for shared libraries: it reads three
 * variables of libc directly.  The build gives those other names (objcopy), and
 * here they are.  docs/decisions/0013 has the reasons. */
#include <netinet/in.h>
#include <stdio.h>

/* The archive's own declarations are in headers that need not be installed;
 * only the names count. */
#define REFUSE(name)                                                           \
    long name(void);                                                           \
    long name(void)                                                            \
    {                                                                          \
        return -1;                                                             \
    }
#define REFUSE_NULL(name)                                                      \
    void *name(void);                                                          \
    void *name(void)                                                           \
    {                                                                          \
        return NULL;                                                           \
    }
#define ACCEPT(name)                                                           \
    int name(void);                                                            \
    int name(void)                                                             \
    {                                                                          \
        return 1;                                                              \
    }

/* libzmq calls these two in every context. */
ACCEPT(pgm_init)
ACCEPT(pgm_shutdown)
/* clang-format off */
REFUSE(pgm_bind3) REFUSE(pgm_close) REFUSE(pgm_connect) REFUSE(pgm_error_free)
REFUSE(pgm_free) REFUSE(pgm_freeaddrinfo) REFUSE(pgm_gsi_create_from_data)
REFUSE(pgm_getsockopt) REFUSE(pgm_recvmsgv) REFUSE(pgm_send)
REFUSE(pgm_setsockopt) REFUSE_NULL(pgm_getaddrinfo) REFUSE_NULL(pgm_socket)

REFUSE(gss_accept_sec_context) REFUSE(gss_acquire_cred)
REFUSE(gss_delete_sec_context) REFUSE(gss_display_name)
REFUSE(gss_import_name) REFUSE(gss_init_sec_context) REFUSE(gss_release_buffer)
REFUSE(gss_release_cred) REFUSE(gss_release_name) REFUSE(gss_unwrap)
REFUSE(gss_wrap)

REFUSE_NULL(NormCreateInstance) REFUSE_NULL(NormCreateSession)
REFUSE_NULL(NormObjectGetUserData) REFUSE_NULL(NormStreamOpen)
REFUSE(NormDestroyInstance) REFUSE(NormDestroySession) REFUSE(NormGetDescriptor)
REFUSE(NormGetRandomSessionId) REFUSE(NormIsUnicastAddress)
REFUSE(NormNodeDelete) REFUSE(NormObjectGetType) REFUSE(NormObjectSetUserData)
REFUSE(NormSetCongestionControl) REFUSE(NormSetDefaultSyncPolicy)
REFUSE(NormSetDefaultUnicastNack) REFUSE(NormSetLoopback)
REFUSE(NormSetMulticastInterface) REFUSE(NormSetRxPortReuse) REFUSE(NormSetTTL)
REFUSE(NormStartReceiver) REFUSE(NormStartSender) REFUSE(NormStopInstance)
REFUSE(NormStopReceiver) REFUSE(NormStopSender) REFUSE(NormStreamFlush)
REFUSE(NormStreamRead) REFUSE(NormStreamSeekMsgStart) REFUSE(NormStreamWrite)
    /* clang-format on */

    /* false: there is no event */
    int NormGetNextEvent(void);
int NormGetNextEvent(void)
{
    return 0;
}

#define VARIABLE(type, name, value)                                            \
    extern type name;                                                          \
    type name = value;

VARIABLE(void *const, GSS_C_NT_HOSTBASED_SERVICE, NULL)
VARIABLE(void *const, GSS_C_NT_USER_NAME, NULL)
VARIABLE(void *const, NORM_INSTANCE_INVALID, NULL)
VARIABLE(void *const, NORM_OBJECT_INVALID, NULL)
VARIABLE(void *const, NORM_SESSION_INVALID, NULL)
VARIABLE(const unsigned, NORM_NODE_ANY, 0xffffffffu)

/* ---- variables of libc under other names --------------------------------- */

extern const struct in6_addr dyti_zmq_in6addr_any;
const struct in6_addr dyti_zmq_in6addr_any = IN6ADDR_ANY_INIT;

/* Never the short cut of a process with one thread: that is always right. */
VARIABLE(const char, dyti_zmq_single_threaded, 0)

extern FILE *dyti_zmq_stderr;
FILE *dyti_zmq_stderr;

__attribute__((constructor)) static void find_stderr(void)
{
    dyti_zmq_stderr = stderr;
}
