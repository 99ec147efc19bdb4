/* Keys of sessions over tcp: files that are theirs alone, and hubs that let in
 * whoever has one. */
#include "dyt_zmq_tsan.h"
#include "hub_world.h"

#include <zmq.h>

/* FOLDER/NAME.secret or .public; four at a time. */
static const char *key(const char *folder, const char *name)
{
    static char path[4][300];
    static int at;
    int n;

    at = (at + 1) % 4;
    n = snprintf(path[at], sizeof(path[at]), "%s/%s", folder, name);
    assert_true(n > 0 && (size_t)n < sizeof(path[at]));
    return path[at];
}

/* ---- files --------------------------------------------------------------- */

static mode_t mode_of(const char *path)
{
    struct stat info;

    assert_int_equal(0, stat(path, &info));
    return info.st_mode & 0777;
}

static void a_pair_is_made_once(void **state)
{
    const char *folder = dyt_test_dir();
    char secret[DYTI_KEY_CHARS + 1], public[DYTI_KEY_CHARS + 1];
    char derived[DYTI_KEY_CHARS + 1], again[DYTI_KEY_CHARS + 1];
    char inner[300];

    (void)state;
    snprintf(inner, sizeof(inner), "%s/keys", folder);
    umask(0);
    assert_ok(dyti_keys_make(inner, "manager"));
    umask(022);
    assert_int_equal(0700, mode_of(inner));
    assert_int_equal(0600, mode_of(key(inner, "manager.secret")));
    assert_int_equal(0644, mode_of(key(inner, "manager.public")));
    assert_ok(dyti_key_read(key(inner, "manager.secret"), true, secret));
    assert_ok(dyti_key_read(key(inner, "manager.public"), false, public));
    assert_int_equal(0, zmq_curve_public(derived, secret));
    assert_string_equal(derived, public);
    assert_status(DYT_ERR_BUSY, dyti_keys_make(inner, "manager"));
    assert_error_has("manager.secret");
    assert_error_has("left as it is");
    assert_ok(dyti_key_read(key(inner, "manager.secret"), true, again));
    assert_string_equal(secret, again);
    assert_ok(dyti_keys_make(inner, "another"));
    assert_ok(dyti_key_read(key(inner, "another.secret"), true, again));
    assert_string_not_equal(secret, again);
}

/* A public half that is there already has another secret one. */
static void no_half_pair_is_left(void **state)
{
    const char *folder = dyt_test_dir();

    (void)state;
    dyt_test_write(key(folder, "a.public"), "old", 3);
    assert_status(DYT_ERR_BUSY, dyti_keys_make(folder, "a"));
    assert_error_has("a.public");
    assert_int_not_equal(0, access(key(folder, "a.secret"), F_OK));
}

static void names_and_folders_are_checked(void **state)
{
    static const char *const wrong[] = {
        "", "a/b", "../a",
        "a23456789012345678901234567890123456789012345678901234567890abcd"};
    const char *folder = dyt_test_dir();

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        assert_status(DYT_ERR_CONFIG, dyti_keys_make(folder, wrong[i]));
        assert_error_has("no name of a key");
    }
    assert_status(DYT_ERR_IO, dyti_keys_make(key(folder, "a/b"), "k"));
    assert_error_has("cannot be made");
    dyt_test_write(key(folder, "file"), "x", 1);
    assert_status(DYT_ERR_IO, dyti_keys_make(key(folder, "file"), "k"));
}

static void expect_no_key(const char *path, bool secret, const char *part)
{
    char out[DYTI_KEY_CHARS + 1] = "as it was";

    assert_status(DYT_ERR_CONFIG, dyti_key_read(path, secret, out));
    assert_error_has(part);
    assert_error_has(path);
    assert_string_equal("as it was", out);
}

static void what_is_no_key_is_named(void **state)
{
    static const char good[] = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    static const struct {
        const char *text, *part;
    } row[] = {
        {"", "is no key"},
        {"\n", "is no key"},
        {"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf", "one line of 40"},
        {"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf77", "one line of 40"},
        {"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7 and more", "is no key"},
        {"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\nrq:rM>}U", "is no key"},
        {"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]y,7", "a character in it"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r", "is no key"},
    };
    const char *folder = dyt_test_dir();
    char path[300], out[DYTI_KEY_CHARS + 1], much[4096];

    (void)state;
    snprintf(path, sizeof(path), "%s/k.secret", folder);
    expect_no_key(path, true, "dynatrain keys FOLDER");
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        dyt_test_write(path, row[i].text, strlen(row[i].text));
        assert_int_equal(0, chmod(path, 0600));
        expect_no_key(path, true, row[i].part);
    }
    memset(much, 'a', sizeof(much));
    dyt_test_write(path, much, sizeof(much));
    expect_no_key(path, false, "is no key");
    expect_no_key(folder, false, "is no key");
    dyt_test_write(path, good, 40); /* without a newline */
    assert_ok(dyti_key_read(path, true, out));
    assert_string_equal(good, out);
    assert_int_equal(0, unlink(path));
    assert_int_equal(0, mkfifo(path, 0600)); /* is not waited for */
    expect_no_key(path, true, "is no key");
}

