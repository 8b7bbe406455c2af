/* libhearth: HTTP calls and mail over connections that stay open. The C interface of Hearth's egress engine.
 *
 * Three words say who owns a pointer:
 *   own      the caller owns it until it calls the matching _free;
 *   borrow   it is borrowed until the call returns (arguments), or until the callback returns (arguments of a callback);
 *   give     the callee owns it from now on.
 * A const pointer means that the call does not change the data. _free(NULL) does nothing.
 *
 * Every function may be called from any thread and from every callback, unless its comment says otherwise. Only hearth_request_wait,
 * hearth_request_perform, hearth_mail_wait, hearth_mail_perform, hearth_engine_stop and hearth_engine_free block. The library never unwinds into its
 * caller: an internal fault becomes HEARTH_PANIC. A callback must not unwind either (no exception, no longjmp).
 *
 * After fork() the child's handles use a new engine, started at the child's first call. The parent's engine is not affected. Requests that were
 * running at the fork, or in use by another thread, belong to the parent. In the child they never complete, and calls that would start, change or
 * wait for one return HEARTH_STATE. A jar has the parent's cookies, or none if a thread was using it at that moment.
 *
 * Texts are passed as data and size; with HEARTH_TEXT as size they end with NUL. Results are hearth_bytes, without NUL at the end.
 *
 * This file is compared with the library's exports by a test (crates/capi/tests). */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0
#define HEARTH_VERSION "0.1.0"

/* As a size: the text ends with NUL. */
#define HEARTH_TEXT ((size_t)-1)
/* As the length of a body: unknown, so that it is sent in chunks. */
#define HEARTH_UNKNOWN ((uint64_t)-1)

/* Version of the linked library: "0.1.0". Static. */
const char *hearth_version(void);
/* Version of the linked library as a number: major * 1000000 + minor * 1000 + patch. */
uint32_t hearth_version_number(void);

/* Borrowed bytes. data is NULL if there is no value; an empty text is a value. */
typedef struct hearth_bytes {
    const char *data;
    size_t size;
} hearth_bytes;

/* Result of a call. Functions return a plain int, so that a later version may add values. */
typedef int hearth_status;
enum {
    HEARTH_OK = 0,
    HEARTH_INVALID = 1, /* an argument: NULL, an unknown key, a value out of range, an invalid text */
    HEARTH_STATE = 2,   /* not now: the request is running, the engine is stopped, or a callback would wait for itself */
    HEARTH_SYSTEM = 3,  /* the system refused: no thread, no descriptor, a file that cannot be read */
    HEARTH_LATE = 4,    /* the time to wait is over */
    HEARTH_UNSUPPORTED = 5, /* a known option that this library does not implement */
    HEARTH_PANIC = 6    /* an internal fault; the handle should be freed */
};

/* Why the last call on this thread did not return HEARTH_OK, as a sentence. Lent until the next call on this thread. */
const char *hearth_last_error(void);

/* Why a request has no answer. */
typedef int hearth_error;
enum {
    HEARTH_ERROR_NONE = 0,
    HEARTH_ERROR_ABORTED = 1,         /* hearth_request_abort, or a callback returned HEARTH_ABORT */
    HEARTH_ERROR_STOPPED = 2,         /* the engine was stopped before it ended */
    HEARTH_ERROR_TIMEOUT = 3,         /* the whole took too long */
    HEARTH_ERROR_CONNECT_TIMEOUT = 4, /* there was no connection in time */
    HEARTH_ERROR_IDLE_TIMEOUT = 5,    /* nothing came or went for too long */
    HEARTH_ERROR_URL = 6,             /* it is no URL that may be called */
    HEARTH_ERROR_PROTOCOL = 7,        /* its scheme is not among the safe ones */
    HEARTH_ERROR_RESOLVE = 8,
    HEARTH_ERROR_CONNECT = 9,
    HEARTH_ERROR_DENIED = 10, /* the address may not be called (deny, private_addresses) */
    HEARTH_ERROR_PROXY = 11,
    HEARTH_ERROR_TLS = 12,
    HEARTH_ERROR_CERTIFICATE = 13, /* the peer's is not to be trusted, or ours cannot be used */
    HEARTH_ERROR_RESET = 14,       /* the connection broke */
    HEARTH_ERROR_EMPTY = 15,       /* it was closed without an answer */
    HEARTH_ERROR_RUBBISH = 16,     /* the answer is not HTTP */
    HEARTH_ERROR_STREAM = 17,      /* the HTTP/2 stream was reset */
    HEARTH_ERROR_TOO_MANY_REDIRECTS = 18,
    HEARTH_ERROR_TOO_LARGE = 19, /* the body is longer than max_response_size */
    HEARTH_ERROR_DECODING = 20,  /* the body does not match Content-Encoding */
    HEARTH_ERROR_SOURCE = 21,    /* the request's own body could not be read, or is needed once more and gone */
    HEARTH_ERROR_SYSTEM = 22,    /* out of descriptors */
    HEARTH_ERROR_UNSUPPORTED = 23,
    HEARTH_ERROR_INTERNAL = 24, /* a fault of the library's own */
    /* of mail */
    HEARTH_ERROR_REFUSED = 25, /* the server refused permanently (5xx); hearth_response_reply has its message */
    HEARTH_ERROR_LATER = 26,   /* the server refused temporarily (4xx) */
    HEARTH_ERROR_LOGIN = 27,   /* credentials were refused, or the server offers no allowed mechanism */
    HEARTH_ERROR_UNKNOWN = 28  /* the whole message was sent and no reply came, for any reason (an abort, too): it may have been accepted */
};

