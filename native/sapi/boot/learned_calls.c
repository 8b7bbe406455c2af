/* See learned_calls.h. A call is an array: class or null, function, the object as reference or null, arguments. An argument is null, a bool, a
 * number or a string; or an array: [number] refers to the object that this call has made, [[keys]] is an array with these keys. */
#include "sapi/boot/learned_calls.h"

#include "ext/compat.h"

#include <ext/date/php_date.h>
#include <ext/standard/php_var.h>
#include <stdbool.h>
#include <string.h>
#include <zend_exceptions.h>
#include <zend_interfaces.h>
#include <zend_smart_str.h>

enum {
    MOST_CALLS = 256,
    MOST_KEYS = 16,
    LONGEST = 4096, /* rules of a transliterator are the longest */
};

static zval calls;      /* the noted ones; undefined: nothing is watched */
static HashTable known; /* serialized call: its number */
static HashTable made;  /* handle of an object: the number of the call that has made it */
static void (*execute)(zend_execute_data *call, zval *result);
static zend_op_array *(*compile)(zend_file_handle *file, int type);

/* Plain functions, by name. Compiled code calls their handlers without zend_execute_internal. */
static HashTable handlers;

static bool is_intl_object(const zval *value) {
    if (Z_TYPE_P(value) != IS_OBJECT) {
        return false;
    }
    const zend_class_entry *class = Z_OBJCE_P(value);
    while (class->parent != NULL && class->type == ZEND_USER_CLASS) {
        class = class->parent;
    }
    return class->type == ZEND_INTERNAL_CLASS && is_of_intl(class->info.internal.module);
}

