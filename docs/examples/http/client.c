#include "client.h"

#include <curl/curl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_MOST (256u << 20)

struct flight {
    struct flight *next;
    CURL *easy;
    struct curl_slist *headers;
    char *sent;
    char *body;
    size_t bytes;
    void *tag;
    char error[CURL_ERROR_SIZE];
};

struct client {
    CURLM *multi;
    struct flight *flight;
};

bool client_open(struct client **out_client)
{
    struct client *c = calloc(1, sizeof(*c));

    if (c == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(c);
        return false;
    }
    c->multi = curl_multi_init();
    if (c->multi == NULL) {
        free(c);
        return false;
    }
    *out_client = c;
    return true;
}

static void flight_free(struct client *c, struct flight *f)
{
    if (f->easy != NULL) {
        curl_multi_remove_handle(c->multi, f->easy);
        curl_easy_cleanup(f->easy);
    }
    curl_slist_free_all(f->headers);
    free(f->sent);
    free(f->body);
    free(f);
}

void client_drop(struct client *c)
{
    while (c->flight != NULL) {
        struct flight *f = c->flight;

        c->flight = f->next;
        flight_free(c, f);
    }
}

void client_close(struct client *c)
{
    if (c == NULL) {
        return;
    }
    client_drop(c);
    curl_multi_cleanup(c->multi);
    free(c);
}

static size_t take(char *data, size_t size, size_t count, void *arg)
{
    struct flight *f = arg;
    size_t more = size * count;
    char *grown = NULL;

    if (f->bytes + more < BODY_MOST) {
        grown = realloc(f->body, f->bytes + more + 1);
    }
    if (grown == NULL) {
        return 0; /* ends the request */
    }
    f->body = grown;
    memcpy(grown + f->bytes, data, more);
    f->bytes += more;
    grown[f->bytes] = '\0';
    return more;
}

bool client_post(struct client *c, const char *url, const char *json,
                 int64_t timeout_ns, void *tag)
{
    struct flight *f = calloc(1, sizeof(*f));

    if (f == NULL) {
        return false;
    }
    f->tag = tag;
    f->sent = strdup(json == NULL ? "" : json);
    f->easy = curl_easy_init();
    f->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (f->sent == NULL || f->easy == NULL || f->headers == NULL) {
        flight_free(c, f);
        return false;
    }
    curl_easy_setopt(f->easy, CURLOPT_URL, url);
    if (json != NULL) {
        curl_easy_setopt(f->easy, CURLOPT_POSTFIELDS, f->sent);
    }
    curl_easy_setopt(f->easy, CURLOPT_HTTPHEADER, f->headers);
    curl_easy_setopt(f->easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(f->easy, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(f->easy, CURLOPT_PRIVATE, f);
    curl_easy_setopt(f->easy, CURLOPT_ERRORBUFFER, f->error);
    curl_easy_setopt(f->easy, CURLOPT_TIMEOUT_MS, (long)(timeout_ns / 1000000));
    curl_easy_setopt(f->easy, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(f->easy, CURLOPT_NOSIGNAL, 1L);
    if (curl_multi_add_handle(c->multi, f->easy) != CURLM_OK) {
        flight_free(c, f);
        return false;
    }
    f->next = c->flight;
    c->flight = f;
    return true;
}

static void land(struct client *c, CURL *easy, CURLcode result,
                 struct reply *out)
{
    struct flight *f = NULL, **at = &c->flight;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &f);
    *out = (struct reply){.tag = f->tag, .body = f->body, .bytes = f->bytes};
    f->body = NULL;
    if (result == CURLE_OK) {
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &out->status);
    } else {
        snprintf(out->why, sizeof(out->why), "%s",
                 f->error[0] != '\0' ? f->error : curl_easy_strerror(result));
    }
    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    flight_free(c, f);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool client_next(struct client *c, int64_t timeout_ns, struct reply *out_reply)
{
    int64_t until = now_ns() + timeout_ns;

    while (c->flight != NULL) {
        int running, left;
        int64_t wait_ms;
        CURLMsg *message;

        curl_multi_perform(c->multi, &running);
        while ((message = curl_multi_info_read(c->multi, &left)) != NULL) {
            if (message->msg == CURLMSG_DONE) {
                land(c, message->easy_handle, message->data.result, out_reply);
                return true;
            }
        }
        wait_ms = (until - now_ns()) / 1000000;
        if (wait_ms <= 0) {
            return false;
        }
        curl_multi_poll(c->multi, NULL, 0,
                        (int)(wait_ms < 1000 ? wait_ms : 1000), NULL);
    }
    return false;
}

bool client_call(struct client *c, const char *url, const char *json,
                 int64_t timeout_ns, struct reply *out_reply)
{
    return client_post(c, url, json, timeout_ns, NULL) &&
           client_next(c, timeout_ns + 1000000000, out_reply);
}
