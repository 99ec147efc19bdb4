/* What `dynatrain status` asks: one question, one answer. */
#include "lib/session_internal.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status ask(struct dyti_hub_client *client)
{
    struct dyti_envelope e = dyti_hub_client_stamp(client, DYTI_MSG_STATUS, 0);
    char none[] = "";
    struct dyti_msg_status m = {.json = none};
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_wire_status_encode(&e, &m, &buffer);

    return st != DYT_OK ? st : dyti_hub_client_send(client, &buffer);
}

static enum dyt_status why_not(const struct dyti_hub_frame *frame)
{
    struct dyti_msg_error error;
    enum dyt_status st = dyti_wire_error_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &error);

    if (st == DYT_OK) {
        st = dyti_error_adopt((enum dyt_status)error.status, error.text);
        dyti_msg_error_fini(&error);
    }
    return st;
}

static enum dyt_status await(struct dyti_hub_client *client,
                             const char *address, int64_t until,
                             char **out_json)
{
    for (;;) {
        struct dyti_hub_frame frame = {0};
        struct dyti_msg_status m;
        int64_t left = (until - dyti_session_now()) / 1000000;
        bool other;
        enum dyt_status st;

        if (left <= 0) {
            return DYTI_FAIL(DYT_ERR_TIMEOUT,
                             "nobody answers at %s: is the job's manager (a "
                             "trainer's rank 0, or `dynatrain serve`) up?",
                             address);
        }
        st = dyti_hub_client_wait(client, -1, left, &frame, &other);
        if (st == DYT_OK && frame.envelope.type == DYTI_MSG_STATUS) {
            st = dyti_wire_status_decode(frame.buffer.bytes,
                                         frame.buffer.size_bytes, &m);
            dyti_hub_frame_fini(&frame);
            if (st == DYT_OK) {
                *out_json = m.json;
            }
            return st;
        }
        if (st == DYT_OK && frame.envelope.type == DYTI_MSG_ERROR) {
            st = why_not(&frame);
        }
        dyti_hub_frame_fini(&frame);
        if (st != DYT_OK && st != DYT_PENDING) {
            return st;
        }
    }
}

enum dyt_status dyt_job_status(const char *address, const char *key,
                               const char *manager_key, int64_t timeout_ns,
                               char **out_json)
{
    struct dyti_hub_client_params hub = {
        .codec = {dyti_wire_envelope, dyti_wire_protocol},
        .key = key,
        .manager_key = manager_key};
    struct dyti_hub_client *client = NULL;
    int64_t span = timeout_ns > DYTI_SESSION_LONGEST_NS
                       ? DYTI_SESSION_LONGEST_NS
                   : timeout_ns > 0 ? timeout_ns
                                    : 5000000000ll;
    enum dyt_status st;

    if (address == NULL || out_json == NULL) {
        return dyti_null_argument("dyt_job_status");
    }
    st = dyti_address_parse(address, NULL, &hub.address);
    st = st != DYT_OK ? st : dyti_hub_client_open(&hub, &client);
    st = st != DYT_OK ? st : ask(client);
    st = st != DYT_OK
             ? st
             : await(client, address, dyti_session_now() + span, out_json);
    dyti_hub_client_close(client);
    return st;
}
