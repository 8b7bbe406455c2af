/* Mail as a C program sends it: to scripted servers with faults on demand, and to Debian's exim4.
 *
 * Usage: mail mail_NAME=port ... folder=PATH script=PATH pin=PIN [only=TEST] (scripts/test-client starts mail.py and says its ports) */
#include <hearth.h>

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

/* Text in one of eight buffers. */
static char *text(const char *format, const char *one, const char *two) {
    static char texts[8][4096];
    static int next;
    char *made = texts[next++ % 8];
    snprintf(made, 4096, format, one, two);
    return made;
}

static const char *at(const char *port) {
    char name[64];
    snprintf(name, sizeof name, "mail_%s", port);
    const char *scheme = strcmp(port, "smtps") == 0 ? "smtps" : "smtp";
    return text("%s://127.0.0.1:%s/me.test", scheme, argument(name));
}

static int contains(hearth_bytes all, const char *part) {
    size_t length = strlen(part);
    for (size_t from = 0; from + length <= all.size; from++) {
        if (memcmp(all.data + from, part, length) == 0) {
            return 1;
        }
    }
    return 0;
}

static void options(hearth_mail *made, const char *set) {
    CHECK_EQ(hearth_mail_set_options(made, set, HEARTH_TEXT), HEARTH_OK);
}

static void to(hearth_mail *made, int kind, const char *address) {
    CHECK_EQ(hearth_mail_add_recipient(made, kind, address, HEARTH_TEXT), HEARTH_OK);
}

static void part(hearth_mail *made, int place, const char *type, const char *name, const char *id,
    const char *data) {
    hearth_part given = {sizeof given, place, type, HEARTH_TEXT, name, HEARTH_TEXT, id, HEARTH_TEXT,
        data, HEARTH_TEXT, NULL, 0};
    CHECK_EQ(hearth_mail_add_part(made, &given), HEARTH_OK);
}