/* Result of a callback. */
typedef int hearth_flow;
enum {
    HEARTH_CONTINUE = 0,
    HEARTH_PAUSE = 1, /* no more data until hearth_request_resume; the data of this call count as accepted */
    HEARTH_ABORT = 2, /* end the request with HEARTH_ERROR_ABORTED */
    HEARTH_END = 3    /* of a source: the body is complete */
};

typedef struct hearth_engine hearth_engine;
typedef struct hearth_request hearth_request;
typedef struct hearth_response hearth_response;
typedef struct hearth_jar hearth_jar;
typedef struct hearth_mail hearth_mail;

/* Options, each with its key in texts. Times are milliseconds, sizes bytes; 0 as a time: without limit. Those marked "engine" belong to an engine
 * and apply from its start. The others are defaults of an engine, or values of a request. */
typedef int hearth_option;
enum {
    /* numbers */
    HEARTH_ACCEPT_COMPRESSION = 1,       /* accept_compression (1): gzip, deflate, br and zstd are requested and decoded */
    HEARTH_CONNECT_TIMEOUT = 2,          /* connect_timeout (30000): look-up, connection, proxy and TLS; for mail also greeting and login */
    HEARTH_COOKIES = 3,                  /* cookies (0): 1 the request's own jar, 2 the engine's */
    HEARTH_FOLLOW_LOCATION = 4,          /* follow_location (0): 0 no; 1 as written: every method and body again, but 303 with GET; 2 as
                                          * browsers do: POST becomes GET at 301 and 302, too; 3 as 2, and the first answer's only */
    HEARTH_INSECURE = 5,                 /* insecure (0): no certificate is verified */
    HEARTH_MAX_REDIRECTS = 6,            /* maxredirs (5); -1: without limit */
    HEARTH_RCPT_ALLOW_FAILS = 7,         /* rcpt_allow_fails (0): 1 sends mail to the accepted recipients only; 0 to all or none */
    HEARTH_TIMEOUT = 8,                  /* timeout (30000): from start to the end, all tries together */
    HEARTH_VERBOSE = 9,                  /* verbose (0): each try and its end in a line on stderr */
    HEARTH_IDLE_TIMEOUT = 10,            /* idle_timeout (0): between two pieces, in either direction, once connected; for mail: for each reply, 0 as in RFC 5321 */
    HEARTH_MAX_RESPONSE_SIZE = 11,       /* max_response_size (2000000): of the collected body, decompressed; 0 without limit */
    HEARTH_MAX_RETRIES = 12,             /* max_retries (0) after no connection, one that broke before the answer's head, 429, 502,
                                          * 503 or 504; one that breaks in its body is final */
    HEARTH_RETRY_DELAY = 13,             /* retry_delay (100): before the first; doubled each time */
    HEARTH_RETRY_MAX_DELAY = 14,         /* retry_max_delay (30000); a longer Retry-After ends the trying */
    HEARTH_RETRY_JITTER = 15,            /* retry_jitter (1): between half and all of the delay, by chance */
    HEARTH_RETRY_AFTER = 16,             /* retry_after (1): the origin's Retry-After is followed */
    HEARTH_RETRY_ANY_METHOD = 17,        /* retry_any_method (0): not only idempotent ones, once something was sent */
    HEARTH_HTTP_VERSION = 18,            /* http_version (0): 0 negotiated, 11, 20 without asking */
    HEARTH_IP_FAMILY = 19,               /* ip_family (0): 4, 6 */
    HEARTH_TLS_MIN = 20,                 /* tls_min (12): 12, 13 */
    HEARTH_TLS_MAX = 21,                 /* tls_max (13) */
    HEARTH_PRIVATE_ADDRESSES = 22,       /* private_addresses (1): 0 refuses loopback, private and the like, after look-up. Link-local
                                          * ones are always refused */
    HEARTH_HISTORY = 23,                 /* history (0): earlier answers are kept */
    HEARTH_EXPECT_CONTINUE = 24,         /* expect_continue (0): a body waits for 100, or a second */
    HEARTH_UNRESTRICTED_AUTH = 25,       /* unrestricted_auth (0): credentials also to other origins */
    HEARTH_THREADED_CALLBACK = 26,       /* threaded_callback (1): 0 callbacks on the I/O thread, where they must not block */
    HEARTH_STARTTLS = 27,                /* starttls (1), mail: 0 no, 1 if the server offers it, 2 required */
    HEARTH_PLAIN_AUTH = 28,              /* plain_auth (0), mail: 1 passwords and tokens may be sent without TLS */
    HEARTH_MAX_RECEIVE_RATE = 29,        /* max_receive_rate (0): bytes of a body per second, as received; 0 without limit */
    HEARTH_MAX_SEND_RATE = 30,           /* max_send_rate (0): of a body, bytes per second */
    HEARTH_KEEP_ENCODING = 31,           /* keep_encoding (1): Content-Encoding and Content-Length of a body that was compressed stay among the
                                          * fields, as the origin sent them; 0 removes them. The body is decompressed all the same */
    HEARTH_CONNECTIONS_PER_HOST = 64,    /* connections_per_host (20), HTTP/1.1; engine */
    HEARTH_H2_CONNECTIONS_PER_HOST = 65, /* h2_connections_per_host (6); engine */
    HEARTH_CONNECTIONS = 66,             /* connections (1024) of all hosts; engine */
    HEARTH_IDLE_CONNECTION_TIME = 67,    /* idle_connection_time (60000); engine */
    HEARTH_DNS_TIME = 68,                /* dns_time (30000): how long addresses of a name are cached; engine */
    HEARTH_REQUESTS_PER_HOST = 69,       /* requests_per_host (256) under way at once; more wait. Over HTTP/1.1 without TLS there are
                                          * never more than connections; engine */
    HEARTH_MAIL_CONNECTIONS_PER_HOST = 70, /* mail_connections_per_host (5), with the same credentials; engine */
    /* texts */
    HEARTH_PROXY = 128,          /* proxy: http://, https://, socks4://, socks4a://, socks5://, socks5h://, with user:password@ */
    HEARTH_SAFE_PROTOCOLS = 129, /* safe_protocols, of http, https, smtp, smtps and file ("http,https", of a mail "smtp,smtps"), redirects
                                  * included */
    HEARTH_UNIX_SOCKET = 130,    /* unix_socket: path to connect to, whatever the URL's host */
    HEARTH_RESOLVE = 131,        /* resolve: "host:port:address", joined by ';' */
    HEARTH_INTERFACE = 132,      /* interface: local address */
    HEARTH_DENY = 133,           /* deny: networks that are never called, joined by ' ' (10.0.0.0/8); engine, beyond link-local ones */
    HEARTH_USER_AGENT = 134,     /* user_agent ("hearth/0.1.0") */
    HEARTH_RANGE = 135,          /* range: "0-499", "500-", "-500"; several joined by ',' */
    HEARTH_PINNED_KEY = 136,     /* pinned_key: "sha256//BASE64;sha256//…" */
    HEARTH_DSN_NOTIFY = 137,     /* dsn_notify, mail: never, or a list of success,failure,delay; if the server supports it (RFC 3461) */
    HEARTH_DSN_RETURN = 138,     /* dsn_return, mail: full or headers */
    HEARTH_ACCEPT_ENCODING = 139, /* accept_encoding: of gzip, deflate, br, zstd and identity those that are asked for, "br, gzip"; all of
                                   * them are undone. With accept_compression=0 none is */
    HEARTH_CIPHERS = 140,        /* ciphers: the cipher suites that may be spoken, joined by ':', as IANA or OpenSSL names them. Their order
                                  * is the library's own */
    /* authentication */
    HEARTH_AUTH_MODE = 160, /* mode: none, basic, digest, bearer */
    HEARTH_AUTH_USER = 161, /* user */
    HEARTH_AUTH_SECRET = 162, /* secret: password or token */
    HEARTH_AUTH_MECHANISMS = 163, /* mechanisms, mail: those that may be used, "PLAIN LOGIN"; empty: the strongest that fits mode. basic:
                                   * SCRAM-SHA-256, PLAIN, LOGIN, CRAM-MD5; digest: only those that do not show the password; bearer:
                                   * OAUTHBEARER, XOAUTH2 */
    /* certificates; PEM or DER */
    HEARTH_SSLCERT = 176,     /* sslcert: file of our certificate with its chain */
    HEARTH_SSLCERTTYPE = 177, /* sslcerttype: PEM, DER; P12 is HEARTH_UNSUPPORTED */
    HEARTH_SSLKEY = 178,      /* sslkey: file of its key; unset: sslcert's */
    HEARTH_SSLKEYTYPE = 179,  /* sslkeytype: PEM, DER */
    HEARTH_KEYPASSWD = 180,   /* keypasswd: password of an encrypted key (PKCS #8) */
    HEARTH_SSLENGINE = 181,   /* engine: HEARTH_UNSUPPORTED unless empty */
    HEARTH_CAINFO = 182,      /* cainfo: file of the trusted authorities */
    HEARTH_CAPATH = 183,      /* capath: folder of such files */
    HEARTH_CAPEM = 184,       /* capem: the authorities themselves */
    HEARTH_PROXY_SSLCERT = 185, /* proxy_…: the same for a proxy over TLS */
    HEARTH_PROXY_SSLCERTTYPE = 186,
    HEARTH_PROXY_SSLKEY = 187,
    HEARTH_PROXY_SSLKEYTYPE = 188,
    HEARTH_PROXY_KEYPASSWD = 189,
    HEARTH_PROXY_CAINFO = 190,
    HEARTH_PROXY_CAPATH = 191
};

