/* See learned_calls.h. Runs in the zygote. */
#include "sapi/boot/learned_calls.h"

#include "ext/compat.h"

#include <ext/standard/php_var.h>
#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <zend_exceptions.h>

/* The locale stays loaded as long as something refers to it. It is not switched to. */
static void keep_locale(const zval *category, const zval *name) {
    static const struct {
        int category, mask;
    } masks[] = {{LC_ALL, LC_ALL_MASK}, {LC_COLLATE, LC_COLLATE_MASK}, {LC_CTYPE, LC_CTYPE_MASK},
        {LC_MONETARY, LC_MONETARY_MASK}, {LC_NUMERIC, LC_NUMERIC_MASK}, {LC_TIME, LC_TIME_MASK},
        {LC_MESSAGES, LC_MESSAGES_MASK}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        if (masks[i].category == Z_LVAL_P(category)) {
            (void)newlocale(masks[i].mask, Z_STRVAL_P(name), (locale_t)0);
        }
    }
}

/* Makes an argument from what was noted. False: its object could not be made. */
static bool make_argument(zval *to, const zval *noted, zval *objects) {
    if (Z_TYPE_P(noted) != IS_ARRAY) {
        ZVAL_COPY(to, noted);
        return true;
    }
    const zval *what = zend_hash_index_find(Z_ARRVAL_P(noted), 0);
    if (what != NULL && Z_TYPE_P(what) == IS_LONG) {
        ZVAL_COPY(to, &objects[Z_LVAL_P(what)]);
        return Z_TYPE_P(to) == IS_OBJECT;
    }
    array_init(to);
    zval *key;
    ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(what), key) {
        zval value;
        ZVAL_LONG(&value, 3);
        array_set_zval_key(Z_ARRVAL_P(to), key, &value);
    }
    ZEND_HASH_FOREACH_END();
    return true;
}

static zend_function *function_of(
    const zval *class_name, zend_string *name, zend_class_entry **class) {
    *class = NULL;
    const HashTable *functions = CG(function_table);
    if (Z_TYPE_P(class_name) == IS_STRING) {
        zend_string *key = zend_string_tolower(Z_STR_P(class_name));
        *class = zend_hash_find_ptr(CG(class_table), key);
        zend_string_release(key);
        if (*class == NULL) {
            return NULL;
        }
        functions = &(*class)->function_table;
    }
    zend_string *key = zend_string_tolower(name);
    zend_function *function = zend_hash_find_ptr(functions, key);
    zend_string_release(key);
    return function != NULL && function->type == ZEND_INTERNAL_FUNCTION &&
                   is_of_intl(function->internal_function.module)
               ? function
               : NULL;
}

/* Makes one call. Its object, or its result, is `made_object`. */
static void repeat(HashTable *call, zval *objects, zval *made_object) {
    const zval *class_name = zend_hash_index_find(call, 0);
    const zval *name = zend_hash_index_find(call, 1);
    const zval *noted_object = zend_hash_index_find(call, 2);
    HashTable *noted = Z_ARRVAL_P(zend_hash_index_find(call, 3));
    if (zend_string_equals_literal(Z_STR_P(name), "setlocale")) {
        keep_locale(zend_hash_index_find(noted, 0), zend_hash_index_find(noted, 1));
        return;
    }
    zend_class_entry *class;
    zend_function *function = function_of(class_name, Z_STR_P(name), &class);
    zval object, result, arguments[MOST_ARGUMENTS];
    uint32_t count = 0;
    ZVAL_UNDEF(&object);
    ZVAL_UNDEF(&result);
    bool possible = function != NULL && make_argument(&object, noted_object, objects);
    zval *value;
    ZEND_HASH_FOREACH_VAL(noted, value) {
        if (count < MOST_ARGUMENTS) {
            possible = make_argument(&arguments[count++], value, objects) && possible;
        }
    }
    ZEND_HASH_FOREACH_END();
    if (possible && is_constructor(function)) {
        possible = object_init_ex(&object, class) == SUCCESS;
    }
    if (possible) {
        zend_call_known_function(function, Z_TYPE(object) == IS_OBJECT ? Z_OBJ(object) : NULL,
            class, &result, count, arguments, NULL);
    }
    if (EG(exception) != NULL) {
        zend_clear_exception();
    }
    if (possible && is_constructor(function)) {
        ZVAL_COPY(made_object, &object);
    } else if (Z_TYPE(result) == IS_OBJECT) {
        ZVAL_COPY(made_object, &result);
    }
    while (count > 0) {
        zval_ptr_dtor(&arguments[--count]);
    }
    zval_ptr_dtor(&object);
    zval_ptr_dtor(&result);
}

/* The extension keeps the error of its last call, which is none of the boot's: any call that succeeds resets it. */
static void reset_error(void) {
    zval none, normal, text;
    ZVAL_NULL(&none);
    ZVAL_UNDEF(&normal);
    ZVAL_STRING(&text, "a");
    zend_string *name = zend_string_init(ZEND_STRL("normalizer_is_normalized"), 0);
    zend_class_entry *class;
    zend_function *function = function_of(&none, name, &class);
    if (function != NULL) {
        zend_call_known_function(function, NULL, NULL, &normal, 1, &text, NULL);
    }
    zend_string_release(name);
    zval_ptr_dtor(&text);
    zval_ptr_dtor(&normal);
}

static void repeat_all(HashTable *list) {
    zval *objects = ecalloc(zend_hash_num_elements(list), sizeof *objects);
    uint32_t number = 0;
    zval *call;
    ZEND_HASH_FOREACH_VAL(list, call) {
        repeat(Z_ARRVAL_P(call), objects, &objects[number++]);
    }
    ZEND_HASH_FOREACH_END();
    /* The last first, so that the objects of requests get the numbers that they would have had. */
    while (number > 0) {
        zval_ptr_dtor(&objects[--number]);
    }
    efree(objects);
    reset_error();
}

void learned_calls_repeat(const char *report, size_t len) {
    const unsigned char *at = (const unsigned char *)report;
    php_unserialize_data_t data = php_var_unserialize_init();
    zval list;
    ZVAL_UNDEF(&list);
    bool whole = php_var_unserialize(&list, &at, at + len, &data) && Z_TYPE(list) == IS_ARRAY;
    php_var_unserialize_destroy(data);
    if (whole) {
        repeat_all(Z_ARRVAL(list));
    }
    zval_ptr_dtor(&list);
}
