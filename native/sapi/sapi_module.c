/* See sapi_module.h. */
#include "sapi/sapi_module.h"

#include <ext/session/php_session.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/head.h>
#include <php_output.h>
#include <php_variables.h>
#include <stdlib.h>
#include <unistd.h>
#include <zend_exceptions.h>
#include <zend_observer.h>

#include "ext/host.h"
#include "sapi/boot/ini.h"
#include "sapi/compat.h"
#include "sapi/output/boot_output.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "sapi/request/user_ini.h"
#include "sapi/request/variables.h"

/* absent in a PHP without sessions */
#pragma weak ps_globals
#pragma weak php_session_flush

/* Whether nothing puts the process's root directory back behind a request. */
static bool keeps_root;
static zend_result (*start_extension)(INIT_FUNC_ARGS);

/* Before OPcache compiles anything: code must not be bound to a function that is removed. */
static zend_result remove_functions(INIT_FUNC_ARGS) {
    if (keeps_root) {
        zend_hash_str_del(CG(function_table), "chroot", strlen("chroot"));
        /* As zend_disable_functions() does: without a gap between them, what a request adds is found behind them at its end. */
        zend_hash_rehash(CG(function_table));
    }
    return start_extension(INIT_FUNC_ARGS_PASSTHRU);
}

/* php-fpm has no chroot(): its processes go on in the new root. The libphp of Debian has one. */
static int startup(sapi_module_struct *module) {
    start_extension = hearth_module_entry.module_startup_func;
    hearth_module_entry.module_startup_func = remove_functions;
    return php_module_startup(module, &hearth_module_entry);
}

/* Output without a receiver. Like php_handle_aborted_connection(), main/main.c, it jumps out of the script. If the script's state
 * is kept, the handler ends as by exit() instead, so that the application need not boot again. */
static void handle_gone_client(void) {
    if (!hearth_host->runs_on) {
        php_handle_aborted_connection();
        return;
    }
    PG(connection_status) = PHP_CONNECTION_ABORTED;
    php_output_set_status(PHP_OUTPUT_DISABLED);
    if (!PG(ignore_user_abort) && EG(current_execute_data) != NULL && EG(exception) == NULL) {
        zend_throw_unwind_exit();
    }
}

static size_t ub_write(const char *data, size_t len) {
    if (!request_present()) {
        if (boot_output_keep(data, len)) {
            return len;
        }
        /* the worker script's own words, before and between requests */
        size_t done = 0;
        while (done < len) {
            ssize_t wrote = write(STDOUT_FILENO, data + done, len - done);
            if (wrote <= 0) {
                break;
            }
            done += (size_t)wrote;
        }
        return len;
    }
    if (!response_write(data, len) && !(response_ended() && hearth_host->runs_on)) {
        handle_gone_client();
    }
    return len;
}

static void flush(void *context) {
    (void)context;
    if (request_present() && !response_ended()) {
        sapi_send_headers();
        if (!response_flush()) {
            handle_gone_client();
        }
    }
}

/* The stream in which the engine keeps the body, and how much of the body it was given for that. */
static php_stream *keeper;
static zend_off_t given;
static bool lost; /* it has less */

/* Returns whether the engine still has all the data that it has read. If its temporary file cannot be written, it continues with
 * less, or with nothing: sapi_read_standard_form_data(), main/SAPI.c; php_stream_input_read(), ext/standard/php_fopen_wrapper.c;
 * php_stream_temp_write(), main/streams/memory.c. A multipart body is not kept as a whole, and has an error for each file. */
static bool has_kept_body(void) {
    php_stream_statbuf kept;
    if (keeper == NULL || keeper != SG(request_info).request_body) {
        return true;
    }
    return php_stream_stat(keeper, &kept) == 0 && kept.sb.st_size >= given;
}

/* Makes the answer 507 (RFC 4918, section 11.5), unless its head has been sent. */
static void lose_body(void) {
    lost = true;
    log_line(LOG_ERR, LOG_SOURCE_WORKER,
        "request body not kept: PHP cannot write to its temporary folder (upload_tmp_dir)");
    if (SG(sapi_headers).http_status_line != NULL) {
        efree(SG(sapi_headers).http_status_line);
        SG(sapi_headers).http_status_line = NULL;
    }
    SG(sapi_headers).http_response_code = 507;
}