/* ---- engine: connections, one I/O thread, and one callback thread once a request needs it ---- */

/* Creates an engine, which the caller owns. It opens no connection and starts no thread before its first request or hearth_engine_start. */
hearth_status hearth_engine_new(hearth_engine **engine);
/* Starts the engine if it does not run, also after a stop. */
hearth_status hearth_engine_start(hearth_engine *engine);
/* Accepts no new requests, waits up to timeout_ms for the running ones, aborts the rest (HEARTH_ERROR_STOPPED), and ends the threads. Each request
 * has its one completion. forced (may be NULL): 1 if requests were aborted. Returns as soon as no request is left. From a callback: HEARTH_STATE. */
hearth_status hearth_engine_stop(hearth_engine *engine, uint64_t timeout_ms, int *forced);
/* Stops (0 ms) and frees. Requests may outlive their engine, but cannot be started any more. From a callback: the engine ends later. */
void hearth_engine_free(hearth_engine *engine);

/* A function that the executor must call once with work, on any thread, now or later. */
typedef void (*hearth_run)(void *work);
/* Passes run(work) to the program's executor: a thread pool, or the event loop of a GUI. 0: it will be called. Otherwise it will not, because the
 * executor ends; the engine's own thread then makes all further callbacks. Called from any thread, but not twice at once for one engine. */