static void secrets_of_all_are_refused(void **state)
{
    static const mode_t wrong[] = {0644, 0640, 0604, 0660, 0601};
    const char *folder = dyt_test_dir();
    char out[DYTI_KEY_CHARS + 1];

    (void)state;
    assert_ok(dyti_keys_make(folder, "k"));
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        assert_int_equal(0, chmod(key(folder, "k.secret"), wrong[i]));
        assert_status(DYT_ERR_CONFIG,
                      dyti_key_read(key(folder, "k.secret"), true, out));
        assert_error_has("chmod 600");
    }
    assert_int_equal(0, chmod(key(folder, "k.secret"), 0400));
    assert_ok(dyti_key_read(key(folder, "k.secret"), true, out));
}

/* ---- hubs over tcp ------------------------------------------------------- */

struct world {
    const char *server, *members; /* folders of keys */
    struct dyti_hub_params hub;
    struct dyti_hub_client_params member;
};

static struct world world(void)
{
    struct world w = {.server = dyt_test_dir(), .members = dyt_test_dir()};

    assert_ok(dyti_keys_make(w.server, "manager"));
    assert_ok(dyti_keys_make(w.server, "another"));
    assert_ok(dyti_keys_make(w.members, "member"));
    w.hub = (struct dyti_hub_params){.address = hub_tcp_address(),
                                     .codec = hub_codec,
                                     .authorized = w.members};
    w.member = (struct dyti_hub_client_params){
        .address = w.hub.address, .codec = hub_codec, .job = 7};
    w.hub.key = strdup(key(w.server, "manager.secret"));
    w.member.key = strdup(key(w.members, "member.secret"));
    w.member.manager_key = strdup(key(w.server, "manager.public"));
    return w;
}

static void world_end(struct world *w)
{
    free((void *)(uintptr_t)w->hub.key);
    free((void *)(uintptr_t)w->member.key);
    free((void *)(uintptr_t)w->member.manager_key);
}

static void the_right_key_opens(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    struct dyti_hub_client *a = NULL;
    struct dyti_hub_frame frame;
    uint32_t peer;

    (void)state;
    assert_ok(dyti_hub_open(&w.hub, &hub));
    assert_ok(dyti_hub_client_open(&w.member, &a));
    hub_say(a, DYTI_MSG_JOIN);
    peer = hub_expect(hub, DYTI_MSG_JOIN);
    hub_tell(hub, peer, DYTI_MSG_JOINED);
    assert_ok(hub_hear(hub, a, HUB_PATIENCE_MS, &frame));
    assert_int_equal(DYTI_MSG_JOINED, frame.envelope.type);
    dyti_hub_frame_fini(&frame);
    assert_int_equal(0, hub_counts(hub).refused);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    world_end(&w);
}

/* Of another: the hub says no, by name. */
static void an_unknown_key_is_refused(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    struct dyti_hub_client *a = NULL;
    struct dyti_hub_frame frame;

    (void)state;
    free((void *)(uintptr_t)w.member.key);
    w.member.key = strdup(key(w.server, "another.secret"));
    assert_ok(dyti_hub_open(&w.hub, &hub));
    assert_ok(dyti_hub_client_open(&w.member, &a));
    hub_say(a, DYTI_MSG_JOIN);
    assert_status(DYT_ERR_CONFIG, hub_hear(hub, a, HUB_PATIENCE_MS, &frame));
    assert_error_has("refuses this key");
    assert_true(hub_counts(hub).refused > 0);
    assert_int_equal(0, hub_counts(hub).received);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    world_end(&w);
}

/* The member believes in another manager than the one that listens. */
static void another_manager_is_not_believed(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    struct dyti_hub_client *a = NULL;
    struct dyti_hub_frame frame;

    (void)state;
    free((void *)(uintptr_t)w.member.manager_key);
    w.member.manager_key = strdup(key(w.server, "another.public"));
    assert_ok(dyti_hub_open(&w.hub, &hub));
    assert_ok(dyti_hub_client_open(&w.member, &a));
    hub_say(a, DYTI_MSG_JOIN);
    assert_status(DYT_ERR_CONFIG, hub_hear(hub, a, HUB_PATIENCE_MS, &frame));
    assert_error_has("does not prove to be the manager");
    assert_int_equal(0, hub_counts(hub).received);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    world_end(&w);
}