static int send_headers(sapi_headers_struct *headers) {
    if (request_present() && !SG(request_info).no_headers) {
        /* a script that reads its body itself took the part that was kept for all of it */
        if (!lost && !has_kept_body()) {
            lose_body();
        }
        response_head(headers);
    }
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/* Bytes of a body that PHP keeps in memory; more are in a temporary file. PHP's own limit is 16 KiB (SAPI_POST_BLOCK_SIZE), and a
 * temporary file costs more than the rest of a small request. The server's buffers have the same limit (crates/front-http). */
#define BODY_IN_MEMORY (256 << 10)

static php_stream *body_stream(void) {
    return php_stream_temp_create_ex(TEMP_STREAM_DEFAULT, BODY_IN_MEMORY, PG(upload_tmp_dir));
}

/* Returns whether PHP's own stream would write the body of this request to a file, or may: its length is unknown. */
static bool exceeds_own_stream(void) {
    return request_head()->content_length > SAPI_POST_BLOCK_SIZE;
}

/* rfc1867_post_handler(), main/rfc1867.c, reads such a body and keeps only its parts. */
static bool is_multipart(const char *content_type) {
    static const char type[] = "multipart/form-data";
    return content_type != NULL && strncasecmp(content_type, type, sizeof type - 1) == 0;
}

static size_t read_post(char *buffer, size_t len) {
    if (!request_present()) {
        return 0;
    }
    if (PG(during_request_startup) && SG(read_post_bytes) == 0 &&
        SG(request_info).request_body != NULL && exceeds_own_stream()) {
        /* by sapi_read_standard_form_data(), main/SAPI.c: it has just created its own stream, and writes to this one */
        php_stream_close(SG(request_info).request_body);
        SG(request_info).request_body = body_stream();
    }
    if (request_head()->content_length == FRAME_LENGTH_UNKNOWN && SG(post_max_size) > 0) {
        /* The engine compares post_max_size with the announced length, and while it reads a body as a whole. A multipart body
         * without a length meets the limit here. */
        if (SG(read_post_bytes) > SG(post_max_size)) {
            return 0;
        }
    }
    size_t got = request_read_body(buffer, len);
    if (keeper != SG(request_info).request_body) {
        keeper = SG(request_info).request_body;
        given = 0;
    }
    given += (zend_off_t)got;
    if (request_is_cut() && !PG(during_request_startup) && !response_ended()) {
        /* by the script itself, and its answer is discarded. The model checks what PHP reads before the script. */
        handle_gone_client();
    }
    return got;
}

/* Called by sapi_activate() when it has read a body. A body with a declared length that is too large was not read. One without a
 * length was read up to post_max_size: half a form must not be taken for a whole one. */
static int activate(void) {
    variables_begin();
    if (request_present() && !lost && !has_kept_body()) {
        lose_body();
    }
    if (request_present() && request_head()->content_length == FRAME_LENGTH_UNKNOWN &&
        SG(post_max_size) > 0 && SG(read_post_bytes) > SG(post_max_size) &&
        SG(request_info).request_body != NULL) {
        php_stream_truncate_set_size(SG(request_info).request_body, 0);
        keeper = NULL;
    }
    if (request_present() && exceeds_own_stream() && SG(request_info).request_body == NULL &&
        SG(read_post_bytes) == 0 && !is_multipart(SG(request_info).content_type)) {
        /* for php://input, which would create its own: php_stream_url_wrap_php(), ext/standard/php_fopen_wrapper.c */
        SG(request_info).request_body = body_stream();
    }
    if (!request_present() && variables_entry_root() != NULL) {
        user_ini_activate(SG(request_info).path_translated, variables_entry_root(), "localhost");
    }
    if (request_present() && !hearth_host->runs_on) {
        user_ini_activate(REQUEST_VARIABLE("SCRIPT_FILENAME"), REQUEST_VARIABLE("DOCUMENT_ROOT"),
            REQUEST_VARIABLE("SERVER_NAME"));
    }
    return SUCCESS;
}

static char *read_cookies(void) {
    return REQUEST_VARIABLE("HTTP_COOKIE");
}

static void log_message(const char *message, int level) {
    log_text(level & 7, LOG_SOURCE_PHP, message, strlen(message), "", 0);
}

static sapi_module_struct module = {
    .name = "fpm-fcgi",
    .pretty_name = "Hearth",
    .startup = startup,
    .shutdown = php_module_shutdown_wrapper,
    .activate = activate,
    .ub_write = ub_write,
    .flush = flush,
    .getenv = variables_getenv,
    .sapi_error = php_error,
    .send_headers = send_headers,
    .read_post = read_post,
    .read_cookies = read_cookies,
    .register_server_variables = variables_register,
    .log_message = log_message,
};

void module_start(const struct options *options) {
    keeps_root = options->model == MODEL_REQUEST || options->model == MODEL_WORKER;
    zend_signal_startup();
    sapi_startup(&module);
    ini_prepare(&sapi_module, options);
    if (sapi_module.startup(&sapi_module) == FAILURE) {
        fputs("error: PHP did not start\n", stderr);
        exit(1);
    }
    ini_restore_environment();
    /* the minor version decides the layout of the engine's structures */
    if (strncmp(module_php_version(), PHP_VERSION, strcspn(PHP_VERSION, ".") + 2) != 0) {
        fprintf(stderr, "error: built for PHP %s, but the loader found PHP %s\n", PHP_VERSION,
            module_php_version());
        exit(1);
    }
    variables_startup();
}

const char *module_php_version(void) {
    return Z_STRVAL_P(zend_get_constant_str("PHP_VERSION", sizeof "PHP_VERSION" - 1));
}

void module_fill_request_info(void) {
    const struct frame_request *head = request_head();
    char *content_type = REQUEST_VARIABLE("CONTENT_TYPE");
    keeper = NULL;
    given = 0;
    lost = false;
    SG(server_context) = (void *)head;
    SG(sapi_headers).http_response_code = 200;
    SG(request_info).request_method = REQUEST_VARIABLE("REQUEST_METHOD");
    SG(request_info).query_string = REQUEST_VARIABLE("QUERY_STRING");
    /* php-fpm: the script's URL, not REQUEST_URI */
    SG(request_info).request_uri = REQUEST_VARIABLE("SCRIPT_NAME");
    SG(request_info).path_translated = REQUEST_VARIABLE("SCRIPT_FILENAME");
    SG(request_info).content_type = content_type != NULL ? content_type : "";
    SG(request_info).content_length =
        head->content_length > ZEND_LONG_MAX ? 0 : (zend_long)head->content_length;
    SG(request_info).proto_num = head->protocol * 100;
    php_handle_auth_data(REQUEST_VARIABLE("HTTP_AUTHORIZATION"));
}

bool module_body_is_lost(void) {
    return lost;
}

void module_execute(const char *path) {
    zend_try {
        zend_file_handle file;
        zend_stream_init_filename(&file, path);
        file.primary_script = 1;
        php_execute_script(&file);
        zend_destroy_file_handle(&file);
    }
    zend_end_try();
}

void module_refuse(int status, const char *text) {
    zend_try {
        SG(sapi_headers).http_response_code = status;
        PHPWRITE(text, strlen(text));
    }
    zend_end_try();
}

void module_refuse_lost_body(void) {
    module_refuse(507, "The server has no room for the request body.\n");
}

void module_clear_request_info(void) {
    SG(server_context) = NULL;
    SG(request_info).request_method = NULL;
    SG(request_info).query_string = NULL;
    SG(request_info).request_uri = NULL;
    SG(request_info).path_translated = NULL;
    SG(request_info).content_type = NULL;
    SG(request_info).content_length = 0;
    SG(request_info).cookie_data = NULL;
    SG(request_info).auth_user = NULL;
    SG(request_info).auth_password = NULL;
    SG(request_info).auth_digest = NULL;
    SG(request_info).content_type_dup = NULL;
}

static void try_head(void) {
    if (!response_has_head()) {
        zend_try {
            php_header();
        }
        zend_end_try();
    }
}

void module_end_script(bool destroy) {
    /* php_request_shutdown(), main/main.c, steps 0 to 3; the engine's own call finds them done */
    EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
    compat_end_oom();
    EG(current_execute_data) = NULL;
    if (ZEND_OBSERVER_ENABLED) {
        zend_observer_fcall_end_all();
    }
    if (PG(modules_activated)) {
        php_call_shutdown_functions();
        php_free_shutdown_functions();
    }
    if (destroy) {
        zend_call_destructors();
    }
    zend_try {
        php_output_end_all();
    }
    zend_end_try();
    /* the session module's RSHUTDOWN; here, because the client may come back at once */
    zend_try {
        if (&ps_globals != NULL && PS(session_status) == php_session_active) {
            php_session_flush(1);
        }
    }
    zend_end_try();
}

void module_complete_answer(uint8_t flags, bool destroy) {
    if (response_ended()) {
        return;
    }
    module_end_script(destroy);
    try_head();
    /* a callback of header_register_callback() may have ended the first attempt; it is not called again */
    try_head();
    response_end(flags);
}

int module_exit_status(void) {
    return channel_is_left() ? EG(exit_status) : 0;
}

bool module_finish_request(void) {
    if (!request_present() || response_ended()) {
        return false;
    }
    php_output_end_all();
    php_header();
    response_end(FRAME_FLAG_BUSY);
    return true;
}

bool module_inform(zend_long status) {
    return !SG(headers_sent) && response_inform((unsigned)status, &SG(sapi_headers));
}

void module_each_variable(
    void (*each)(void *arg, const char *name, size_t name_len, const char *value, size_t value_len),
    void *arg) {
    if (!request_present()) {
        return;
    }
    const struct frame_request *head = request_head();
    for (uint16_t i = 0; i < head->count; i++) {
        const struct frame_pair *pair = &head->pairs[i];
        each(arg, pair->name, pair->name_len, pair->value, pair->value_len);
    }
}

bool module_publish(const struct hearth_event *event) {
    struct frame_buffer frame = {0};
    struct frame_text name = {ZSTR_VAL(event->name), ZSTR_LEN(event->name)};
    struct frame_text data = {ZSTR_VAL(event->data), ZSTR_LEN(event->data)};
    struct frame_text except = {"", 0};
    struct frame_text channels[FRAME_MAX_PAIRS];
    if (event->count > FRAME_MAX_PAIRS) {
        return false;
    }
    if (event->except != NULL) {
        except = (struct frame_text){ZSTR_VAL(event->except), ZSTR_LEN(event->except)};
    }
    for (size_t i = 0; i < event->count; i++) {
        channels[i] =
            (struct frame_text){ZSTR_VAL(event->channels[i]), ZSTR_LEN(event->channels[i])};
    }
    bool sent = frame_write_publish(&frame, name, except, data, channels, event->count) &&
                channel_send_buffer(&frame);
    frame_buffer_free(&frame);
    return sent;
}

bool module_purge(zval *tags, size_t count) {
    struct frame_buffer frame = {0};
    struct frame_text texts[FRAME_MAX_PAIRS];
    bool sent = true;
    for (size_t i = 0; sent && i < count;) {
        size_t fitting = 0, payload_len = 4;
        for (; i < count && fitting < FRAME_MAX_PAIRS; i++) {
            struct frame_text tag = {Z_STRVAL(tags[i]), Z_STRLEN(tags[i])};
            if (tag.len > FRAME_MAX_PAYLOAD - 8) {
                continue; /* no answer can have such a tag */
            }
            if (payload_len + 4 + tag.len > FRAME_MAX_PAYLOAD) {
                break;
            }
            payload_len += 4 + tag.len;
            texts[fitting++] = tag;
        }
        if (fitting > 0) {
            sent = frame_write_purge(&frame, texts, fitting) && channel_send_buffer(&frame);
        }
    }
    frame_buffer_free(&frame);
    return sent;
}

void module_log(int level, zend_string *message, zend_string *context) {
    log_text(level, LOG_SOURCE_APPLICATION, ZSTR_VAL(message), ZSTR_LEN(message), ZSTR_VAL(context),
        ZSTR_LEN(context));
}