/* A mail without recipients, whose certificates are believed. */
static hearth_mail *bare(const char *url, const char *from) {
    hearth_mail *made = NULL;
    CHECK_EQ(hearth_mail_new(engine, &made), HEARTH_OK);
    CHECK_EQ(hearth_mail_set_target(made, url, HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(hearth_mail_set_from(made, from, HEARTH_TEXT), HEARTH_OK);
    char *trust = text("cainfo=%s/server.pem%s", argument("folder"), "");
    CHECK_EQ(hearth_mail_set_certificates(made, trust, HEARTH_TEXT), HEARTH_OK);
    return made;
}

static hearth_mail *mail(const char *url, const char *from) {
    hearth_mail *made = bare(url, from);
    to(made, HEARTH_MAIL_TO, "b@x.test");
    CHECK_EQ(hearth_mail_set_subject(made, "Hello", HEARTH_TEXT), HEARTH_OK);
    part(made, HEARTH_MAIL_BODY, NULL, NULL, NULL, "Hello");
    return made;
}

static hearth_response *perform(hearth_mail *made) {
    hearth_response *response = NULL;
    CHECK_EQ(hearth_mail_perform(made, &response), HEARTH_OK);
    hearth_mail_free(made);
    return response;
}

/* What the scripted server was told, as its reply says; the caller frees it. */
static char *told(const hearth_response *response) {
    hearth_bytes reply = hearth_response_reply(response);
    char number[16] = "";
    for (size_t from = reply.size; from > 0 && reply.data[from - 1] != ' '; from--) {
        snprintf(
            number, sizeof number, "%.*s", (int)(reply.size - from + 1), reply.data + from - 1);
    }
    FILE *file = fopen(text("%s/told/%s", argument("folder"), number), "rb");
    char *all = calloc(1, 1 << 20);
    CHECK(file != NULL);
    if (file) {
        CHECK(fread(all, 1, (1 << 20) - 1, file) > 0);
        fclose(file);
    }
    return all;
}

#define CHECK_HAS(all, part) CHECK(strstr(all, part) != NULL)
#define CHECK_HAS_NOT(all, part) CHECK(strstr(all, part) == NULL)

static void expect(hearth_mail *made, int error, int code, int status) {
    hearth_response *response = perform(made);
    CHECK_EQ(hearth_response_error(response), error);
    CHECK_EQ(hearth_response_error_code(response), code);
    CHECK_EQ(hearth_response_status(response), status);
    if (failed_here) {
        hearth_bytes why = hearth_response_error_message(response);
        fprintf(stderr, "    %.*s\n", (int)why.size, why.data);
    }
    hearth_response_free(response);
}

/* ---- what is sent ---- */

static void a_mail_goes_out_as_it_was_meant(void) {
    hearth_mail *made = mail(at("smtp"), "Ann \"A\" <ann@x.test>");
    to(made, HEARTH_MAIL_CC, "Cy <cy@x.test>");
    to(made, HEARTH_MAIL_BCC, "secret@x.test");
    to(made, HEARTH_MAIL_REPLY_TO, "desk@x.test");
    CHECK_EQ(hearth_mail_add_header(made, "X-Test", HEARTH_TEXT, "1", HEARTH_TEXT), HEARTH_OK);
    CHECK_EQ(hearth_mail_set_sender(made, "bounce@x.test", HEARTH_TEXT), HEARTH_OK);
    options(made, "dsn_notify=\"success,failure\", dsn_return=headers");
    hearth_response *response = perform(made);
    CHECK_EQ(hearth_response_error(response), 0);
    CHECK_EQ(hearth_response_status(response), 250);
    CHECK_TEXT(hearth_response_enhanced(response), "2.0.0");
    CHECK_EQ(hearth_response_recipient_count(response), 3);
    hearth_recipient one = {sizeof one, {0}, 0, {0}, {0}};
    CHECK_EQ(hearth_response_recipient_at(response, 2, &one), HEARTH_OK);
    CHECK_TEXT(one.address, "secret@x.test");
    CHECK_EQ(one.code, 250);
    CHECK_TEXT(one.enhanced, "2.1.5");
    CHECK_EQ(hearth_response_recipient_at(response, 3, &one), HEARTH_INVALID);
    char *all = told(response);
    CHECK_HAS(all, "TLS -\n");
    CHECK_HAS(all, "EHLO me.test\nMAIL FROM:<bounce@x.test> SIZE=");
    CHECK_HAS(all, " RET=HDRS\n");
    CHECK_HAS(all, "RCPT TO:<secret@x.test> NOTIFY=SUCCESS,FAILURE\nDATA\n");
    char *message = strstr(all, "\n\n");
    CHECK_HAS(message, "From: \"Ann \\\"A\\\"\" <ann@x.test>\r\n");
    CHECK_HAS(message, "To: b@x.test\r\nCc: Cy <cy@x.test>\r\n");
    CHECK_HAS(message, "Reply-To: desk@x.test\r\n");
    CHECK_HAS(message, "\r\nDate: " + 2);
    CHECK_HAS(message, " +0000\r\n");
    CHECK_HAS(message, "Message-ID: <");
    CHECK_HAS_NOT(message, "secret");
    CHECK_HAS_NOT(message, "Bcc");
    free(all);
    hearth_response_free(response);
}

static void a_raw_message_keeps_its_lines_and_hides_who_is_hidden(void) {
    hearth_mail *made = bare(at("smtp"), "a@x.test");
    to(made, HEARTH_MAIL_TO, "b@x.test");
    const char *raw = "From: a@x.test\nBcc: c@x.test,\n d@x.test\nMessage-ID: "
                      "<own@x>\n\n.\n..\r\nbare\rcr\n.\r\nMAIL FROM:<evil@x.test>\r\n";
    CHECK_EQ(hearth_mail_set_raw(made, raw, HEARTH_TEXT), HEARTH_OK);
    hearth_response *response = perform(made);
    CHECK_EQ(hearth_response_status(response), 250);
    CHECK_TEXT(hearth_response_message_id(response), "<own@x>");
    char *all = told(response);
    CHECK_HAS(all, "From: a@x.test\r\nMessage-ID: "
                   "<own@x>\r\n\r\n.\r\n..\r\nbare\r\ncr\r\n.\r\nMAIL FROM:<evil@x.test>\r\n");
    CHECK_HAS_NOT(all, "c@x.test");
    CHECK_HAS_NOT(all, "d@x.test");
    free(all);
    hearth_response_free(response);

    made = bare(at("bare"), "a@x.test");
    to(made, HEARTH_MAIL_TO, "b@x.test");
    CHECK_EQ(hearth_mail_set_raw(made, "A: b\n\n\xc3\xbc", HEARTH_TEXT), HEARTH_OK);
    expect(made, HEARTH_ERROR_UNSUPPORTED, 1, 0);
    made = bare(at("smtp"), "a@x.test");
    to(made, HEARTH_MAIL_TO, "b@x.test");
    CHECK_EQ(hearth_mail_set_raw(made, "A: b\n\n\xc3\xbc", HEARTH_TEXT), HEARTH_OK);
    response = perform(made);
    all = told(response);
    CHECK_HAS(all, "BODY=8BITMIME\n");
    CHECK_HAS(all, "\r\n\r\n\xc3\xbc\r\n");
    free(all);
    hearth_response_free(response);
}

static void what_would_break_out_is_refused(void) {
    hearth_mail *made = mail(at("smtp"), "a@x.test");
    const char *addresses[] = {
        "a@x.test\r\nRCPT TO:<c@x.test>", "a@x.test>\r\n", "a\n@x.test", "a b@x.test", "", "a@"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        CHECK_EQ(hearth_mail_add_recipient(made, HEARTH_MAIL_TO, addresses[i], HEARTH_TEXT),
            HEARTH_INVALID);
        CHECK_EQ(hearth_mail_set_from(made, addresses[i], HEARTH_TEXT), HEARTH_INVALID);
    }
    CHECK_EQ(hearth_mail_add_recipient(made, 7, "a@x.test", HEARTH_TEXT), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_add_recipient(made, HEARTH_MAIL_TO, "a@\0x.test", 9), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_add_recipient(made, HEARTH_MAIL_TO, "\xff@x.test", HEARTH_TEXT),
        HEARTH_INVALID);
    CHECK_EQ(hearth_mail_set_subject(made, "a\r\nBcc: c@x.test", HEARTH_TEXT), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_add_header(made, "X", 1, "a\nBcc: c", HEARTH_TEXT), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_add_header(made, "X\r\nY", HEARTH_TEXT, "a", 1), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_add_header(made, "Bcc", 3, "c@x.test", HEARTH_TEXT), HEARTH_INVALID);
    CHECK_EQ(
        hearth_mail_set_target(made, "smtp://127.0.0.1/a\r\nRSET", HEARTH_TEXT), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_set_target(made, "http://127.0.0.1/", HEARTH_TEXT), HEARTH_UNSUPPORTED);
    CHECK_EQ(hearth_mail_add_part(made, NULL), HEARTH_INVALID);
    hearth_part wrong = {sizeof wrong, 9, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0};
    CHECK_EQ(hearth_mail_add_part(made, &wrong), HEARTH_INVALID);
    wrong.place = HEARTH_MAIL_BODY;
    wrong.content_type = "text/plain\r\nX: y";
    wrong.content_type_size = HEARTH_TEXT;
    CHECK_EQ(hearth_mail_add_part(made, &wrong), HEARTH_INVALID);
    wrong.content_type_size = 0;
    wrong.path = "/nowhere/at/all";
    wrong.path_size = HEARTH_TEXT;
    CHECK_EQ(hearth_mail_add_part(made, &wrong), HEARTH_OK);
    CHECK_EQ(hearth_mail_start(made, NULL, NULL), HEARTH_INVALID);
    CHECK(strstr(hearth_last_error(), "/nowhere/at/all") != NULL);
    CHECK_EQ(hearth_mail_running(made), 0);
    CHECK_EQ(hearth_mail_reset(made), HEARTH_OK);
    CHECK_EQ(hearth_mail_start(made, NULL, NULL), HEARTH_INVALID);
    hearth_mail_free(made);
    CHECK_EQ(hearth_mail_new(NULL, &made), HEARTH_INVALID);
    CHECK_EQ(hearth_mail_set_from(NULL, "a@x.test", HEARTH_TEXT), HEARTH_INVALID);
    hearth_mail_free(NULL);
}

static void each_recipient_has_its_own_answer(void) {
    for (int allowed = 0; allowed <= 1; allowed++) {
        hearth_mail *made = mail(at("smtp"), "a@x.test");
        to(made, HEARTH_MAIL_CC, "code-450@x.test");
        to(made, HEARTH_MAIL_BCC, "code-550@x.test");
        options(made, allowed ? "rcpt_allow_fails=1, max_retries=3" : "max_retries=3");
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error(response), allowed ? 0 : HEARTH_ERROR_REFUSED);
        CHECK_EQ(hearth_response_status(response), allowed ? 250 : 550);
        const int codes[] = {250, 450, 550};
        for (size_t i = 0; i < 3; i++) {
            hearth_recipient one = {sizeof one, {0}, 0, {0}, {0}};
            CHECK_EQ(hearth_response_recipient_at(response, i, &one), HEARTH_OK);
            CHECK_EQ(one.code, codes[i]);
        }
        if (!allowed) {
            CHECK_TEXT(hearth_response_reply(response), "550 5.1.1 about code-550");
            CHECK_TEXT(hearth_response_enhanced(response), "5.1.1");
        }
        hearth_response_free(response);
    }
    hearth_mail *made = bare(at("smtp"), "a@x.test");
    to(made, HEARTH_MAIL_TO, "code-452@x.test");
    options(made, "rcpt_allow_fails=1");
    expect(made, HEARTH_ERROR_LATER, 55, 452);
}

static void a_thousand_recipients_are_told_in_one_go(void) {
    hearth_mail *made = bare(at("smtp"), "a@x.test");
    for (int i = 0; i < 1000; i++) {
        char address[64];
        snprintf(address, sizeof address, "%s%d@x.test", i % 100 == 7 ? "code-550-" : "r", i);
        to(made, HEARTH_MAIL_BCC, address);
    }
    options(made, "rcpt_allow_fails=1");
    hearth_response *response = perform(made);
    CHECK_EQ(hearth_response_status(response), 250);
    int refused = 0;
    for (size_t i = 0; i < hearth_response_recipient_count(response); i++) {
        hearth_recipient one = {sizeof one, {0}, 0, {0}, {0}};
        hearth_response_recipient_at(response, i, &one);
        refused += one.code == 550;
    }
    CHECK_EQ(refused, 10);
    hearth_response_free(response);
}

/* ---- TLS and logins ---- */

static void tls_is_begun_and_verified(void) {
    struct {
        const char *port, *options;
        int strange; /* the authority is not believed */
        int error, code;
    } cases[] = {
        {"smtps", "", 0, 0, 0},
        {"smtp", "starttls=2", 0, 0, 0},
        {"smtps", "", 1, HEARTH_ERROR_CERTIFICATE, 60},
        {"smtp", "", 1, HEARTH_ERROR_CERTIFICATE, 60},
        {"smtp", "insecure=1", 1, 0, 0},
        {"smtp", "starttls=0", 1, 0, 0},
        {"bare", "starttls=2", 0, HEARTH_ERROR_TLS, 64},
        {"old", "starttls=2", 0, HEARTH_ERROR_REFUSED, 9},
        {"refuses", "starttls=2", 0, HEARTH_ERROR_TLS, 64},
        {"refuses", "", 0, 0, 0},
        {"injects", "", 0, HEARTH_ERROR_TLS, 8},
        {"babbles", "", 0, HEARTH_ERROR_TLS, 35},
        {"mute", "connect_timeout=300", 0, HEARTH_ERROR_CONNECT_TIMEOUT, 28},
        {"smtp", "pinned_key=sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 0,
            HEARTH_ERROR_CERTIFICATE, 90},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_mail *made = mail(at(cases[i].port), "a@x.test");
        options(made, cases[i].options);
        if (cases[i].strange) {
            char *other = text("cainfo=%s/client.pem%s", argument("folder"), "");
            CHECK_EQ(hearth_mail_set_certificates(made, other, HEARTH_TEXT), HEARTH_OK);
        }
        int before = failed_here;
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error(response), cases[i].error);
        CHECK_EQ(hearth_response_error_code(response), cases[i].code);
        if (!cases[i].error) {
            char *all = told(response);
            int secure =
                strcmp(cases[i].port, "refuses") && !strstr(cases[i].options, "starttls=0");
            CHECK_HAS(all, secure ? "TLS -" : "plain -");
            free(all);
        }
        if (failed_here > before) {
            hearth_bytes why = hearth_response_error_message(response);
            fprintf(stderr, "    %s %s: %.*s\n", cases[i].port, cases[i].options, (int)why.size,
                why.data);
        }
        hearth_response_free(response);
    }
    hearth_mail *made = mail(at("smtps"), "a@x.test");
    options(made, text("pinned_key=\"%s\"%s", argument("pin"), ""));
    expect(made, 0, 0, 250);
}

