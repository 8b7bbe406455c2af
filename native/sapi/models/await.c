/* See await.h. */
#include "sapi/models/await.h"

#include <SAPI.h>
#include <ext/session/php_session.h>
#include <ext/standard/head.h>
#include <php.h>
#include <php_output.h>
#include <string.h>
#include <zend_fibers.h>
#include <zend_llist.h>

#include "sapi/boot/boot_state.h"
#include "sapi/models/await_after.h"
#include "sapi/output/boot_output.h"
#include "sapi/output/response.h"
#include "sapi/request/kept_variables.h"
#include "sapi/request/request.h"
#include "sapi/request/script_request.h"
#include "sapi/request/variables.h"
#include "sapi/sapi_module.h"

/* absent in a PHP without sessions */
#pragma weak ps_globals

/* session.auto_start has opened one for the boot, and will open one for each request. */
static bool session_is_automatic(void) {
    return &ps_globals != NULL && PS(auto_start);
}

/* Returns whether the header is the cookie of a session: php_session_remove_cookie(), ext/session/session.c. */
static int is_session_cookie(void *header, void *unused) {
    (void)unused;
    static const char field[] = "Set-Cookie: ";
    const char *line = ((sapi_header_struct *)header)->header;
    const char *name = zend_ini_string(ZEND_STRL("session.name"), 0);
    size_t len = strlen(name);
    return strncasecmp(line, field, sizeof field - 1) == 0 &&
           strncmp(line + sizeof field - 1, name, len) == 0 && line[sizeof field - 1 + len] == '=';
}

static bool has_session_cookie(void) {
    for (zend_llist_element *element = SG(sapi_headers).headers.head; element != NULL;
         element = element->next) {
        if (is_session_cookie(element->data, NULL)) {
            return true;
        }
    }
    return false;
}

/* Removes the cookies of the boot's session from what each request sends. */
static void remove_session_cookies(void) {
    while (has_session_cookie()) {
        /* one of them */
        zend_llist_del_element(&SG(sapi_headers).headers, NULL, is_session_cookie);
    }
}

void await_begin_boot(const struct worker_run *run) {
    variables_set_entry(run->options->script, run->options->document_root);
    boot_output_begin();
    if (run->options->await_after != NULL) {
        await_after_file(run->options->await_after);
    }
}

static const char *obstacle(void) {
    if (EG(active_fiber) != NULL) {
        return "in a fiber";
    }
    if (OG(running) != NULL) {
        return "in an output callback";
    }
    if ((EG(flags) & EG_FLAGS_IN_SHUTDOWN) != 0) {
        return "at the end of the script";
    }
    if (CG(in_compilation)) {
        return "while a file is compiled";
    }
    if (session_is_automatic() && SG(headers_sent)) {
        return "after output, with session.auto_start: no visitor would get a session's cookie";
    }
    if (&ps_globals != NULL && !PS(auto_start)) {
        if (PS(session_status) == php_session_active) {
            return "while a session is open: all visitors would get it";
        }
        /* a closed session keeps its id, and so does its cookie */
        if (PS(id) != NULL || has_session_cookie()) {
            return "after a session was opened: all visitors would get it";
        }
    }
    return NULL;
}

bool await_is_possible(const struct worker_run *run) {
    if (run->model->await == NULL) {
        zend_throw_error(NULL,
            "hearth_await_request() cannot wait in the model \"worker\", where the script does not "
            "begin again: use snapshot, fork or prespawn");
        return false;
    }
    const char *where = obstacle();
    if (where != NULL) {
        zend_throw_error(NULL, "hearth_await_request() cannot wait %s", where);
    }
    return where == NULL;
}

void await_settle_boot(void) {
    /* The engine has the script's own file open to its end. A descriptor that requests close could not be put back. */
    zend_llist_clean(&CG(open_files));
    if (session_is_automatic()) {
        boot_state_end_session();
        remove_session_cookies(); /* each visitor gets one of his own, or has it */
    }
    boot_state_forget_input();
    kept_variables_remember();
}

bool await_begin_request(void) {
    /* by the boot, or by a callback that the worker started with */
    bool headers_sent = SG(headers_sent);
    script_request_continue();
    bool whole = !request_is_cut() && !module_body_is_lost();
    if (whole) {
        boot_output_send(headers_sent);
        if (session_is_automatic()) {
            boot_state_begin_session();
        }
        boot_state_begin_compression();
        return true;
    }
    /* the script does not see such a request: nothing of it runs, and nothing of the boot is sent */
    php_output_discard_all();
    if (request_is_cut()) {
        SG(sapi_headers).http_response_code = 400; /* the server has answered the client */
    } else {
        module_refuse_lost_body();
    }
    php_output_end_all();
    if (!response_has_head()) {
        php_header();
    }
    return false;
}