/* Whether an argument is what the call is about, and not how it is done. */
static bool is_text(const char *name) {
    static const char *const texts[] = {"string", "string1", "string2", "haystack", "needle",
        "text", "str", "domain", "value", "message", "header", "languageTag", "chars", "codeUnits",
        "character", "codepoint", "datetime", "source", "start", "end"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void reference(zval *to, zend_long number) {
    array_init_size(to, 1);
    add_next_index_long(to, number);
}

/* The object's call. False: it was made before the fork, or by the application's own class. */
static bool refer(zval *to, const zend_object *object) {
    const zval *number = zend_hash_index_find(&made, object->handle);
    if (number == NULL) {
        return false;
    }
    reference(to, Z_LVAL_P(number));
    return true;
}

static void keys_of(zval *to, zval *array) {
    zval keys;
    array_init(&keys);
    zend_ulong index;
    zend_string *key;
    ZEND_HASH_FOREACH_KEY(Z_ARRVAL_P(array), index, key) {
        if (zend_hash_num_elements(Z_ARRVAL(keys)) >= MOST_KEYS) {
            break;
        }
        if (key != NULL) {
            add_next_index_str(&keys, zend_string_copy(key));
        } else {
            add_next_index_long(&keys, (zend_long)index);
        }
    }
    ZEND_HASH_FOREACH_END();
    array_init_size(to, 1);
    add_next_index_zval(to, &keys);
}

static bool note_object(zval *to, zval *argument) {
    if (instanceof_function(Z_OBJCE_P(argument), php_date_get_timezone_ce())) {
        zend_call_method_with_0_params(Z_OBJ_P(argument), Z_OBJCE_P(argument), NULL, "getname", to);
        return EG(exception) == NULL;
    }
    if (instanceof_function(Z_OBJCE_P(argument), php_date_get_interface_ce())) {
        ZVAL_LONG(to, 0);
        return true;
    }
    return refer(to, Z_OBJ_P(argument));
}

static bool note_argument(zval *to, zval *argument, const char *name) {
    ZVAL_DEREF(argument);
    switch (Z_TYPE_P(argument)) {
    case IS_NULL:
        ZVAL_NULL(to);
        if (strcmp(name, "locale") == 0) {
            const char *locale = INI_STR("intl.default_locale"); /* a request may change it */
            if (locale != NULL && *locale != '\0') {
                ZVAL_STRING(to, locale);
            }
        }
        return true;
    case IS_LONG:
        ZVAL_LONG(to, is_text(name) ? 'a' : Z_LVAL_P(argument)); /* a code point */
        return true;
    case IS_FALSE:
    case IS_TRUE:
    case IS_DOUBLE:
        ZVAL_COPY(to, argument);
        return true;
    case IS_STRING:
        if (is_text(name)) {
            ZVAL_STRING(to, "a\xc3\xa4");
        } else {
            ZVAL_COPY(to, argument);
        }
        return Z_STRLEN_P(to) <= LONGEST && strcmp(name, "callback") != 0;
    case IS_ARRAY:
        keys_of(to, argument);
        return true;
    case IS_OBJECT:
        return note_object(to, argument);
    default:
        return false;
    }
}

static bool note_arguments(zval *to, zend_execute_data *call) {
    uint32_t count = ZEND_CALL_NUM_ARGS(call);
    const zend_internal_function *function = &call->func->internal_function;
    array_init(to);
    if (count > MOST_ARGUMENTS || count > function->num_args) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        zval noted;
        ZVAL_UNDEF(&noted);
        if (ARG_SHOULD_BE_SENT_BY_REF(call->func, i + 1) ||
            !note_argument(&noted, ZEND_CALL_ARG(call, i + 1), function->arg_info[i].name)) {
            zval_ptr_dtor(&noted);
            return false;
        }
        add_next_index_zval(to, &noted);
    }
    return true;
}

/* A setting of the whole process. */
static bool is_setting(const zend_function *function) {
    return zend_string_equals_literal_ci(function->common.function_name, "setDefault") ||
           zend_string_equals_literal_ci(function->common.function_name, "locale_set_default");
}

static zend_string *serialized(zval *value) {
    smart_str text = {0};
    php_serialize_data_t data = php_var_serialize_init();
    php_var_serialize(&text, value, &data);
    php_var_serialize_destroy(data);
    return smart_str_extract(&text);
}

/* Serializes what makes a call another one. What is done with one object is noted once for each function. */
static zend_string *identity(zval *call, zval *object) {
    if (Z_TYPE_P(object) != IS_ARRAY) {
        return serialized(call);
    }
    zval same;
    array_init_size(&same, 2);
    zval *function = zend_hash_index_find(Z_ARRVAL_P(call), 1);
    Z_ADDREF_P(object);
    add_next_index_zval(&same, object);
    add_next_index_str(&same, zend_string_copy(Z_STR_P(function)));
    zend_string *text = serialized(&same);
    zval_ptr_dtor(&same);
    return text;
}

/* The object that a call is about: its own, or the first argument of a plain function. */
static zval *object_of(const zval *call) {
    zval *object = zend_hash_index_find(Z_ARRVAL_P(call), 2);
    zval *first = zend_hash_index_find(Z_ARRVAL_P(zend_hash_index_find(Z_ARRVAL_P(call), 3)), 0);
    return Z_TYPE_P(object) == IS_NULL && first != NULL ? first : object;
}

/* Notes a call, or finds the one that is the same. Owns `call`. Returns its number, -1 if there are too many. */
static zend_long note(zval *call) {
    zend_long number = -1;
    zend_string *text = identity(call, object_of(call));
    zval *same = zend_hash_find(&known, text);
    if (same != NULL) {
        number = Z_LVAL_P(same);
        zval_ptr_dtor(call);
    } else if (zend_hash_num_elements(&known) < MOST_CALLS) {
        zval value;
        number = zend_hash_num_elements(&known);
        ZVAL_LONG(&value, number);
        zend_hash_add(&known, text, &value);
        add_next_index_zval(&calls, call);
    } else {
        zval_ptr_dtor(call);
    }
    zend_string_release(text);
    return number;
}

/* After the engine's function has returned. Owns `arguments`. */
static void note_call(zend_execute_data *call, zval *arguments, zval *result) {
    const zend_function *function = call->func;
    bool constructs = is_constructor(function);
    zval noted, object;
    ZVAL_NULL(&object);
    if (Z_TYPE(call->This) == IS_OBJECT && !constructs && !refer(&object, Z_OBJ(call->This))) {
        zval_ptr_dtor(arguments);
        return;
    }
    array_init_size(&noted, 4);
    if (function->common.scope != NULL) {
        add_next_index_str(&noted, zend_string_copy(function->common.scope->name));
    } else {
        add_next_index_null(&noted);
    }
    add_next_index_str(&noted, zend_string_copy(function->common.function_name));
    add_next_index_zval(&noted, &object);
    add_next_index_zval(&noted, arguments);
    zend_long number = note(&noted);
    const zval *new = constructs ? &call->This : result;
    if (number >= 0 && new != NULL && is_intl_object(new)) {
        zval value;
        ZVAL_LONG(&value, number);
        zend_hash_index_update(&made, Z_OBJ_HANDLE_P(new), &value);
    }
}

static void watched(zend_execute_data *call, zval *result, zif_handler handler) {
    zval arguments;
    bool whole = note_arguments(&arguments, call) && !is_setting(call->func);
    if (handler != NULL) {
        handler(call, result);
    } else {
        execute(call, result);
    }
    if (whole && EG(exception) == NULL) {
        note_call(call, &arguments, result);
    } else {
        zval_ptr_dtor(&arguments);
    }
}

static void watched_method(zend_execute_data *call, zval *result) {
    const zend_function *function = call->func;
    if (function->common.scope != NULL && is_of_intl(function->internal_function.module)) {
        watched(call, result, NULL);
    } else {
        execute(call, result);
    }
}

static ZEND_FUNCTION(watched_function) {
    zif_handler handler = zend_hash_find_ptr(&handlers, EX(func)->common.function_name);
    watched(execute_data, return_value, handler);
}

/* Code for opcache's shared memory is compiled as without a watch: the engine chooses opcodes by it (zend_get_call_op()). */
static zend_op_array *compile_unwatched(zend_file_handle *file, int type) {
    void (*watch)(zend_execute_data *, zval *) = zend_execute_internal;
    zend_execute_internal = NULL;
    zend_op_array *code = NULL;
    bool bailed_out = false;
    zend_try {
        code = compile(file, type);
    }
    zend_catch {
        bailed_out = true;
    }
    zend_end_try();
    zend_execute_internal = watch;
    if (bailed_out) {
        zend_bailout();
    }
    return code;
}

static ZEND_FUNCTION(watched_setlocale) {
    zif_handler handler = zend_hash_find_ptr(&handlers, EX(func)->common.function_name);
    handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
    zval noted, arguments;
    if (ZEND_NUM_ARGS() == 0 || Z_TYPE_P(return_value) != IS_STRING ||
        Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) != IS_LONG) {
        return;
    }
    array_init(&arguments);
    add_next_index_long(&arguments, Z_LVAL_P(ZEND_CALL_ARG(execute_data, 1)));
    add_next_index_str(&arguments, zend_string_copy(Z_STR_P(return_value)));
    array_init_size(&noted, 4);
    add_next_index_null(&noted);
    add_next_index_string(&noted, "setlocale");
    add_next_index_null(&noted);
    add_next_index_zval(&noted, &arguments);
    note(&noted);
}

