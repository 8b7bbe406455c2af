/* See await_after.h. In the place of the file, code is compiled that includes it and then calls hearth_await_request(). It has no variable of
 * its own, because it runs in the scope of the include. */
#include "sapi/models/await_after.h"

#include "ext/compat.h"

#include <limits.h>
#include <php.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zend_smart_str.h>

static zend_op_array *(*compile_as_before)(zend_file_handle *file, int type);
static char awaited[PATH_MAX];

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_awaited(const zend_file_handle *file) {
    if (awaited[0] == '\0' || file->filename == NULL ||
        strcmp(base_name(ZSTR_VAL(file->filename)), base_name(awaited)) != 0) {
        return false;
    }
    zend_string *path = zend_resolve_path(file->filename);
    bool same = path != NULL && strcmp(ZSTR_VAL(path), awaited) == 0;
    if (path != NULL) {
        zend_string_release(path);
    }
    return same;
}

static zend_op_array *compile(zend_file_handle *file, int type) {
    if (!is_awaited(file)) {
        return compile_as_before(file, type);
    }
    smart_str code = {0};
    smart_str_appends(&code, "return [require '");
    for (const char *at = awaited; *at != '\0'; at++) {
        if (*at == '\'' || *at == '\\') {
            smart_str_appendc(&code, '\\');
        }
        smart_str_appendc(&code, *at);
    }
    smart_str_appends(&code, "', \\hearth_await_request()][0];");
    smart_str_0(&code);
    zend_op_array *wrapper =
        zend_compile_string(code.s, awaited, ZEND_COMPILE_POSITION_AFTER_OPEN_TAG);
    smart_str_free(&code);
    awaited[0] = '\0';
    return wrapper;
}

void await_after_file(const char *file) {
    if (realpath(file, awaited) == NULL) {
        snprintf(awaited, sizeof awaited, "%s", file);
    }
    compile_as_before = zend_compile_file;
    zend_compile_file = compile;
}