static void secrets_are_shown_only_where_they_may(void) {
    struct {
        const char *port, *login, *options;
        int error;
        const char *way;
    } cases[] = {
        {"smtp", "mode=basic,user=joe,secret=secret", "", 0, "TLS SCRAM-SHA-256"},
        {"smtp", "mode=basic,user=joe,secret=secret,mechanisms=PLAIN", "", 0, "TLS PLAIN"},
        {"smtp", "mode=basic,user=joe,secret=secret,mechanisms=LOGIN", "", 0, "TLS LOGIN"},
        {"smtp", "mode=basic,user=joe,secret=secret,mechanisms=CRAM-MD5", "", 0, "TLS CRAM-MD5"},
        {"smtps", "mode=digest,user=joe,secret=secret", "", 0, "TLS SCRAM-SHA-256"},
        {"smtp", "mode=bearer,user=joe,secret=token", "", 0, "TLS OAUTHBEARER"},
        {"smtp", "mode=bearer,user=joe,secret=token,mechanisms=XOAUTH2", "", 0, "TLS XOAUTH2"},
        {"smtp", "mode=basic,user=joe,secret=wrong", "max_retries=2", HEARTH_ERROR_LOGIN, NULL},
        {"smtp", "mode=basic,user=joe,secret=wrong,mechanisms=PLAIN", "", HEARTH_ERROR_LOGIN, NULL},
        {"smtp", "mode=bearer,user=joe,secret=wrong", "", HEARTH_ERROR_LOGIN, NULL},
        {"smtp", "mode=bearer,user=joe,secret=wrong,mechanisms=XOAUTH2", "", HEARTH_ERROR_LOGIN,
            NULL},
        {"smtp", "mode=basic,user=joe,secret=secret,mechanisms=GSSAPI", "", HEARTH_ERROR_LOGIN,
            NULL},
        /* Without TLS. */
        {"plain", "mode=basic,user=joe,secret=secret", "", HEARTH_ERROR_LOGIN, NULL},
        {"plain", "mode=bearer,user=joe,secret=token", "", HEARTH_ERROR_LOGIN, NULL},
        {"plain", "mode=basic,user=joe,secret=secret", "plain_auth=1", 0, "plain PLAIN"},
        {"cram", "mode=basic,user=joe,secret=secret", "", 0, "plain CRAM-MD5"},
        {"smtp", "mode=basic,user=joe,secret=secret", "starttls=0", 0, "plain SCRAM-SHA-256"},
        {"bare", "mode=basic,user=joe,secret=secret", "plain_auth=1", HEARTH_ERROR_LOGIN, NULL},
        {"refuses", "mode=basic,user=joe,secret=secret,mechanisms=PLAIN", "", HEARTH_ERROR_LOGIN,
            NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_mail *made = mail(at(cases[i].port), "a@x.test");
        options(made, cases[i].options);
        CHECK_EQ(hearth_mail_set_authentication(made, cases[i].login, HEARTH_TEXT), HEARTH_OK);
        hearth_response *response = perform(made);
        int before = failed_here;
        CHECK_EQ(hearth_response_error(response), cases[i].error);
        if (cases[i].way) {
            char *all = told(response);
            CHECK_HAS(all, cases[i].way);
            free(all);
        } else {
            CHECK_EQ(hearth_response_error_code(response), 67);
        }
        hearth_bytes why = hearth_response_error_message(response);
        CHECK(!contains(why, "secret=") && !contains(why, "wrong"));
        if (failed_here > before) {
            fprintf(stderr, "    %s %s: %.*s\n", cases[i].port, cases[i].login, (int)why.size,
                why.data);
        }
        hearth_response_free(response);
    }
}

static void proxies_are_asked_for_a_tunnel(void) {
    const char *kinds[] = {"http", "https", "socks4", "socks5h"};
    const char *ports[] = {"smtp", "smtps"};
    for (size_t i = 0; argument("proxy") && i < 8; i++) {
        hearth_mail *made = mail(at(ports[i % 2]), "a@x.test");
        char set[256];
        const char *port = argument(strcmp(kinds[i / 2], "https") ? "proxy" : "proxys");
        snprintf(
            set, sizeof set, "insecure=1,proxy=%s://me:secret@127.0.0.1:%s", kinds[i / 2], port);
        options(made, set);
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error(response), 0);
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_response_free(response);
    }
}

