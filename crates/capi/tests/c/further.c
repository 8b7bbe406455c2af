/* libhearth from a C program, part two: data on the wire, certificates of the peer, transfer
 * rates, the thread of callbacks; and aborts and time-outs in each stage before a response.
 *
 * Usage: further name=port ... folder=PATH [only=TEST] */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "calls.h"

static void set_certificates(hearth_request *made, const char *text) {
    CHECK_EQ(hearth_request_set_certificates(made, text, HEARTH_TEXT), HEARTH_OK);
}

/* A request that trusts the test server. */
static hearth_request *secure(const char *port, const char *path, const char *options) {
    char text[1000];
    hearth_request *made = request("GET", at(port, path), options);
    snprintf(text, sizeof text, "cainfo=%s/server.pem", argument("folder"));
    set_certificates(made, text);
    return made;
}

/* ---- the wire ---- */

struct wire {
    char seen[5][8000];
    size_t size[5];
    atomic_int done, late;
};

static void saw(
    void *user, hearth_request *made, hearth_debug what, const char *data, size_t size) {
    struct wire *wire = user;
    CHECK(made != NULL && what >= HEARTH_DEBUG_TEXT && what <= HEARTH_DEBUG_DATA_OUT);
    wire->late += wire->done;
    size_t room = sizeof wire->seen[0] - 1 - wire->size[what];
    size_t taken = size < room ? size : room;
    memcpy(wire->seen[what] + wire->size[what], data, taken);
    wire->size[what] += taken;
}

static void wire_is_done(void *user, hearth_request *made, const hearth_response *response) {
    struct wire *wire = user;
    (void)made;
    (void)response;
    wire->done = 1;
}

static void watch(hearth_request *made, struct wire *wire, int secrets) {
    memset(wire, 0, sizeof *wire);
    CHECK_EQ(hearth_request_on_debug(made, saw, secrets, wire), HEARTH_OK);
    CHECK_EQ(hearth_request_start(made, wire_is_done, wire), HEARTH_OK);
    CHECK_EQ(hearth_request_wait(made, 20000), HEARTH_OK);
    CHECK_EQ(wire->done, 1);
    CHECK_EQ(wire->late, 0);
    hearth_request_free(made);
}

static void a_debug_callback_sees_the_wire(void) {
    static struct wire wire;
    for (int turn = 0; turn < 4; turn++) {
        int secrets = turn % 2;
        hearth_request *made = request("POST", at("http", "/echo?q"),
            turn < 2 ? "threaded_callback=1" : "threaded_callback=0");
        CHECK_EQ(hearth_request_set_body(made, "what is sent", HEARTH_TEXT), HEARTH_OK);
        CHECK_EQ(hearth_request_set_authentication(made, "mode=bearer,secret=a-token", HEARTH_TEXT),
            HEARTH_OK);
        CHECK_EQ(hearth_request_add_header(made, "Cookie", HEARTH_TEXT, "c=secret", HEARTH_TEXT),
            HEARTH_OK);
        watch(made, &wire, secrets);
        const char *out = wire.seen[HEARTH_DEBUG_HEADER_OUT];
        CHECK(strstr(out, "POST /echo?q HTTP/1.1\r\nHost: 127.0.0.1:") == out);
        CHECK(strstr(out, "\r\nContent-Length: 12\r\n") && strstr(out, "\r\n\r\n"));
        CHECK(strstr(out, secrets ? "Bearer a-token\r\n" : "Authorization: Bearer ***\r\n"));
        CHECK(strstr(out, secrets ? "c=secret\r\n" : "Cookie: ***\r\n"));
        CHECK(strcmp(wire.seen[HEARTH_DEBUG_DATA_OUT], "what is sent") == 0);
        CHECK(strncmp(wire.seen[HEARTH_DEBUG_HEADER_IN], "HTTP/1.1 200 OK\r\n", 17) == 0);
        /* The body is shown unchanged: the origin echoes the request there. */
        CHECK(strstr(wire.seen[HEARTH_DEBUG_DATA_IN], "\n\nwhat is sent\n"));
        CHECK(strstr(wire.seen[HEARTH_DEBUG_TEXT], " to 127.0.0.1:"));
    }
    /* Redirects and interim responses are shown, too; bodies in the pieces in which they arrive. */
    watch(request("GET", at("http", "/to/302?to=/interim"), "follow_location=1"), &wire, 0);
    const char *in = wire.seen[HEARTH_DEBUG_HEADER_IN];
    CHECK(
        strstr(in, "HTTP/1.1 302 ") && strstr(in, "HTTP/1.1 103 ") && strstr(in, "HTTP/1.1 200 "));
    CHECK(strstr(wire.seen[HEARTH_DEBUG_HEADER_OUT], "GET /interim HTTP/1.1\r\n"));
    watch(request("GET", at("http", "/two-cookies"), NULL), &wire, 0);
    CHECK(strstr(in, "Set-Cookie: ***\r\nSet-Cookie: ***\r\n") && !strstr(in, "a=1"));
    watch(request("GET", at("http", "/gzip"), NULL), &wire, 0);
    CHECK(wire.seen[HEARTH_DEBUG_DATA_IN][0] == '\x1f' && wire.size[HEARTH_DEBUG_DATA_IN] > 20);
    /* The reason of a failure. */
    watch(request("GET", at("closed", "/"), NULL), &wire, 0);
    CHECK(strstr(wire.seen[HEARTH_DEBUG_TEXT], "connect"));
    CHECK_EQ(wire.size[HEARTH_DEBUG_HEADER_OUT], 0);
    /* TLS. */
    watch(secure("https", "/ok", NULL), &wire, 0);
    const char *text = wire.seen[HEARTH_DEBUG_TEXT];
    CHECK(strstr(text, "TLS 1.3, TLS_") && strstr(text, "subject CN=server;"));
    CHECK(strstr(text, "names IP:127.0.0.1, DNS:name.test"));
}

