/* See last_head.h. The variable lies where zend_set_local_var_str() (Zend/zend_execute_API.c) puts it. */
#include "ext/streams/last_head.h"

#include <string.h>

static const char name[] = "http_response_header";
enum { NAME_LEN = sizeof name - 1 };

/* The variable of the PHP code that runs, or NULL: it has none. `table`: it can be taken out of that. */
static zval *find(zend_array **table) {
    const zend_execute_data *frame = EG(current_execute_data);
    *table = NULL;
    while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->common.type))) {
        frame = frame->prev_execute_data;
    }
    if (frame == NULL) {
        return NULL;
    }
    if ((ZEND_CALL_INFO(frame) & ZEND_CALL_HAS_SYMBOL_TABLE) == 0) {
        const zend_op_array *code = &frame->func->op_array;
        for (int i = 0; i < code->last_var; i++) {
            if (zend_string_equals_cstr(code->vars[i], name, NAME_LEN)) {
                return ZEND_CALL_VAR_NUM(frame, i);
            }
        }
        return NULL;
    }
    zval *found = zend_hash_str_find(frame->symbol_table, name, NAME_LEN);
    if (found != NULL && Z_TYPE_P(found) == IS_INDIRECT) {
        return Z_INDIRECT_P(found);
    }
    *table = frame->symbol_table;
    return found;
}

void last_head_keep(zval *before) {
    zend_array *table;
    const zval *variable = find(&table);
    ZVAL_UNDEF(before);
    if (variable != NULL) {
        ZVAL_COPY(before, variable);
    }
}

void last_head_put_back(const zval *before) {
    zend_array *table;
    zval *variable = find(&table);
    if (variable != NULL && Z_ISUNDEF_P(before) && table != NULL) {
        zend_hash_str_del(table, name, NAME_LEN);
    } else if (variable != NULL) {
        zval set;
        ZVAL_COPY_VALUE(&set, variable);
        ZVAL_COPY(variable, before);
        zval_ptr_dtor(&set);
    }
    /* PHP 8.4 keeps it for its functions too */
    zend_function *clear = zend_hash_str_find_ptr(EG(function_table),
        "http_clear_last_response_headers", strlen("http_clear_last_response_headers"));
    if (clear != NULL) {
        zval nothing;
        zend_call_known_function(clear, NULL, NULL, &nothing, 0, NULL, NULL);
    }
}