typedef int (*hearth_execute)(void *user, hearth_run run, void *work);
/* Called when user is not needed any more. */
typedef void (*hearth_let_go)(void *user);

/* Makes the callbacks of requests with threaded_callback=1 on this executor instead of the engine's thread; NULL: on that thread. They run one after
 * the other either way. HEARTH_STATE while the engine runs. release (may be NULL) is called once, when the engine is gone or gets another executor;
 * not if the result is not HEARTH_OK. A thread of the executor must not wait for this engine (hearth_request_wait, _perform, hearth_engine_stop,
 * _free) unless other threads run callbacks: the engine would wait for this thread. In a child of fork the executor is called in the child. Set
 * another one before, or NULL. */
hearth_status hearth_engine_set_executor(hearth_engine *engine, hearth_execute execute, hearth_let_go release, void *user);

/* Options as "key=value,key=value", spaces around them ignored. A value with a comma or spaces is quoted: "a \"b\", c", with \" and \\ inside.
 * Booleans are 0 or 1. One wrong key or value: HEARTH_INVALID, hearth_last_error names it, and nothing was changed. */
hearth_status hearth_engine_set_options(hearth_engine *engine, const char *text, size_t size);
/* Sets the keys mode, user and secret, in the same format. */
hearth_status hearth_engine_set_authentication(hearth_engine *engine, const char *text, size_t size);
/* Sets the keys of certificates, in the same format. */
hearth_status hearth_engine_set_certificates(hearth_engine *engine, const char *text, size_t size);
/* Sets one option with a number. */
hearth_status hearth_engine_set_number(hearth_engine *engine, hearth_option option, int64_t value);
/* Sets one option with a text. */
hearth_status hearth_engine_set_text(hearth_engine *engine, hearth_option option, const char *text, size_t size);
/* Returns another handle of the jar of cookies=2, which the caller owns. */
hearth_status hearth_engine_jar(hearth_engine *engine, hearth_jar **jar);

/* Statistics of one engine. The numbers only grow, except those marked "now". */
typedef struct hearth_statistics {
    size_t size;       /* sizeof(hearth_statistics): set by the caller */
    uint64_t started;  /* requests */
    uint64_t answered; /* with a final status */
    uint64_t failed;   /* without, aborted ones included */
    uint64_t aborted;
    uint64_t active;      /* now: started and not completed */
    uint64_t peak;        /* the most of them */
    uint64_t queued;      /* now: waiting for their turn at their host */
    uint64_t connections; /* now: open. These four: to origins of HTTP */
    uint64_t connects;
    uint64_t reused; /* tries over an existing connection */
    uint64_t handshakes;
    uint64_t handshakes_saved;
    uint64_t retries;
    uint64_t redirects;
    uint64_t bytes_sent;     /* of bodies */
    uint64_t bytes_received; /* of bodies, as received */
    uint64_t panics;         /* internal faults; 0 unless there is a bug to report */
    uint64_t mail_connections; /* now: open. These three: to mail servers */
    uint64_t mail_connects;
    uint64_t mail_reused; /* messages over an existing connection */
} hearth_statistics;