static void a_debug_callback_sees_all_of_a_large_body(void) {
    static struct wire wire;
    hearth_request *made = request("POST", at("http", "/length"), NULL);
    char path[600];
    snprintf(path, sizeof path, "%s/large-%d", argument("folder"), (int)getpid());
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 3000; i++) {
        fprintf(file, "%099d\n", i);
    }
    fclose(file);
    CHECK_EQ(hearth_request_set_body_file(made, path, HEARTH_TEXT), HEARTH_OK);
    watch(made, &wire, 0);
    CHECK_EQ(wire.size[HEARTH_DEBUG_DATA_OUT], sizeof wire.seen[0] - 1);
    CHECK(strstr(wire.seen[HEARTH_DEBUG_DATA_IN], "300000 ") == wire.seen[HEARTH_DEBUG_DATA_IN]);
}

static void certificates_are_shown_after_the_call(void) {
    hearth_response *response = perform(secure("https", "/ok", NULL));
    hearth_tls tls = {.size = sizeof tls};
    CHECK_EQ(hearth_response_tls(response, &tls), HEARTH_OK);
    CHECK_EQ(tls.version, 13);
    CHECK(contains(tls.cipher, "TLS_AES_") || contains(tls.cipher, "TLS_CHACHA20_"));
    CHECK_EQ(tls.certificates, 1);
    hearth_certificate shown = {.size = sizeof shown};
    CHECK_EQ(hearth_response_certificate_at(response, 1, &shown), HEARTH_INVALID);
    CHECK_EQ(hearth_response_certificate_at(response, 0, &shown), HEARTH_OK);
    CHECK_TEXT(shown.subject, "CN=server");
    CHECK_TEXT(shown.issuer, "CN=server");
    CHECK_TEXT(shown.names, "IP:127.0.0.1, DNS:name.test");
    CHECK(shown.serial.size >= 2);
    CHECK_EQ(shown.not_after - shown.not_before, 2 * 24 * 3600);
    CHECK(shown.not_before <= (int64_t)time(NULL) && shown.not_after > (int64_t)time(NULL));
    /* The same text as the server's file. */
    char path[600], pem[4000];
    snprintf(path, sizeof path, "%s/server.pem", argument("folder"));
    FILE *file = fopen(path, "rb");
    pem[fread(pem, 1, sizeof pem - 1, file)] = 0;
    fclose(file);
    CHECK_TEXT(shown.pem, pem);
    hearth_response *kept = hearth_response_keep(response);
    hearth_response_free(response);
    CHECK_TEXT(shown.subject, "CN=server");
    hearth_response_free(kept);

    response = get("/ok", NULL);
    CHECK_EQ(hearth_response_tls(response, &tls), HEARTH_OK);
    CHECK_EQ(tls.version, 0);
    CHECK_EQ(tls.certificates, 0);
    CHECK(tls.cipher.data == NULL);
    CHECK_EQ(hearth_response_certificate_at(response, 0, &shown), HEARTH_INVALID);
    CHECK_EQ(hearth_response_tls(response, NULL), HEARTH_INVALID);
    CHECK_EQ(hearth_response_tls(NULL, &tls), HEARTH_INVALID);
    hearth_response_free(response);
}