/* ---- what goes wrong ---- */

static void keep(void *user, hearth_mail *made, const hearth_response *response) {
    (void)made;
    *(hearth_response **)user = hearth_response_keep(response);
}

static void each_fault_at_each_stage_is_told(void) {
    const char *stages[] = {"mail", "rcpt", "data", "end"};
    struct {
        const char *what;
        int error, at_end, code, status;
    } cases[] = {
        {"silent", HEARTH_ERROR_IDLE_TIMEOUT, HEARTH_ERROR_UNKNOWN, 28, 0},
        {"half", HEARTH_ERROR_IDLE_TIMEOUT, HEARTH_ERROR_UNKNOWN, 28, 0},
        {"drop", HEARTH_ERROR_EMPTY, HEARTH_ERROR_UNKNOWN, 52, 0},
        {"garbage", HEARTH_ERROR_RUBBISH, HEARTH_ERROR_UNKNOWN, 8, 0},
        {"codes", HEARTH_ERROR_RUBBISH, HEARTH_ERROR_UNKNOWN, 8, 0},
        {"long", HEARTH_ERROR_RUBBISH, HEARTH_ERROR_UNKNOWN, 8, 0},
        {"421", HEARTH_ERROR_LATER, HEARTH_ERROR_LATER, 55, 421},
        {"450", HEARTH_ERROR_LATER, HEARTH_ERROR_LATER, 55, 450},
        {"550", HEARTH_ERROR_REFUSED, HEARTH_ERROR_REFUSED, 55, 550},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    hearth_mail *mails[4][CASES];
    hearth_response *responses[4][CASES] = {{NULL}};
    /* All at once, so that the time after which a server counts as silent may be long. */
    for (size_t stage = 0; stage < 4; stage++) {
        for (size_t i = 0; i < CASES; i++) {
            char from[64], name[64];
            snprintf(from, sizeof from, "at-%s-%s@x.test", stages[stage], cases[i].what);
            /* A name of its own is a connection of its own. */
            snprintf(name, sizeof name, ".%s-%s", stages[stage], cases[i].what);
            mails[stage][i] = mail(text("%s%s", at("smtp"), name), from);
            options(mails[stage][i], cases[i].code == 28 ? "idle_timeout=5000" : "timeout=60000");
            CHECK_EQ(hearth_mail_start(mails[stage][i], keep, &responses[stage][i]), HEARTH_OK);
        }
    }
    for (size_t stage = 0; stage < 4; stage++) {
        for (size_t i = 0; i < CASES; i++) {
            CHECK_EQ(hearth_mail_wait(mails[stage][i], (uint64_t)-1), HEARTH_OK);
            const hearth_response *response = responses[stage][i];
            int error = hearth_response_error(response);
            int wanted = stage == 3 ? cases[i].at_end : cases[i].error;
            /* Closed with something unread is a reset. */
            if (error != wanted && !(wanted == HEARTH_ERROR_EMPTY && error == HEARTH_ERROR_RESET)) {
                hearth_bytes why = hearth_response_error_message(response);
                fprintf(stderr, "%s at %s: %d, not %d: %.*s\n", cases[i].what, stages[stage], error,
                    wanted, (int)why.size, why.data);
                failed_here = 1;
            }
            CHECK_EQ(hearth_response_status(response), cases[i].status);
            hearth_response_free(responses[stage][i]);
            hearth_mail_free(mails[stage][i]);
        }
    }
}

static void a_server_that_is_none_is_told(void) {
    struct {
        const char *port, *options;
        int error, code, status;
    } cases[] = {
        {"silent", "connect_timeout=200", HEARTH_ERROR_CONNECT_TIMEOUT, 28, 0},
        {"silent", "timeout=200", HEARTH_ERROR_TIMEOUT, 28, 0},
        {"no", "", HEARTH_ERROR_REFUSED, 9, 0},
        {"drop", "", HEARTH_ERROR_EMPTY, 52, 0},
        {"http", "", HEARTH_ERROR_RUBBISH, 8, 0},
        {"old", "", 0, 0, 250},
        {"bare", "", 0, 0, 250},
        {"small", "", HEARTH_ERROR_TOO_LARGE, 63, 0},
        {"lies", "starttls=0", 0, 0, 250},
        {"smtp", "proxy=http://127.0.0.1:1, private_addresses=1", HEARTH_ERROR_PROXY, 7, 0},
        {"smtp", "private_addresses=0", HEARTH_ERROR_DENIED, 7, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_mail *made = mail(at(cases[i].port), "a@x.test");
        options(made, cases[i].options);
        int before = failed_here;
        expect(made, cases[i].error, cases[i].code, cases[i].status);
        if (failed_here > before) {
            fprintf(stderr, "    at %s\n", cases[i].port);
        }
    }
    hearth_response *response = perform(mail(at("early"), "a@x.test"));
    CHECK_EQ(hearth_response_error(response), HEARTH_ERROR_RUBBISH);
    hearth_response_free(response);
    hearth_mail *made = bare(at("bare"), "a@x.test");
    to(made, HEARTH_MAIL_TO, "jos\xc3\xa9@x.test");
    expect(made, HEARTH_ERROR_UNSUPPORTED, 1, 0);
    made = bare(at("smtp"), "a@x.test");
    to(made, HEARTH_MAIL_TO,
        "Jos\xc3\xa9 <jos\xc3\xa9@b\xc3\xbc"
        "cher.test>");
    response = perform(made);
    char *all = told(response);
    CHECK_HAS(all, " SMTPUTF8\nRCPT TO:<jos\xc3\xa9@xn--bcher-kva.test>\n");
    free(all);
    hearth_response_free(response);
}

static void tries_are_repeated_only_where_nothing_was_taken(void) {
    const char *froms[] = {
        "at-mail-once@x.test", "at-rcpt-once@x.test", "at-data-once@x.test", "at-end-once@x.test"};
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "t%d-%zu", (int)getpid(), i);
        hearth_mail *made = mail(text("%s%s", at("smtp"), name), froms[i]);
        options(made, "max_retries=1, retry_delay=1");
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_timings timings = {0};
        timings.size = sizeof timings;
        CHECK_EQ(hearth_response_timings(response, &timings), HEARTH_OK);
        CHECK_EQ(timings.retries, 1);
        hearth_response_free(response);
    }
    hearth_statistics before = {0}, after = {0};
    before.size = after.size = sizeof before;
    hearth_engine_statistics(engine, &before);
    const char *final[] = {
        "at-end-silent@x.test", "at-end-drop@x.test", "at-end-550@x.test", "at-mail-550@x.test"};
    for (size_t i = 0; i < 4; i++) {
        hearth_mail *made = mail(text("%s%s", at("smtp"), "f"), final[i]);
        options(made,
            i ? "max_retries=5, retry_delay=1" : "max_retries=5, retry_delay=1, idle_timeout=5000");
        hearth_response *response = perform(made);
        CHECK_EQ(
            hearth_response_error(response), i < 2 ? HEARTH_ERROR_UNKNOWN : HEARTH_ERROR_REFUSED);
        hearth_response_free(response);
    }
    hearth_engine_statistics(engine, &after);
    CHECK_EQ(after.retries, before.retries);
    struct {
        const char *port, *options;
        int code, retries;
    } cases[] = {
        {"bare", "starttls=2", 64, 0},
        {"refuses", "starttls=2", 64, 0},
        {"injects", "starttls=1", 8, 0},
        {"babbles", "starttls=1", 35, 2},
        {"silent", "connect_timeout=200", 28, 2},
        {"silent", "idle_timeout=200", 28, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_mail *made = mail(at(cases[i].port), "a@x.test");
        options(made, "max_retries=2, retry_delay=1");
        options(made, cases[i].options);
        hearth_response *response = perform(made);
        CHECK_EQ(hearth_response_error_code(response), cases[i].code);
        hearth_timings timings = {0};
        timings.size = sizeof timings;
        CHECK_EQ(hearth_response_timings(response, &timings), HEARTH_OK);
        CHECK_EQ(timings.retries, cases[i].retries);
        hearth_response_free(response);
    }
}

static void connections_are_kept_and_those_that_ended_cost_nothing(void) {
    int reused = 0;
    for (int i = 0; i < 5; i++) {
        hearth_response *response = perform(mail(text("%s%s", at("smtp"), "kept"), "a@x.test"));
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_timings timings = {0};
        timings.size = sizeof timings;
        hearth_response_timings(response, &timings);
        reused += timings.reused;
        char *all = told(response);
        if (i) {
            CHECK_HAS(all, "TLS -\nRSET\nMAIL FROM");
        }
        free(all);
        hearth_response_free(response);
    }
    CHECK_EQ(reused, 4);
    /* Others' credentials are another connection. */
    hearth_mail *made = mail(text("%s%s", at("smtp"), "kept"), "a@x.test");
    CHECK_EQ(hearth_mail_set_authentication(made, "mode=basic,user=joe,secret=secret", HEARTH_TEXT),
        HEARTH_OK);
    hearth_response *response = perform(made);
    hearth_timings timings = {0};
    timings.size = sizeof timings;
    hearth_response_timings(response, &timings);
    CHECK_EQ(timings.reused, 0);
    hearth_response_free(response);
    /* A server that does not know RSET gets each mail over a new connection. */
    for (int i = 0; i < 3; i++) {
        response = perform(mail(at("stubborn"), "a@x.test"));
        CHECK_EQ(hearth_response_error(response), 0);
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_response_timings(response, &timings);
        CHECK_EQ(timings.reused, 0);
        hearth_response_free(response);
    }
    /* A server that says 421 to each second mail of a connection, or has closed. */
    for (int i = 0; i < 4; i++) {
        response = perform(mail(at("fickle"), "a@x.test"));
        CHECK_EQ(hearth_response_error(response), 0);
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_response_free(response);
    }
}

/* ---- life ---- */

static atomic_int completions;

static void count(void *user, hearth_mail *made, const hearth_response *response) {
    (void)made;
    if (user) {
        atomic_store((atomic_int *)user, hearth_response_error(response));
    }
    atomic_fetch_add(&completions, 1);
}

static void an_abort_ends_every_stage_once(void) {
    const char *froms[] = {"at-mail-silent@x.test", "at-rcpt-silent@x.test",
        "at-data-silent@x.test", "at-body-silent@x.test", "at-end-silent@x.test"};
    for (size_t i = 0; i < 6; i++) {
        atomic_int error = -1;
        completions = 0;
        const char *url = i < 5 ? text("%s%s", at("smtp"), "abort") : at("silent");
        hearth_mail *made = mail(url, i < 5 ? froms[i] : "a@x.test");
        CHECK_EQ(hearth_mail_start(made, count, &error), HEARTH_OK);
        CHECK_EQ(hearth_mail_running(made), 1);
        CHECK_EQ(hearth_mail_set_subject(made, "x", HEARTH_TEXT), HEARTH_STATE);
        CHECK_EQ(hearth_mail_wait(made, 300), HEARTH_LATE);
        CHECK_EQ(hearth_mail_abort(made), HEARTH_OK);
        CHECK_EQ(hearth_mail_wait(made, (uint64_t)-1), HEARTH_OK);
        CHECK_EQ(completions, 1);
        /* Behind the final dot it may be the server's; on a loaded machine it is perhaps not yet there. */
        int maybe = i == 3 || i == 4;
        CHECK(error == HEARTH_ERROR_ABORTED || (maybe && error == HEARTH_ERROR_UNKNOWN));
        hearth_mail_free(made);
    }
}

static void many_at_once_share_few_connections_and_a_stop_ends_them(void) {
    hearth_engine *shared = engine;
    CHECK_EQ(hearth_engine_new(&engine), HEARTH_OK);
    completions = 0;
    for (int i = 0; i < 100; i++) {
        hearth_mail *made = mail(at("bare"), "a@x.test");
        CHECK_EQ(hearth_mail_start(made, count, NULL), HEARTH_OK);
        hearth_mail_free(made);
    }
    int forced = 1;
    CHECK_EQ(hearth_engine_stop(engine, 60000, &forced), HEARTH_OK);
    CHECK_EQ(forced, 0);
    CHECK_EQ(completions, 100);
    hearth_statistics statistics = {0};
    statistics.size = sizeof statistics;
    hearth_engine_statistics(engine, &statistics);
    CHECK_EQ(statistics.answered, 100);
    CHECK(statistics.mail_connects >= 1 && statistics.mail_connects <= 5);
    CHECK_EQ(statistics.mail_connects + statistics.mail_reused, 100);
    CHECK_EQ(statistics.mail_connections, 0);
    CHECK_EQ(hearth_engine_start(engine), HEARTH_OK);
    for (int i = 0; i < 50; i++) {
        hearth_mail *made = mail(at("silent"), "a@x.test");
        CHECK_EQ(hearth_mail_start(made, count, NULL), HEARTH_OK);
        hearth_mail_free(made);
    }
    CHECK_EQ(hearth_engine_stop(engine, 50, &forced), HEARTH_OK);
    CHECK_EQ(forced, 1);
    CHECK_EQ(completions, 150);
    hearth_engine_free(engine);
    engine = shared;
}

static void a_child_sends_over_connections_of_its_own(void) {
    hearth_response_free(perform(mail(text("%s%s", at("smtp"), "fork"), "a@x.test")));
    pid_t child = fork();
    if (child == 0) {
        hearth_response *response = perform(mail(text("%s%s", at("smtp"), "fork"), "a@x.test"));
        hearth_timings timings = {0};
        timings.size = sizeof timings;
        hearth_response_timings(response, &timings);
        _exit(hearth_response_status(response) == 250 && !timings.reused && !failed_here ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    hearth_response *response = perform(mail(text("%s%s", at("smtp"), "fork"), "a@x.test"));
    CHECK_EQ(hearth_response_status(response), 250);
    hearth_response_free(response);
}

/* ---- a real server ---- */

/* What Python's parser reads of the mail that exim has delivered: a file with the lines of this system. */
static char *delivered(const hearth_response *response) {
    hearth_bytes id = hearth_response_message_id(response);
    char command[4096];
    snprintf(command, sizeof command, "python3 '%s' delivered '%s' '%.*s'", argument("script"),
        argument("folder"), (int)id.size, id.data);
    char *all = calloc(1, 1 << 16);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL);
    if (pipe) {
        CHECK(fread(all, 1, (1 << 16) - 1, pipe) > 0);
        CHECK_EQ(pclose(pipe), 0);
    }
    return all;
}

static void a_real_server_delivers_what_was_sent(void) {
    if (!argument("mail_exim")) {
        fprintf(stderr, "left out: exim4 is not installed\n");
        return;
    }
    char path[512];
    snprintf(path, sizeof path, "%s/attached.bin", argument("folder"));
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (int i = 0; i < 300000; i++) {
        fputc(i * 7 % 256, file);
    }
    fclose(file);
    const char *logins[] = {"mode=none", "mode=basic,user=joe,secret=secret",
        "mode=digest,user=joe,secret=secret", "mode=basic,user=joe,secret=secret,mechanisms=LOGIN"};
    for (size_t i = 0; i < 4; i++) {
        hearth_mail *made = bare(at("exim"), "Ann Gr\xc3\xbc\xc3\x9f <ann@x.test>");
        CHECK_EQ(hearth_mail_set_authentication(made, logins[i], HEARTH_TEXT), HEARTH_OK);
        options(made, "starttls=2, rcpt_allow_fails=1");
        to(made, HEARTH_MAIL_TO, "\"Smith, Bob\" <bob@x.test>");
        to(made, HEARTH_MAIL_TO, "\xe4\xb8\x96\xe7\x95\x8c <world@x.test>");
        to(made, HEARTH_MAIL_BCC, "hidden@x.test");
        to(made, HEARTH_MAIL_CC, "unknown@x.test");
        to(made, HEARTH_MAIL_CC, "later@x.test");
        CHECK_EQ(hearth_mail_set_subject(made,
                     "Gr\xc3\xbc\xc3\x9f"
                     "e, and a subject that is long enough to be folded over several lines, "
                     "because it has many words in it: \xe2\x82\xac",
                     HEARTH_TEXT),
            HEARTH_OK);
        CHECK_EQ(hearth_mail_add_header(made, "X-Test", HEARTH_TEXT, "=plain words", HEARTH_TEXT),
            HEARTH_OK);
        part(made, HEARTH_MAIL_BODY, NULL, NULL, NULL,
            ".\n.. dots\nFrom here\n\xc3\xbc and = and trailing \nend");
        part(made, HEARTH_MAIL_BODY, "text/html", NULL, NULL, "<img src='cid:logo@x'>");
        part(made, HEARTH_MAIL_RELATED, "image/png", NULL, "logo@x", "png");
        part(made, HEARTH_MAIL_ATTACHMENT, "text/plain",
            "a \"quoted\" n\xc3\xa4me with many letters, so that it must be continued on a second "
            "line.txt",
            NULL, "one\ntwo\r\n");
        hearth_part given = {sizeof given, HEARTH_MAIL_ATTACHMENT, NULL, 0, NULL, 0, NULL, 0, NULL,
            0, path, HEARTH_TEXT};
        CHECK_EQ(hearth_mail_add_part(made, &given), HEARTH_OK);
        hearth_response *response = perform(made);
        if (hearth_response_error(response)) {
            hearth_bytes why = hearth_response_error_message(response);
            fprintf(stderr, "%s: %.*s\n", logins[i], (int)why.size, why.data);
        }
        CHECK_EQ(hearth_response_status(response), 250);
        hearth_recipient one = {sizeof one, {0}, 0, {0}, {0}};
        CHECK_EQ(hearth_response_recipient_at(response, 3, &one), HEARTH_OK);
        CHECK_EQ(one.code, 550);
        CHECK_TEXT(one.enhanced, "5.1.1");
        CHECK_EQ(hearth_response_recipient_at(response, 4, &one), HEARTH_OK);
        CHECK_EQ(one.code, 451);
        if (i == 0) {
            char *all = delivered(response);
            const char *wanted =
                "From: Ann Gr\xc3\xbc\xc3\x9f <ann@x.test>\n"
                "To: \"Smith, Bob\" <bob@x.test>, \xe4\xb8\x96\xe7\x95\x8c <world@x.test>\n"
                "Cc: unknown@x.test, later@x.test\n"
                "Subject: Gr\xc3\xbc\xc3\x9f"
                "e, and a subject that is long enough to be folded over several lines, because it "
                "has many words in it: \xe2\x82\xac\n"
                "X-Test: =plain words\n"
                "defects: 0\n"
                "multipart/mixed\n"
                "  multipart/alternative\n"
                "    text/plain\n"
                "    \".\\n.. dots\\nFrom here\\n\\u00fc and = and trailing \\nend\"\n"
                "    multipart/related\n"
                "      text/html\n"
                "      \"<img src='cid:logo@x'>\"\n"
                "      image/png inline <logo@x>\n"
                "      \"png\"\n"
                "  text/plain attachment a \"quoted\" n\xc3\xa4me with many letters, so that it "
                "must be continued on a second line.txt\n"
                "  \"one\\ntwo\\r\\n\"\n"
                "  application/octet-stream attachment attached.bin\n";
            CHECK_HAS(all, wanted);
            CHECK_HAS(all, "Return-path: <ann@x.test>\n");
            CHECK_HAS_NOT(all, "Bcc");
            char digest[4096];
            snprintf(digest, sizeof digest, "sha256sum '%s' | cut -c1-64", path);
            FILE *pipe = popen(digest, "r");
            char sum[65] = "";
            CHECK(pipe && fread(sum, 1, 64, pipe) == 64);
            pclose(pipe);
            CHECK_HAS(all, sum);
            if (failed_here) {
                fprintf(stderr, "%s\n", all);
            }
            free(all);
        }
        hearth_response_free(response);
    }
    hearth_mail *made = mail(at("exim"), "ann@x.test");
    CHECK_EQ(hearth_mail_set_authentication(made, "mode=basic,user=joe,secret=wrong", HEARTH_TEXT),
        HEARTH_OK);
    expect(made, HEARTH_ERROR_LOGIN, 67, 535);
    made = mail(at("exim"), "ann@x.test");
    to(made, HEARTH_MAIL_TO, "unknown@x.test");
    expect(made, HEARTH_ERROR_REFUSED, 55, 550);
    /* Two over one connection. */
    for (int i = 0; i < 2; i++) {
        hearth_response *response = perform(mail(text("%s%s", at("exim"), ".again"), "ann@x.test"));
        hearth_timings timings = {0};
        timings.size = sizeof timings;
        hearth_response_timings(response, &timings);
        CHECK_EQ(hearth_response_status(response), 250);
        CHECK_EQ(timings.reused, i);
        char *all = delivered(response);
        CHECK_HAS(all, "Subject: Hello\ndefects: 0\ntext/plain\n\"Hello\\n\"\n");
        free(all);
        hearth_response_free(response);
    }
}

int main(int number, char **values) {
    (void)number;
    if (!begin(values)) {
        return 1;
    }
    RUN(a_mail_goes_out_as_it_was_meant);
    RUN(a_raw_message_keeps_its_lines_and_hides_who_is_hidden);
    RUN(what_would_break_out_is_refused);
    RUN(each_recipient_has_its_own_answer);
    RUN(a_thousand_recipients_are_told_in_one_go);
    RUN(tls_is_begun_and_verified);
    RUN(secrets_are_shown_only_where_they_may);
    RUN(proxies_are_asked_for_a_tunnel);
    RUN(each_fault_at_each_stage_is_told);
    RUN(a_server_that_is_none_is_told);
    RUN(tries_are_repeated_only_where_nothing_was_taken);
    RUN(connections_are_kept_and_those_that_ended_cost_nothing);
    RUN(an_abort_ends_every_stage_once);
    RUN(many_at_once_share_few_connections_and_a_stop_ends_them);
    RUN(a_child_sends_over_connections_of_its_own);
    RUN(a_real_server_delivers_what_was_sent);
    return end();
}