void learned_calls_watch(void) {
    array_init(&calls);
    zend_hash_init(&known, 0, NULL, ZVAL_PTR_DTOR, 0);
    zend_hash_init(&made, 0, NULL, NULL, 0);
    zend_hash_init(&handlers, 0, NULL, NULL, 0);
    zend_function *function;
    ZEND_HASH_FOREACH_PTR(CG(function_table), function) {
        if (function->type != ZEND_INTERNAL_FUNCTION) {
            continue;
        }
        zend_internal_function *internal = &function->internal_function;
        bool is_setlocale = zend_string_equals_literal(internal->function_name, "setlocale");
        if (is_setlocale || is_of_intl(internal->module)) {
            zend_hash_update_ptr(&handlers, internal->function_name, (void *)internal->handler);
            internal->handler =
                is_setlocale ? ZEND_FN(watched_setlocale) : ZEND_FN(watched_function);
        }
    }
    ZEND_HASH_FOREACH_END();
    execute = zend_execute_internal != NULL ? zend_execute_internal : execute_internal;
    zend_execute_internal = watched_method;
    compile = zend_compile_file;
    zend_compile_file = compile_unwatched;
}

zend_string *learned_calls_report(void) {
    if (Z_TYPE(calls) != IS_ARRAY || zend_hash_num_elements(Z_ARRVAL(calls)) == 0) {
        return NULL;
    }
    return serialized(&calls);
}