/* Fills the fields that both the library and the caller's header have. */
hearth_status hearth_engine_statistics(const hearth_engine *engine, hearth_statistics *statistics);

/* ---- request ---- */

/* The request has ended. Called exactly once for each hearth_request_start that returned HEARTH_OK, after all other callbacks of that start. The
 * request may be started again or freed here. request, response: borrow (hearth_response_keep). */
typedef void (*hearth_on_done)(void *user, hearth_request *request, const hearth_response *response);
/* The final answer's head has arrived. Not called for redirects that are followed. */
typedef hearth_flow (*hearth_on_head)(void *user, hearth_request *request, const hearth_response *response);
/* An interim answer (100, 103, …). */
typedef hearth_flow (*hearth_on_interim)(void *user, hearth_request *request, const hearth_response *response);
/* A piece of the final answer's body, decompressed. If it is set, the body is not collected and max_response_size does not apply. */
typedef hearth_flow (*hearth_on_body)(void *user, hearth_request *request, const char *data, size_t size);
/* Writes up to room bytes of the request's body to buffer, and their number to written. HEARTH_END: these were the last (written may be 0).
 * HEARTH_PAUSE, or HEARTH_CONTINUE with 0: no data now; it is called again after hearth_request_resume. */
typedef hearth_flow (*hearth_source)(void *user, hearth_request *request, char *buffer, size_t room, size_t *written);
/* Restarts the body from its beginning: for another try, a redirect, or Digest. Non-zero: that is not possible. */
typedef int (*hearth_rewind)(void *user, hearth_request *request);
/* Progress. A total is HEARTH_UNKNOWN if the other side has not sent it. Called at most every 50 ms, and at the end of each direction. */
typedef hearth_flow (*hearth_on_progress)(void *user, hearth_request *request, uint64_t sent, uint64_t to_send, uint64_t received,
    uint64_t to_receive);
/* Kinds of data on the wire, with libcurl's numbers (curl_infotype). */
typedef int hearth_debug;
enum {
    HEARTH_DEBUG_TEXT = 0,       /* a message of the library: the connection, TLS, certificates, failures */
    HEARTH_DEBUG_HEADER_IN = 1,  /* a received head, including interim answers and redirects */
    HEARTH_DEBUG_HEADER_OUT = 2, /* a sent head, at each try */
    HEARTH_DEBUG_DATA_IN = 3,    /* a piece of the final answer's body, without chunks, still compressed */
    HEARTH_DEBUG_DATA_OUT = 4    /* a piece of the request's body, without chunks */
};
/* Over HTTP/2 heads are shown in the form of HTTP/1.1. Requests to a proxy for a tunnel are not shown, nor are TLS records. */
typedef void (*hearth_on_debug)(void *user, hearth_request *request, hearth_debug what, const char *data, size_t size);
/* Called when the given memory is not needed any more. */
typedef void (*hearth_release)(void *user, const char *data, size_t size);

/* Creates a request with the engine's current defaults. The caller owns it. */
hearth_status hearth_request_new(hearth_engine *engine, hearth_request **request);
/* Frees the handle. A running request continues to its completion. */
void hearth_request_free(hearth_request *request);
/* Resets the request to the engine's current defaults: no method, URL, fields, body or callbacks. Its cookies stay. */
hearth_status hearth_request_reset(hearth_request *request);

/* All of these return HEARTH_STATE while the request is running. */

/* Method (any token; CONNECT is HEARTH_UNSUPPORTED) and absolute URL. The URL is checked strictly and at once: no control characters, no spaces, no
 * user information, a valid host (IDNA). */
hearth_status hearth_request_set_target(hearth_request *request, const char *method, size_t method_size, const char *url, size_t url_size);
/* Adds name=value to the URL's query, with any bytes, percent-encoded, with ? or & as needed. Call it after set_target. */
hearth_status hearth_request_add_query(hearth_request *request, const char *name, size_t name_size, const char *value, size_t value_size);
/* Adds a field; a name may be repeated. CR, LF, NUL or an invalid name: HEARTH_INVALID. Framing (Content-Length, Transfer-Encoding, Connection,
 * Upgrade, …) is set by the library: HEARTH_INVALID, too. */
hearth_status hearth_request_add_header(hearth_request *request, const char *name, size_t name_size, const char *value, size_t value_size);
/* Removes all fields of that name, including the default ones (User-Agent, Accept, Accept-Encoding). */
hearth_status hearth_request_remove_header(hearth_request *request, const char *name, size_t name_size);
/* Trailers, sent after a body of unknown length. */
hearth_status hearth_request_add_trailer(hearth_request *request, const char *name, size_t name_size, const char *value, size_t value_size);