static void cipher_suites_can_be_chosen(void) {
    static const struct {
        const char *options, *cipher;
    } cases[] = {
        {"ciphers=TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"},
        {"ciphers=tls_aes_128_gcm_sha256", "TLS_AES_128_GCM_SHA256"},
        {"tls_max=12,ciphers=ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
        /* Without a cipher for this version, no connection is possible. */
        {"tls_max=12,ciphers=TLS_AES_128_GCM_SHA256", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_response *response = perform(secure("https", "/ok", cases[i].options));
        hearth_tls tls = {.size = sizeof tls};
        CHECK_EQ(hearth_response_tls(response, &tls), HEARTH_OK);
        if (cases[i].cipher) {
            CHECK_TEXT(tls.cipher, cases[i].cipher);
        } else {
            CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_UNSUPPORTED);
        }
        hearth_response_free(response);
    }
    hearth_request *made = request("GET", at("https", "/ok"), NULL);
    CHECK_EQ(hearth_request_set_options(made, "ciphers=AES128-SHA", HEARTH_TEXT), HEARTH_INVALID);
    CHECK(strstr(hearth_last_error(), "TLS_AES_128_GCM_SHA256") != NULL);
    hearth_request_free(made);
}

/* ---- transfer rates ---- */

static void bodies_keep_to_their_rate(void) {
    /* Never earlier: 40,000 bytes at 100,000 a second, less one piece (5,000) and the allowance
     * for late clocks (50 ms). */
    double began = now();
    hearth_response *response = get("/size/40000", "max_receive_rate=100000,idle_timeout=5000");
    CHECK(now() - began > 299);
    CHECK_EQ(hearth_response_body(response).size, 40000);
    hearth_response_free(response);

    hearth_request *made =
        request("POST", at("http", "/length"), "max_send_rate=100000,idle_timeout=5000");
    static char large[40000];
    memset(large, 'r', sizeof large);
    CHECK_EQ(hearth_request_set_body(made, large, sizeof large), HEARTH_OK);
    began = now();
    response = perform(made);
    CHECK(now() - began > 299);
    CHECK(contains(hearth_response_body(response), "40000 "));
    hearth_response_free(response);

    /* A compressed body counts by its bytes on the wire; 40,000 decompressed bytes are one
     * piece. */
    response = get("/gzip", "max_receive_rate=1000");
    CHECK_TEXT(hearth_response_body(response), "the text that was compressed\n");
    hearth_response_free(response);
    /* The time-out of the whole request still applies. */
    response = get("/size/1000000", "max_receive_rate=1000,timeout=150");
    CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_TIMEOUT);
    hearth_response_free(response);
    made = request("GET", at("http", "/ok"), NULL);
    CHECK_EQ(hearth_request_set_number(made, HEARTH_MAX_SEND_RATE, -1), HEARTH_INVALID);
    hearth_request_free(made);
}

static void encodings_are_asked_for_by_name(void) {
    hearth_response *response = get("/echo", "accept_encoding=\"br, gzip\"");
    CHECK(contains(hearth_response_body(response), "accept-encoding: br, gzip"));
    hearth_response_free(response);
    response = get("/echo", "accept_encoding=identity");
    CHECK(contains(hearth_response_body(response), "accept-encoding: identity"));
    hearth_response_free(response);
    response = get("/echo", "accept_encoding=gzip,accept_compression=0");
    CHECK(!contains(hearth_response_body(response), "accept-encoding"));
    hearth_response_free(response);
    /* An encoding other than the requested one is decoded. */
    response = get("/zstd", "accept_encoding=gzip");
    CHECK_TEXT(hearth_response_body(response), "the text that was compressed\n");
    hearth_response_free(response);
    hearth_request *made = request("GET", at("http", "/ok"), NULL);
    CHECK_EQ(
        hearth_request_set_options(made, "accept_encoding=rot13", HEARTH_TEXT), HEARTH_INVALID);
    hearth_request_free(made);
}

/* ---- the thread of callbacks ---- */

/* An event loop of the program: jobs in a ring, run by one thread. */
struct loop {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct {
        hearth_run run;
        void *work;
    } jobs[64];
    unsigned first, last;
    int closed, ends;
    pthread_t thread;
    atomic_int asked, refused, released, running, at_once, on_other_threads, done;
};

static int execute(void *user, hearth_run run, void *work) {
    struct loop *loop = user;
    loop->asked++;
    pthread_mutex_lock(&loop->mutex);
    int refused = loop->closed;
    if (!refused) {
        loop->jobs[loop->last % 64].run = run;
        loop->jobs[loop->last++ % 64].work = work;
        pthread_cond_signal(&loop->changed);
    }
    pthread_mutex_unlock(&loop->mutex);
    loop->refused += refused;
    return refused;
}

static void let_go(void *user) {
    ((struct loop *)user)->released++;
}

static void *run_loop(void *user) {
    struct loop *loop = user;
    pthread_mutex_lock(&loop->mutex);
    while (!loop->ends || loop->first != loop->last) {
        if (loop->first == loop->last) {
            pthread_cond_wait(&loop->changed, &loop->mutex);
            continue;
        }
        hearth_run run = loop->jobs[loop->first % 64].run;
        void *work = loop->jobs[loop->first++ % 64].work;
        pthread_mutex_unlock(&loop->mutex);
        run(work);
        pthread_mutex_lock(&loop->mutex);
    }
    pthread_mutex_unlock(&loop->mutex);
    return NULL;
}

static void enter(struct loop *loop) {
    loop->on_other_threads += !pthread_equal(pthread_self(), loop->thread);
    loop->at_once += loop->running++ > 0;
}

static hearth_flow piece_in_loop(void *user, hearth_request *made, const char *data, size_t size) {
    (void)made;
    (void)data;
    (void)size;
    enter(user);
    ((struct loop *)user)->running--;
    return HEARTH_CONTINUE;
}

static void done_in_loop(void *user, hearth_request *made, const hearth_response *response) {
    struct loop *loop = user;
    enter(loop);
    CHECK_EQ(hearth_response_status(response), 200);
    if (made) {
        /* The thread would wait for itself. */
        CHECK_EQ(hearth_request_wait(made, 10), HEARTH_STATE);
    }
    loop->running--;
    loop->done++;
}

