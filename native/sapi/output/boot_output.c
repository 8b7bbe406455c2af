/* See boot_output.h. */
#include "sapi/output/boot_output.h"

#include "ext/compat.h"

#include <SAPI.h>
#include <php.h>
#include <php_output.h>
#include <unistd.h>
#include <zend_smart_str.h>

#include "sapi/output/response.h"

static bool keeps;
static smart_str kept; /* request memory: it counts towards memory_limit */

void boot_output_begin(void) {
    keeps = true;
    kept = (smart_str){0};
}

bool boot_output_keep(const char *data, size_t len) {
    if (keeps) {
        smart_str_appendl(&kept, data, len);
    }
    return keeps;
}

void boot_output_send(bool headers_sent) {
    keeps = false;
    if (!headers_sent) {
        return;
    }
    response_head(&SG(sapi_headers));
    if (SG(request_info).headers_only) {
        php_output_set_status(PHP_OUTPUT_DISABLED);
    } else if (kept.s != NULL) {
        response_write(ZSTR_VAL(kept.s), ZSTR_LEN(kept.s));
    }
}

void boot_output_print(void) {
    keeps = false;
    size_t done = 0;
    while (kept.s != NULL && done < ZSTR_LEN(kept.s)) {
        ssize_t wrote = write(STDOUT_FILENO, ZSTR_VAL(kept.s) + done, ZSTR_LEN(kept.s) - done);
        if (wrote <= 0) {
            break;
        }
        done += (size_t)wrote;
    }
    smart_str_free(&kept);
}