/* Who speaks without keys is not heard. */
static void without_a_key_nothing_is_heard(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    struct dyti_hub_client *a = NULL;
    int none = 0;

    (void)state;
    assert_ok(dyti_hub_open(&w.hub, &hub));
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
    assert_int_equal(0, zmq_connect(socket, w.hub.address.endpoint));
    assert_int_equal(4, zmq_send(socket, "open", 4, 0));
    assert_ok(dyti_hub_client_open(&w.member, &a));
    for (int i = 0; i < 3; i++) { /* behind it another comes in */
        hub_say(a, DYTI_MSG_HEARTBEAT);
        hub_expect(hub, DYTI_MSG_HEARTBEAT);
    }
    assert_int_equal(3, hub_seen(hub));
    dyti_hub_client_close(a);
    zmq_close(socket);
    zmq_ctx_term(context);
    dyti_hub_close(hub);
    world_end(&w);
}

static void keys_that_are_missing_are_named(void **state)
{
    struct world w = world();
    struct dyti_hub_params hub = w.hub;
    struct dyti_hub_client_params member = w.member;
    struct dyti_hub *h = NULL;
    struct dyti_hub_client *a = NULL;

    (void)state;
    hub.key = NULL;
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&hub, &h));
    assert_error_has("needs the manager's secret key");
    hub.key = w.member.manager_key;
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&hub, &h));
    assert_error_has("others may read the secret key");
    hub = w.hub;
    hub.authorized = dyt_test_dir();
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&hub, &h));
    assert_error_has("no *.public key in");
    dyt_test_write(key(hub.authorized, "bad.public"), "x", 1);
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&hub, &h));
    assert_error_has("bad.public is no key");
    hub.authorized = key(w.server, "not_there");
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&hub, &h));
    assert_error_has("not_there of authorized keys");
    member.key = NULL;
    assert_status(DYT_ERR_CONFIG, dyti_hub_client_open(&member, &a));
    assert_error_has("needs a key of this side and the manager's public key");
    member = w.member;
    member.manager_key = NULL;
    assert_status(DYT_ERR_CONFIG, dyti_hub_client_open(&member, &a));
    member.manager_key = key(w.server, "not_there");
    assert_status(DYT_ERR_CONFIG, dyti_hub_client_open(&member, &a));
    assert_error_has("not_there cannot be read");
    assert_null(h);
    assert_null(a);
    world_end(&w);
}

/* The folder of the manager's own key, where no other is named. */
static void authorized_keys_lie_beside_the_managers(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    struct dyti_hub_client *a = NULL;

    (void)state;
    w.hub.authorized = NULL;
    free((void *)(uintptr_t)w.member.key);
    w.member.key = strdup(key(w.server, "another.secret"));
    assert_ok(dyti_hub_open(&w.hub, &hub));
    assert_ok(dyti_hub_client_open(&w.member, &a));
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    world_end(&w);
}

static void a_port_is_one_managers(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL, *second = NULL;

    (void)state;
    assert_ok(dyti_hub_open(&w.hub, &hub));
    assert_status(DYT_ERR_BUSY, dyti_hub_open(&w.hub, &second));
    assert_error_has("somebody serves tcp://127.0.0.1");
    assert_null(second);
    dyti_hub_close(hub);
    assert_ok(dyti_hub_open(&w.hub, &hub)); /* free again */
    dyti_hub_close(hub);
    memcpy(w.hub.address.endpoint, "tcp://192.0.2.1:70", 19); /* not ours */
    assert_status(DYT_ERR_CONFIG, dyti_hub_open(&w.hub, &second));
    assert_error_has("tcp://192.0.2.1:70 is no address of this machine");
    world_end(&w);
}

static void nobody_there_is_waited_for(void **state)
{
    struct world w = world();
    struct dyti_hub *hub = NULL;
    struct dyti_hub_client *a = NULL;
    struct dyti_hub_frame frame;

    (void)state;
    assert_ok(dyti_hub_client_open(&w.member, &a));
    hub_say(a, DYTI_MSG_JOIN);
    assert_status(DYT_PENDING, hub_hear(NULL, a, 100, &frame));
    assert_ok(dyti_hub_open(&w.hub, &hub));
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    world_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pair_is_made_once),
    cmocka_unit_test(no_half_pair_is_left),
    cmocka_unit_test(names_and_folders_are_checked),
    cmocka_unit_test(what_is_no_key_is_named),
    cmocka_unit_test(secrets_of_all_are_refused),
    cmocka_unit_test(the_right_key_opens),
    cmocka_unit_test(an_unknown_key_is_refused),
    cmocka_unit_test(another_manager_is_not_believed),
    cmocka_unit_test(without_a_key_nothing_is_heard),
    cmocka_unit_test(keys_that_are_missing_are_named),
    cmocka_unit_test(authorized_keys_lie_beside_the_managers),
    cmocka_unit_test(a_port_is_one_managers),
    cmocka_unit_test(nobody_there_is_waited_for),
};
DYT_TEST_MAIN(tests)