static void callbacks_run_where_the_program_wants(void) {
    hearth_engine *own = NULL, *shared = engine;
    struct loop loop = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    CHECK_EQ(pthread_create(&loop.thread, NULL, run_loop, &loop), 0);
    CHECK_EQ(hearth_engine_new(&own), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_executor(own, execute, let_go, &loop), HEARTH_OK);
    engine = own;
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(
            hearth_engine_get(own, at("http", "/ok"), HEARTH_TEXT, done_in_loop, &loop), HEARTH_OK);
    }
    hearth_request *made = request("GET", at("http", "/size/300000"), NULL);
    CHECK_EQ(hearth_request_on_body(made, piece_in_loop, &loop), HEARTH_OK);
    CHECK_EQ(hearth_request_start(made, done_in_loop, &loop), HEARTH_OK);
    CHECK_EQ(hearth_request_wait(made, 20000), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_executor(own, NULL, NULL, NULL), HEARTH_STATE);
    int forced = 1;
    CHECK_EQ(hearth_engine_stop(own, 20000, &forced), HEARTH_OK);
    CHECK_EQ(forced, 0);
    CHECK_EQ(loop.done, 301);
    CHECK_EQ(loop.on_other_threads, 0);
    CHECK_EQ(loop.at_once, 0);
    CHECK(loop.asked > 0 && loop.refused == 0);

    /* The loop ends: once it refuses a job it is not called again, and no completion is lost. */
    pthread_mutex_lock(&loop.mutex);
    loop.closed = loop.ends = 1;
    pthread_cond_signal(&loop.changed);
    pthread_mutex_unlock(&loop.mutex);
    CHECK_EQ(pthread_join(loop.thread, NULL), 0);
    loop.thread = pthread_self();
    loop.asked = loop.on_other_threads = 0;
    CHECK_EQ(hearth_engine_start(own), HEARTH_OK);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(
            hearth_engine_get(own, at("http", "/ok"), HEARTH_TEXT, done_in_loop, &loop), HEARTH_OK);
    }
    CHECK_EQ(hearth_engine_stop(own, 20000, &forced), HEARTH_OK);
    CHECK_EQ(loop.done, 351);
    CHECK_EQ(loop.on_other_threads, 50);
    CHECK_EQ(loop.at_once, 0);
    CHECK_EQ(loop.asked, 1);
    CHECK_EQ(loop.released, 0);
    hearth_request_free(made);
    engine = shared;
    hearth_engine_free(own);
    CHECK_EQ(loop.released, 1);
}

static int at_once(void *user, hearth_run run, void *work) {
    ++*(atomic_int *)user;
    run(work);
    return 0;
}

static atomic_int again;
static void starts_another(void *user, hearth_request *made, const hearth_response *response) {
    CHECK_EQ(hearth_response_status(response), 200);
    if (++again < 20) {
        CHECK_EQ(hearth_request_start(made, starts_another, user), HEARTH_OK);
    }
}

static void an_executor_may_run_at_once(void) {
    hearth_engine *own = NULL, *shared = engine;
    atomic_int asked = 0;
    CHECK_EQ(hearth_engine_new(&own), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_executor(own, at_once, NULL, &asked), HEARTH_OK);
    engine = own;
    again = 0;
    hearth_request *made = request("GET", at("http", "/ok"), NULL);
    CHECK_EQ(hearth_request_start(made, starts_another, NULL), HEARTH_OK);
    for (int turn = 0; turn < 5000 && again < 20; turn++) {
        rest(2);
    }
    CHECK_EQ(hearth_engine_stop(own, 20000, NULL), HEARTH_OK);
    hearth_request_free(made);
    CHECK(asked > 0);
    CHECK_EQ(again, 20);
    engine = shared;
    hearth_engine_free(own);
}

/* ---- every stage before a response ---- */

/* Replaces getaddrinfo: the look-up of one name takes as long as the test wants; all others use
 * the C library's. */
static atomic_int looking_up, look_up_may_end;

int getaddrinfo(
    const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (name && strcmp(name, "hangs.test") == 0) {
        looking_up++;
        while (!look_up_may_end) {
            rest(2);
        }
        return EAI_NONAME;
    }
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    }
    return real(name, service, hints, found);
}

struct ending {
    atomic_int done, error, status;
    size_t given;
};

static void ended(void *user, hearth_request *made, const hearth_response *response) {
    struct ending *ending = user;
    (void)made;
    ending->error = hearth_response_error(response);
    ending->status = hearth_response_status(response);
    ending->done++;
}

static hearth_flow endless(
    void *user, hearth_request *made, char *buffer, size_t room, size_t *written) {
    (void)made;
    memset(buffer, 'e', room);
    *written = room;
    ((struct ending *)user)->given += room;
    return HEARTH_CONTINUE;
}

