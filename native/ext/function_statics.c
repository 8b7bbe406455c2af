/* See function_statics.h. */
#include "function_statics.h"

static HashTable
    *remembered;          /* address of the function -> array of its variables. Request memory. */
static HashTable *others; /* those of others in the same folder: array of strings, counted */
static zend_string *own;

static bool starts_with(const zend_string *text, const zend_string *start) {
    return ZSTR_LEN(text) >= ZSTR_LEN(start) &&
           memcmp(ZSTR_VAL(text), ZSTR_VAL(start), ZSTR_LEN(start)) == 0;
}

static bool is_own(const zend_op_array *function) {
    if (function->filename == NULL || !starts_with(function->filename, own)) {
        return false;
    }
    zval *other;
    ZEND_HASH_FOREACH_VAL(others, other) {
        if (Z_TYPE_P(other) == IS_STRING && starts_with(function->filename, Z_STR_P(other))) {
            return false;
        }
    }
    ZEND_HASH_FOREACH_END();
    return true;
}

static void each_of(HashTable *functions, void (*visit)(zend_op_array *function)) {
    zend_function *function;
    ZEND_HASH_FOREACH_PTR(functions, function) {
        if (function->type == ZEND_USER_FUNCTION && function->op_array.static_variables != NULL &&
            is_own(&function->op_array)) {
            visit(&function->op_array);
        }
    }
    ZEND_HASH_FOREACH_END();
}

/* An inherited method is its parent's, so it may be visited twice. */
static void each(void (*visit)(zend_op_array *function)) {
    each_of(EG(function_table), visit);
    zend_class_entry *class;
    ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
        if (class->type == ZEND_USER_CLASS) {
            each_of(&class->function_table, visit);
        }
    }
    ZEND_HASH_FOREACH_END();
}

static zend_ulong address_of(const zend_op_array *function) {
    return (zend_ulong)(uintptr_t)function;
}

static void remember(zend_op_array *function) {
    HashTable *variables = ZEND_MAP_PTR_GET(function->static_variables_ptr);
    if (variables != NULL) {
        zval copy;
        ZVAL_ARR(&copy, zend_array_dup(variables));
        zend_hash_index_update(remembered, address_of(function), &copy);
    }
}

/* Creates the variables like ZEND_BIND_STATIC in Zend/zend_vm_def.h, and frees them like
 * destroy_op_array() in Zend/zend_opcode.c. */
static void put_back(zend_op_array *function) {
    HashTable *variables = ZEND_MAP_PTR_GET(function->static_variables_ptr);
    zval *then = zend_hash_index_find(remembered, address_of(function));
    if (variables == NULL && then == NULL) {
        return;
    }
    ZEND_MAP_PTR_SET(
        function->static_variables_ptr, then != NULL ? zend_array_dup(Z_ARR_P(then)) : NULL);
    if (variables != NULL) {
        zend_array_destroy(variables);
    }
}

void function_statics_remember(const zend_string *folder, HashTable *foreign) {
    function_statics_forget();
    ALLOC_HASHTABLE(remembered);
    zend_hash_init(remembered, 8, NULL, ZVAL_PTR_DTOR, 0);
    own = zend_string_init(ZSTR_VAL(folder), ZSTR_LEN(folder), 0);
    others = zend_array_dup(foreign);
    each(remember);
}

void function_statics_put_back(void) {
    if (remembered != NULL) {
        each(put_back);
    }
}

void function_statics_forget(void) {
    if (remembered == NULL) {
        return;
    }
    zend_array_destroy(remembered);
    zend_array_destroy(others);
    zend_string_release(own);
    remembered = others = NULL;
    own = NULL;
}