hearth_status hearth_request_set_options(hearth_request *request, const char *text, size_t size);
hearth_status hearth_request_set_authentication(hearth_request *request, const char *text, size_t size);
hearth_status hearth_request_set_certificates(hearth_request *request, const char *text, size_t size);
hearth_status hearth_request_set_number(hearth_request *request, hearth_option option, int64_t value);
hearth_status hearth_request_set_text(hearth_request *request, hearth_option option, const char *text, size_t size);
/* Uses this jar instead of the one that the option cookies selects; NULL: the option's. The request keeps its own handle of it. */
hearth_status hearth_request_set_jar(hearth_request *request, hearth_jar *jar);

/* The body; each call replaces the previous body. Copied. */
hearth_status hearth_request_set_body(hearth_request *request, const char *data, size_t size);
/* The body, given: it is used without a copy and released once, on any thread. release may be NULL if the memory is static. */
hearth_status hearth_request_give_body(hearth_request *request, const char *data, size_t size, hearth_release release, void *user);
/* A file as the body, read while it is sent. It must exist now; its size is read at the start. */
hearth_status hearth_request_set_body_file(hearth_request *request, const char *path, size_t size);
/* A body from source. length may be HEARTH_UNKNOWN. rewind may be NULL if the body can be read only once. */
hearth_status hearth_request_set_body_source(hearth_request *request, uint64_t length, hearth_source source, hearth_rewind rewind, void *user);

/* NULL removes a callback. */
hearth_status hearth_request_on_head(hearth_request *request, hearth_on_head callback, void *user);
hearth_status hearth_request_on_interim(hearth_request *request, hearth_on_interim callback, void *user);
hearth_status hearth_request_on_body(hearth_request *request, hearth_on_body callback, void *user);
hearth_status hearth_request_on_progress(hearth_request *request, hearth_on_progress callback, void *user);
/* secrets=0: values of Authorization, Proxy-Authorization, Cookie, Set-Cookie and similar fields are shown as ***. URLs and bodies are shown
 * unchanged. */
hearth_status hearth_request_on_debug(hearth_request *request, hearth_on_debug callback, int secrets, void *user);

/* Starts the request; callback may be NULL. If the result is not HEARTH_OK, nothing was started and there is no completion. A URL or file that
 * proves invalid later is reported by the completion. */
hearth_status hearth_request_start(hearth_request *request, hearth_on_done callback, void *user);
/* Ends the request as soon as possible with HEARTH_ERROR_ABORTED; its completion is called as usual. Does nothing if the request is not running. */
hearth_status hearth_request_abort(hearth_request *request);
/* Continues both directions after HEARTH_PAUSE. If the request is not paused, its next pause has no effect. */
hearth_status hearth_request_resume(hearth_request *request);
/* Waits until the request is not running and its callback has returned. HEARTH_LATE after timeout_ms; (uint64_t)-1: no time-out. On the callbacks'
 * thread: HEARTH_STATE. */
hearth_status hearth_request_wait(hearth_request *request, uint64_t timeout_ms);
/* Starts the request, waits for it, and returns the answer, which the caller owns, even if it is an error. */
hearth_status hearth_request_perform(hearth_request *request, hearth_response **response);
/* 1: started and not completed. */
int hearth_request_running(const hearth_request *request);
/* The URL with its query. Borrowed until the request is changed, started or freed. */
hearth_bytes hearth_request_url(const hearth_request *request);

/* GET of a URL with the engine's defaults, in one call and without a handle: request is NULL in callback. */
hearth_status hearth_engine_get(hearth_engine *engine, const char *url, size_t size, hearth_on_done callback, void *user);

/* ---- response: borrowed in callbacks; the caller owns a kept one. Its bytes live as long as the response ---- */

/* Returns another handle, which the caller owns. Cheap. The body is complete only in hearth_on_done. */
hearth_response *hearth_response_keep(const hearth_response *response);
void hearth_response_free(hearth_response *response);

/* 100 to 599; 0: there is none. With an error after the head it is the head's. */
int hearth_response_status(const hearth_response *response);
hearth_error hearth_response_error(const hearth_response *response);
/* The number of the libcurl error that fits best (curl/curl.h); 0: none does, or no error. */
int hearth_response_error_code(const hearth_response *response);
/* The error as a sentence; empty: no error. */
hearth_bytes hearth_response_error_message(const hearth_response *response);
/* 10, 11, 20; 0: there is none. */
int hearth_response_version(const hearth_response *response);
hearth_bytes hearth_response_body(const hearth_response *response);
/* The URL that answered in the end. */
hearth_bytes hearth_response_url(const hearth_response *response);
/* The absolute target of a redirect that was not followed. */
hearth_bytes hearth_response_redirect_url(const hearth_response *response);
/* "127.0.0.1:443" */
hearth_bytes hearth_response_address(const hearth_response *response);

/* Fields of the final answer alone, in their order (values of one name stand together), doubles kept. Names in lower
 * case. */