/* Returns a request that stays in the stage with this number; NULL if there is no such stage. */
static hearth_request *staying(int stage, const char *options, struct ending *ending) {
    char text[300], proxy[200];
    static const char *const proxies[] = {"http", "https", "socks4", "socks5"};
    hearth_request *made = NULL;
    if (stage == 0) {
        return request("GET", "http://hangs.test/", options);
    }
    if (stage == 1) {
        snprintf(text, sizeof text, "https://127.0.0.1:%s/", argument("mute"));
        return request("GET", text, options);
    }
    if (stage < 6) {
        snprintf(
            proxy, sizeof proxy, "proxy=%s://127.0.0.1:%s", proxies[stage - 2], argument("mute"));
        made = request("GET", at("https", "/ok"), options);
        CHECK_EQ(hearth_request_set_options(made, proxy, HEARTH_TEXT), HEARTH_OK);
        return made;
    }
    if (stage < 8) {
        made = request("POST", at("http", "/silent-body"), options);
        CHECK_EQ(
            hearth_request_set_body_source(made, HEARTH_UNKNOWN, endless, NULL, ending), HEARTH_OK);
        if (stage == 7) {
            CHECK_EQ(hearth_request_set_number(made, HEARTH_EXPECT_CONTINUE, 1), HEARTH_OK);
        }
        return made;
    }
    if (stage == 8) {
        /* HTTP/2 with an origin that accepts the preface and sends nothing. */
        made = request("GET", at("mute", "/"), options);
        CHECK_EQ(hearth_request_set_number(made, HEARTH_HTTP_VERSION, 20), HEARTH_OK);
    }
    return made;
}

static void abort_ends_every_stage_before_an_answer(void) {
    hearth_engine *shared = engine;
    for (int threaded = 0; threaded < 2; threaded++) {
        CHECK_EQ(hearth_engine_new(&engine), HEARTH_OK);
        looking_up = look_up_may_end = 0;
        for (int stage = 0;; stage++) {
            struct ending ending = {0};
            hearth_request *made =
                staying(stage, threaded ? "threaded_callback=1" : "threaded_callback=0", &ending);
            if (!made) {
                break;
            }
            CHECK_EQ(hearth_request_start(made, ended, &ending), HEARTH_OK);
            /* Waits until the request is in this stage. The silent peers cannot tell, so a pause
             * must do there. */
            for (int turn = 0; turn < 5000 && stage == 0 && !looking_up; turn++) {
                rest(2);
            }
            rest(stage == 0 ? 0 : 40);
            CHECK_EQ(ending.done, 0);
            CHECK_EQ(hearth_request_abort(made), HEARTH_OK);
            CHECK_EQ(hearth_request_wait(made, 20000), HEARTH_OK);
            CHECK_EQ(ending.done, 1);
            CHECK_EQ(ending.error, HEARTH_ERROR_ABORTED);
            CHECK_EQ(ending.status, 0);
            /* The source is not called any more. */
            size_t given = ending.given;
            rest(5);
            CHECK_EQ(ending.given, given);
            hearth_request_free(made);
        }
        hearth_statistics numbers = {.size = sizeof numbers};
        CHECK_EQ(hearth_engine_statistics(engine, &numbers), HEARTH_OK);
        CHECK_EQ(numbers.active, 0);
        CHECK_EQ(numbers.aborted, 9);
        look_up_may_end = 1;
        hearth_engine_free(engine);
    }
    engine = shared;
}

static void every_stage_before_an_answer_has_its_time(void) {
    hearth_engine *shared = engine;
    CHECK_EQ(hearth_engine_new(&engine), HEARTH_OK);
    looking_up = look_up_may_end = 0;
    for (int stage = 0;; stage++) {
        for (int whole = 0; whole < 2; whole++) {
            struct ending ending = {0};
            /* One limit of either kind is near, the other far away. */
            hearth_request *made = staying(stage,
                whole ? "timeout=120,connect_timeout=100000" : "timeout=100000,connect_timeout=120",
                &ending);
            if (!made) {
                goto over;
            }
            int connected = stage > 5;
            if (connected && !whole) {
                CHECK_EQ(hearth_request_set_number(made, HEARTH_IDLE_TIMEOUT, 120), HEARTH_OK);
            }
            double began = now();
            hearth_response *response = perform(made);
            /* Never earlier, and by the near limit: the other is a hundred seconds away. */
            double took = now() - began;
            CHECK(took > 119 && took < 50000);
            int wanted = whole       ? HEARTH_ERROR_TIMEOUT
                         : connected ? HEARTH_ERROR_IDLE_TIMEOUT
                                     : HEARTH_ERROR_CONNECT_TIMEOUT;
            CHECK_EQ(hearth_response_error(response), wanted);
            CHECK_EQ(hearth_response_error_code(response), 28);
            hearth_response_free(response);
        }
    }
over:
    look_up_may_end = 1;
    hearth_engine_free(engine);
    engine = shared;
}

/* ---- bodies that break, and large bodies ---- */

static void a_body_that_breaks_is_final(void) {
    char count_path[100];
    for (int post = 0; post < 2; post++) {
        const char *path = once("/breaks/", post ? "/post" : "/get");
        hearth_request *made = request(post ? "POST" : "GET", at("http", path),
            "max_retries=3,retry_delay=5,retry_any_method=1");
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_RESET);
        /* The head had arrived. The part of the body is not passed on as a complete body. */
        CHECK_EQ(hearth_response_status(response), 200);
        CHECK_EQ(hearth_response_body(response).size, 0);
        hearth_timings timings = {.size = sizeof timings};
        CHECK_EQ(hearth_response_timings(response, &timings), HEARTH_OK);
        CHECK_EQ(timings.retries, 0);
        hearth_response_free(response);
        snprintf(count_path, sizeof count_path, "/count%s", path);
        response = get(count_path, NULL);
        CHECK_TEXT(hearth_response_body(response), "1");
        hearth_response_free(response);
    }
}

