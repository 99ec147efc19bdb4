/* Requests to several servers at once, over libcurl. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* What came of a request. */
struct reply {
    void *tag;   /* as given to client_post */
    long status; /* HTTP; 0: nobody answered */
    char *body;  /* ended by a zero; owned by whoever got the reply */
    size_t bytes;
    char why[256]; /* status 0: the reason */
};

bool client_open(struct client **out_client);
void client_close(struct client *client); /* drops what is under way */

/* Post JSON, or get the URL where it is NULL; the text is copied.  false: out
 * of memory. */
bool client_post(struct client *client, const char *url, const char *json,
                 int64_t timeout_ns, void *tag);
/* The next reply, waiting at most timeout_ns; false: none. */
bool client_next(struct client *client, int64_t timeout_ns,
                 struct reply *out_reply);
/* What is under way has no reply; its connections are closed. */
void client_drop(struct client *client);
/* One request, alone: nothing else may be under way. */
bool client_call(struct client *client, const char *url, const char *json,
                 int64_t timeout_ns, struct reply *out_reply);

#endif /* CLIENT_H */