size_t hearth_response_header_count(const hearth_response *response);
/* 1: there is one at this index. */
int hearth_response_header_at(const hearth_response *response, size_t index, hearth_bytes *name, hearth_bytes *value);
/* The first of that name, whatever its case. */
hearth_bytes hearth_response_header(const hearth_response *response, const char *name, size_t size);
size_t hearth_response_trailer_count(const hearth_response *response);
int hearth_response_trailer_at(const hearth_response *response, size_t index, hearth_bytes *name, hearth_bytes *value);
/* Earlier answers, oldest first, with the option history. Borrowed. */
size_t hearth_response_history_count(const hearth_response *response);
const hearth_response *hearth_response_history_at(const hearth_response *response, size_t index);

/* Times in microseconds, of the last try, except queued and total. 0: not needed, or it did not happen. */
typedef struct hearth_timings {
    size_t size;         /* sizeof(hearth_timings): set by the caller */
    uint64_t queued;     /* from start until its turn came */
    uint64_t resolved;   /* from its turn on: the name */
    uint64_t connected;  /* the connection */
    uint64_t secured;    /* TLS */
    uint64_t first_byte; /* the head of the answer */
    uint64_t total;      /* from start to the end */
    uint32_t redirects;
    uint32_t retries;
    int reused; /* 1: over an existing connection */
} hearth_timings;

hearth_status hearth_response_timings(const hearth_response *response, hearth_timings *timings);

/* TLS of the connection to the origin that answered; HTTP only. */
typedef struct hearth_tls {
    size_t size;         /* sizeof(hearth_tls): set by the caller */
    int version;         /* 12, 13; 0: there was none */
    hearth_bytes cipher; /* "TLS_AES_256_GCM_SHA384", as IANA names it */
    size_t certificates; /* certificates that the origin sent: its own, then those up to an authority */
} hearth_tls;

hearth_status hearth_response_tls(const hearth_response *response, hearth_tls *tls);

/* A certificate. Texts are empty where it cannot be read. */
typedef struct hearth_certificate {
    size_t size;          /* sizeof(hearth_certificate): set by the caller */
    hearth_bytes subject; /* "C=DE, CN=a.example.org" */
    hearth_bytes issuer;
    hearth_bytes serial; /* in hexadecimal digits */
    hearth_bytes names;  /* "DNS:a.example.org, IP:192.0.2.1" */
    int64_t not_before;  /* seconds since 1970 */
    int64_t not_after;
    hearth_bytes pem;
} hearth_certificate;

/* HEARTH_INVALID: there is none at this index. */
hearth_status hearth_response_certificate_at(const hearth_response *response, size_t index, hearth_certificate *certificate);

/* For mail, hearth_response_status is the code of the server's decisive reply (250), also with an error. This is the reply with its code: "550 5.1.1
 * no such user". NULL: there was none. */
hearth_bytes hearth_response_reply(const hearth_response *response);
/* "5.1.1", if the reply has an enhanced status code (RFC 3463); otherwise NULL. */
hearth_bytes hearth_response_enhanced(const hearth_response *response);
/* "<…@example.org>", of the message that was sent. */
hearth_bytes hearth_response_message_id(const hearth_response *response);
/* Recipients of the envelope (To, Cc and Bcc) in the order in which they were added. */
size_t hearth_response_recipient_count(const hearth_response *response);

/* The server's reply to one recipient. Accepted (2xx) means that the mail was sent only if there is no error. */
typedef struct hearth_recipient {
    size_t size;           /* sizeof(hearth_recipient): set by the caller */
    hearth_bytes address;  /* local@domain */
    int code;              /* 250; 4xx: temporary refusal; 5xx: permanent refusal; 0: no reply for this one */
    hearth_bytes enhanced; /* as hearth_response_enhanced */
    hearth_bytes text;     /* without code */
} hearth_recipient;

hearth_status hearth_response_recipient_at(const hearth_response *response, size_t index, hearth_recipient *recipient);

/* ---- mail: a message and its recipients, sent over SMTP (RFC 5321) ----
 *
 * A mail has the life of a request: built, started, completed once; HEARTH_STATE while it is running; its answer is a hearth_response. An invalid
 * address, subject or field is reported at once; none of them can break out of its line. A message is sent again (max_retries) only if it was
 * certainly not accepted. */

/* Kind of a recipient. */
enum {
    HEARTH_MAIL_TO = 1,
    HEARTH_MAIL_CC = 2,
    HEARTH_MAIL_BCC = 3,     /* in the envelope and nowhere in the message */
    HEARTH_MAIL_REPLY_TO = 4 /* not a recipient: the address for answers */
};
/* Place of a part. */
enum {
    HEARTH_MAIL_BODY = 1,       /* one form of the body; several are alternatives, the plainest first */
    HEARTH_MAIL_RELATED = 2,    /* a part that the HTML shows as cid:… */
    HEARTH_MAIL_INLINE = 3,     /* shown behind the body */
    HEARTH_MAIL_ATTACHMENT = 4  /* a file to be saved */
};