static void a_redirect_with_a_large_body_is_followed(void) {
    hearth_response *response = get("/to-large/3000000", "follow_location=1");
    CHECK_EQ(hearth_response_error(response), 0);
    CHECK_TEXT(hearth_response_body(response), "ok");
    hearth_response_free(response);
    /* If it is not followed, it is an ordinary response with the same size limit. */
    response = get("/to-large/3000000", NULL);
    CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_TOO_LARGE);
    CHECK_EQ(hearth_response_status(response), 302);
    hearth_response_free(response);
    response = get("/to-large/100000", NULL);
    CHECK_EQ(hearth_response_body(response).size, 100000);
    hearth_response_free(response);
}

static void several_ranges_are_asked_for_at_once(void) {
    hearth_response *response = get("/echo", "range=\"0-1, 5-9,-3\"");
    CHECK(contains(hearth_response_body(response), "range: bytes=0-1, 5-9,-3"));
    hearth_response_free(response);
}

/* ---- the engine's limits; the proxy's certificates ---- */

static void an_engine_keeps_to_its_limits(void) {
    hearth_engine *own = NULL;
    struct ending endings[12] = {0};
    CHECK_EQ(hearth_engine_new(&own), HEARTH_OK);
    /* At most 3 connections for all hosts together, whatever the limit of each host. */
    CHECK_EQ(hearth_engine_set_options(own, "connections=3,connections_per_host=10", HEARTH_TEXT),
        HEARTH_OK);
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(hearth_engine_get(own, at(i % 2 ? "http" : "other", "/slow/30"), HEARTH_TEXT,
                     ended, &endings[i]),
            HEARTH_OK);
    }
    uint64_t most = 0;
    hearth_statistics numbers = {.size = sizeof numbers};
    do {
        CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
        most = numbers.connections > most ? numbers.connections : most;
        rest(1);
    } while (numbers.active > 0);
    CHECK(most >= 1 && most <= 3);
    CHECK_EQ(numbers.answered, 12);
    CHECK_EQ(hearth_engine_stop(own, 20000, NULL), HEARTH_OK);

    /* The limit of requests at one host: more requests wait, even though connections are
     * available. */
    CHECK_EQ(hearth_engine_set_options(
                 own, "connections=100,connections_per_host=10,requests_per_host=2", HEARTH_TEXT),
        HEARTH_OK);
    CHECK_EQ(hearth_engine_start(own), HEARTH_OK);
    CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
    uint64_t connects = numbers.connects, queued = 0;
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(hearth_engine_get(own, at("http", "/slow/30"), HEARTH_TEXT, ended, &endings[i]),
            HEARTH_OK);
    }
    do {
        CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
        queued = numbers.queued > queued ? numbers.queued : queued;
        rest(1);
    } while (numbers.active > 0);
    CHECK(numbers.connects - connects <= 2);
    CHECK(queued >= 1 && queued <= 10);

    /* An idle connection closes after its time. */
    CHECK_EQ(hearth_engine_stop(own, 20000, NULL), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_number(own, HEARTH_IDLE_CONNECTION_TIME, 1), HEARTH_OK);
    CHECK_EQ(hearth_engine_start(own), HEARTH_OK);
    CHECK_EQ(hearth_engine_get(own, at("http", "/ok"), HEARTH_TEXT, ended, &endings[0]), HEARTH_OK);
    for (int turn = 0; turn < 5000; turn++) {
        CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
        if (numbers.active == 0 && numbers.connections == 0) {
            break;
        }
        rest(2);
    }
    CHECK_EQ(numbers.connections, 0);
    hearth_engine_free(own);
}

static void a_proxy_over_tls_has_certificates_of_its_own(void) {
    const char *folder = argument("folder");
    char text[1200], proxy[200];
    /* The proxy refuses a client without a certificate; the origin behind it is trusted through
     * the file for origins. */
    for (int kind = 0; kind < 6; kind++) {
        hearth_request *made = secure("https", "/ok", NULL);
        snprintf(proxy, sizeof proxy, "proxy=https://me:secret@127.0.0.1:%s",
            argument(kind < 2 ? "proxys" : "proxystrict"));
        CHECK_EQ(hearth_request_set_options(made, proxy, HEARTH_TEXT), HEARTH_OK);
        int good = kind == 1 || kind == 3 || kind == 4;
        switch (kind) {
        case 0: /* only the system's authorities are trusted */
            break;
        case 1:
            snprintf(text, sizeof text, "proxy_cainfo=%s/server.pem", folder);
            set_certificates(made, text);
            break;
        case 2: /* it requires a client certificate */
            snprintf(text, sizeof text, "proxy_capath=%s/authorities", folder);
            set_certificates(made, text);
            break;
        case 3:
            snprintf(text, sizeof text,
                "proxy_capath=%s/authorities,proxy_sslcert=%s/client.der,proxy_sslcerttype=DER,"
                "proxy_sslkey=%s/client.key.der,proxy_sslkeytype=DER",
                folder, folder, folder);
            set_certificates(made, text);
            break;
        default:
            snprintf(text, sizeof text,
                "proxy_cainfo=%s/server.pem,proxy_sslcert=%s/client.pem,proxy_sslkey=%s/"
                "client.key.locked,proxy_keypasswd=\"%s\"",
                folder, folder, folder, kind == 4 ? "open, sesame" : "wrong");
            set_certificates(made, text);
        }
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error(response) == 0, good);
        if (good) {
            CHECK_TEXT(hearth_response_body(response), "ok");
        } else if (kind == 5) {
            CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_CERTIFICATE);
        } else {
            CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_PROXY);
        }
        hearth_response_free(response);
    }
}

