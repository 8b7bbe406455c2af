/* See request_model.h. */
#include "sapi/models/request_model.h"

#include <SAPI.h>
#include <php.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ext/curl/egress.h"
#include "ext/host.h"
#include "sapi/compat.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "sapi/sapi_module.h"

static const struct hearth_host host = {
    .finish_request = module_finish_request,
    .each_variable = module_each_variable,
    .inform = module_inform,
    .log = module_log,
    .publish = module_publish,
    .purge = module_purge,
};

static void run_script(void) {
    const char *path = SG(request_info).path_translated;
    struct stat entry;
    if (path == NULL || stat(path, &entry) != 0 || !S_ISREG(entry.st_mode)) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER, "no such script: %s", path != NULL ? path : "(none)");
        /* like php-fpm's message: sapi/fpm/fpm/fpm_main.c, "Primary script unknown" */
        module_refuse(404, "File not found.\n");
        return;
    }
    if (access(path, R_OK) != 0) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER, "the script cannot be read: %s", path);
        module_refuse(403, "Access denied.\n");
        return;
    }
    module_execute(path);
}

static void serve(void) {
    response_begin();
    module_fill_request_info();
    if (php_request_startup() != SUCCESS) {
        SG(sapi_headers).http_response_code = 500;
    } else if (request_is_cut()) {
        /* php-fpm would not see this request behind a web server that collects bodies; the server
         * has answered the client */
        SG(sapi_headers).http_response_code = 400;
    } else if (module_body_is_lost()) {
        module_refuse_lost_body();
    } else {
        run_script();
    }
    module_complete_answer(0, true);
    /* the engine frees what it allocated, not what the request lent it */
    SG(request_info).path_translated = NULL;
    php_request_shutdown(NULL);
    module_clear_request_info();
    request_release();
}

int request_model_run(bool one_shot) {
    hearth_host = &host;
    if (!one_shot) {
        egress_connect(); /* not in a request: open descriptors would differ between requests */
    }
    channel_send_ready();
    while (request_receive()) {
        serve();
        if (one_shot) {
            break;
        }
        if (response_was_busy()) {
            channel_send_ready();
        }
    }
    return module_exit_status();
}