/* The mail has ended, like hearth_on_done. mail, response: borrow. */
typedef void (*hearth_on_mail)(void *user, hearth_mail *mail, const hearth_response *response);

/* Creates a mail with the engine's current defaults. The caller owns it. */
hearth_status hearth_mail_new(hearth_engine *engine, hearth_mail **mail);
void hearth_mail_free(hearth_mail *mail);
hearth_status hearth_mail_reset(hearth_mail *mail);

/* "smtp://host:port/name" (25) or "smtps://…" (465, TLS from the beginning). name is sent in EHLO. Without it, that is the machine's name if it has
 * a domain, otherwise its address. */
hearth_status hearth_mail_set_target(hearth_mail *mail, const char *url, size_t size);
/* The author: "Ann <ann@example.org>", "ann@example.org". UTF-8. */
hearth_status hearth_mail_set_from(hearth_mail *mail, const char *address, size_t size);
/* The address for reports of failed delivery, if it is not the author's; "<>": no reports. */
hearth_status hearth_mail_set_sender(hearth_mail *mail, const char *address, size_t size);
hearth_status hearth_mail_add_recipient(hearth_mail *mail, int kind, const char *address, size_t size);
hearth_status hearth_mail_set_subject(hearth_mail *mail, const char *subject, size_t size);
/* Adds a field. Date and Message-ID are added if they are missing. Fields that have their own calls are HEARTH_INVALID. */
hearth_status hearth_mail_add_header(hearth_mail *mail, const char *name, size_t name_size, const char *value, size_t value_size);

/* A part. Texts end with NUL if their size is HEARTH_TEXT; NULL with size 0: none. */
typedef struct hearth_part {
    size_t size; /* sizeof(hearth_part) */
    int place;
    const char *content_type; /* none: text/plain of bodies, else application/octet-stream. UTF-8 texts get their charset */
    size_t content_type_size;
    const char *name; /* of the file, UTF-8; none: the last component of path */
    size_t name_size;
    const char *id; /* Content-ID, without < > */
    size_t id_size;
    const char *data; /* copied; texts without a name get their lines ended as mail has them, everything else arrives byte for byte */
    size_t data_size;
    const char *path; /* instead of data: a file, read while it is sent. It must exist at the start, when its size is read */
    size_t path_size;
} hearth_part;

hearth_status hearth_mail_add_part(hearth_mail *mail, const hearth_part *part);
/* The whole message, fields included, instead of subject, fields and parts. Line ends become CR LF, Bcc is removed, and Date and Message-ID are
 * added if they are missing. The recipients are the added ones. Copied; checked at the start. */
hearth_status hearth_mail_set_raw(hearth_mail *mail, const char *data, size_t size);

hearth_status hearth_mail_set_options(hearth_mail *mail, const char *text, size_t size);
hearth_status hearth_mail_set_authentication(hearth_mail *mail, const char *text, size_t size);
hearth_status hearth_mail_set_certificates(hearth_mail *mail, const char *text, size_t size);
hearth_status hearth_mail_set_number(hearth_mail *mail, hearth_option option, int64_t value);
hearth_status hearth_mail_set_text(hearth_mail *mail, hearth_option option, const char *text, size_t size);

/* Like the functions of hearth_request. A message that cannot be written (no author, no recipient, a missing file) is HEARTH_INVALID. Each start
 * writes it again, with a new Date and Message-ID. */
hearth_status hearth_mail_start(hearth_mail *mail, hearth_on_mail callback, void *user);
hearth_status hearth_mail_abort(hearth_mail *mail);
hearth_status hearth_mail_wait(hearth_mail *mail, uint64_t timeout_ms);
hearth_status hearth_mail_perform(hearth_mail *mail, hearth_response **response);
int hearth_mail_running(const hearth_mail *mail);

/* ---- jar: cookies (RFC 6265), shared by all requests that use it ---- A jar has at most 10,000 cookies. Expired ones are removed first. Further
 * ones are ignored in answers, and refused by add and load with HEARTH_STATE. No cookie is accepted for a public suffix (co.uk) if the machine has
 * the list of them: Debian's package publicsuffix. */

hearth_status hearth_jar_new(hearth_jar **jar);
void hearth_jar_free(hearth_jar *jar);
/* Adds cookies as if this URL had answered with Set-Cookie: text. */
hearth_status hearth_jar_add(hearth_jar *jar, const char *url, size_t url_size, const char *text, size_t size);
/* The value of the field Cookie for this URL. The caller owns it until hearth_text_free. */
hearth_status hearth_jar_cookies(const hearth_jar *jar, const char *url, size_t url_size, char **text);
/* All cookies, or those that outlive the session, as JSON; load adds them. The caller owns text until hearth_text_free. */
hearth_status hearth_jar_save(const hearth_jar *jar, int session_too, char **text);
hearth_status hearth_jar_load(hearth_jar *jar, const char *text, size_t size);
hearth_status hearth_jar_clear(hearth_jar *jar);
void hearth_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