/* ---- calls that callbacks may make ---- */

static atomic_int let_go_of;
static void asks_when_released(void *user, const char *data, size_t size) {
    CHECK_EQ(hearth_request_running(user), 0);
    CHECK(data != NULL && size == 4);
    let_go_of++;
}

static void lend_body(hearth_request *made) {
    CHECK_EQ(hearth_request_give_body(made, "lent", 4, asks_when_released, made), HEARTH_OK);
}

static void what_is_released_may_ask_its_request(void) {
    let_go_of = 0;
    hearth_request *made = request("POST", at("http", "/echo"), NULL);
    lend_body(made);
    lend_body(made);
    CHECK_EQ(let_go_of, 1);
    CHECK_EQ(hearth_request_set_body(made, "other", HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(let_go_of, 2);
    lend_body(made);
    CHECK_EQ(hearth_request_set_body_source(made, 4, endless, NULL, NULL), HEARTH_OK);
    CHECK_EQ(let_go_of, 3);
    lend_body(made);
    CHECK_EQ(hearth_request_reset(made), HEARTH_OK);
    CHECK_EQ(let_go_of, 4);
    hearth_request_free(made);
}

static void a_request_has_so_many_fields(void) {
    hearth_request *made = request("POST", at("http", "/length"), NULL);
    char name[32];
    int fields = 0, trailers = 0;
    hearth_status status = HEARTH_OK;
    for (; fields < 40000 && status == HEARTH_OK; fields++) {
        snprintf(name, sizeof name, "x-%d", fields);
        status = hearth_request_add_header(made, name, HEARTH_TEXT, "v", HEARTH_TEXT);
    }
    CHECK_EQ(status, HEARTH_INVALID);
    status = HEARTH_OK;
    for (; trailers < 40000 && status == HEARTH_OK; trailers++) {
        snprintf(name, sizeof name, "t-%d", trailers);
        status = hearth_request_add_trailer(made, name, HEARTH_TEXT, "v", HEARTH_TEXT);
    }
    CHECK_EQ(status, HEARTH_INVALID);
    CHECK(strstr(hearth_last_error(), "too many fields") != NULL);
    CHECK_EQ(fields, 20001);
    CHECK_EQ(trailers, 20001);
    /* The request completes, whatever the origin answers to so many fields. */
    hearth_response *response = perform(made);
    CHECK(hearth_response_error(response) != HEARTH_ERROR_INTERNAL);
    hearth_response_free(response);
}

static hearth_flow one_byte_and_rest(
    void *user, hearth_request *made, char *buffer, size_t room, size_t *written) {
    (void)made;
    (void)room;
    *written = (*(atomic_int *)user)++ == 0;
    *buffer = 'e';
    return *written ? HEARTH_CONTINUE : HEARTH_PAUSE;
}

static void one_whose_files_were_read_waits_no_longer_than_its_time(void) {
    hearth_engine *own = NULL, *shared = engine;
    CHECK_EQ(hearth_engine_new(&own), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_options(own, "requests_per_host=1", HEARTH_TEXT), HEARTH_OK);
    engine = own;
    atomic_int asked = 0;
    hearth_request *first = secure("https", "/silent-body", "timeout=100000");
    CHECK_EQ(hearth_request_set_target(
                 first, "POST", HEARTH_TEXT, at("https", "/silent-body"), HEARTH_TEXT),
        HEARTH_OK);
    CHECK_EQ(hearth_request_set_body_source(first, HEARTH_UNKNOWN, one_byte_and_rest, NULL, &asked),
        HEARTH_OK);
    CHECK_EQ(hearth_request_start(first, NULL, NULL), HEARTH_OK);
    /* It has the host's only connection, and does not progress any more. */
    for (int turn = 0; turn < 5000 && asked < 2; turn++) {
        rest(2);
    }
    CHECK(asked >= 2);
    struct ending ending = {0};
    hearth_request *second = secure("https", "/ok", "timeout=100");
    CHECK_EQ(hearth_request_start(second, ended, &ending), HEARTH_OK);
    CHECK_EQ(hearth_request_wait(second, 20000), HEARTH_OK);
    CHECK_EQ(ending.error, HEARTH_ERROR_TIMEOUT);
    CHECK_EQ(hearth_request_running(first), 1);
    hearth_request_free(first);
    hearth_request_free(second);
    engine = shared;
    hearth_engine_free(own);
}

static void a_host_that_made_room_is_no_place_to_wait(void) {
    hearth_engine *own = NULL, *shared = engine;
    static struct ending endings[1023];
    char url[100];
    CHECK_EQ(hearth_engine_new(&own), HEARTH_OK);
    CHECK_EQ(hearth_engine_set_options(own, "requests_per_host=1", HEARTH_TEXT), HEARTH_OK);
    engine = own;
    /* The engine remembers this many hosts, of which the origin is the last. A mail server is one
     * more. */
    for (int i = 0; i < 1023; i++) {
        snprintf(
            url, sizeof url, "http://127.1.%d.%d:%s/", i / 200, 1 + i % 200, argument("closed"));
        CHECK_EQ(hearth_engine_get(own, url, HEARTH_TEXT, ended, &endings[i]), HEARTH_OK);
    }
    hearth_statistics numbers = {.size = sizeof numbers};
    for (int turn = 0; turn < 5000; turn++) {
        CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
        if (numbers.active == 0) {
            break;
        }
        rest(2);
    }
    hearth_response_free(get("/ok", NULL));
    hearth_mail *mail = NULL;
    snprintf(url, sizeof url, "smtp://127.0.0.1:%s/", argument("closed"));
    CHECK_EQ(hearth_mail_new(own, &mail), HEARTH_OK);
    CHECK_EQ(hearth_mail_set_target(mail, url, HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(hearth_mail_set_from(mail, "a@x.test", HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(hearth_mail_add_recipient(mail, HEARTH_MAIL_TO, "b@x.test", HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(hearth_mail_start(mail, NULL, NULL), HEARTH_OK);
    CHECK_EQ(hearth_mail_wait(mail, 20000), HEARTH_OK);
    hearth_mail_free(mail);

    atomic_int asked = 0;
    hearth_request *first = request("POST", at("http", "/silent-body"), NULL);
    CHECK_EQ(hearth_request_set_body_source(first, HEARTH_UNKNOWN, one_byte_and_rest, NULL, &asked),
        HEARTH_OK);
    CHECK_EQ(hearth_request_start(first, NULL, NULL), HEARTH_OK);
    for (int turn = 0; turn < 5000 && asked < 2; turn++) {
        rest(2);
    }
    hearth_request *second = request("GET", at("http", "/ok"), NULL);
    CHECK_EQ(hearth_request_start(second, NULL, NULL), HEARTH_OK);
    for (int turn = 0; turn < 5000 && numbers.queued == 0; turn++) {
        CHECK_EQ(hearth_engine_statistics(own, &numbers), HEARTH_OK);
        rest(2);
    }
    CHECK_EQ(hearth_request_abort(second), HEARTH_OK);
    CHECK_EQ(hearth_request_wait(second, 10000), HEARTH_OK);
    CHECK_EQ(hearth_request_running(first), 1);
    hearth_request_free(first);
    hearth_request_free(second);
    engine = shared;
    hearth_engine_free(own);
}

/* ---- on stderr ---- */

static void verbose_says_each_try_and_its_end_in_a_line(void) {
    char path[600], said[2000];
    snprintf(path, sizeof path, "%s/said-%d", argument("folder"), (int)getpid());
    fflush(stderr);
    int before = dup(2);
    FILE *file = freopen(path, "w+", stderr);
    CHECK(file != NULL);
    hearth_response_free(get("/to/302?to=/ok", "verbose=1,follow_location=1"));
    hearth_response_free(get("/close", "verbose=1"));
    hearth_response_free(get("/ok", NULL));
    fflush(stderr);
    dup2(before, 2);
    close(before);
    file = fopen(path, "rb");
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    const char *const wanted[] = {
        at("http", "/to/302?to=/ok: 302 after "), at("http", "/ok: 200 after "), "/close: "};
    const char *from = said;
    for (int i = 0; i < 3; i++) {
        const char *line = strstr(from, "hearth: GET ");
        CHECK(line && strstr(line, wanted[i]) && strstr(line, wanted[i]) < strchr(line, '\n'));
        from = line ? strchr(line, '\n') : from;
    }
    CHECK(strstr(from, "hearth: ") == NULL);
}

int main(int count, char **values) {
    (void)count;
    if (!begin(values)) {
        return 1;
    }
    RUN(a_debug_callback_sees_the_wire);
    RUN(a_debug_callback_sees_all_of_a_large_body);
    RUN(certificates_are_shown_after_the_call);
    RUN(cipher_suites_can_be_chosen);
    RUN(bodies_keep_to_their_rate);
    RUN(encodings_are_asked_for_by_name);
    RUN(callbacks_run_where_the_program_wants);
    RUN(an_executor_may_run_at_once);
    RUN(abort_ends_every_stage_before_an_answer);
    RUN(every_stage_before_an_answer_has_its_time);
    RUN(a_body_that_breaks_is_final);
    RUN(a_redirect_with_a_large_body_is_followed);
    RUN(several_ranges_are_asked_for_at_once);
    RUN(an_engine_keeps_to_its_limits);
    RUN(a_proxy_over_tls_has_certificates_of_its_own);
    RUN(what_is_released_may_ask_its_request);
    RUN(a_request_has_so_many_fields);
    RUN(one_whose_files_were_read_waits_no_longer_than_its_time);
    RUN(a_host_that_made_room_is_no_place_to_wait);
    RUN(verbose_says_each_try_and_its_end_in_a_line);
    return end();
}
