/* See cycle_collector.h. Each decrement of a counter that does not reach zero calls gc_possible_root(), which writes to the value and to the list of
 * roots: Zend/zend_gc.h. A value that is not collectable is skipped there. */
#include "sapi/models/cycle_collector.h"

#include <php.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zend_closures.h>

/* Arrays whose elements are still to be visited: nested ones may be deep. */
static struct {
    zend_array **list;
    size_t len, room;
} waiting;

/* Returns whether the value was not exempt before. */
static bool exempt(zend_refcounted *value) {
    if ((GC_FLAGS(value) & (GC_NOT_COLLECTABLE | GC_IMMUTABLE)) != 0) {
        return false;
    }
    GC_ADD_FLAGS(value, GC_NOT_COLLECTABLE);
    return true;
}

/* Without memory the elements stay collectable, as they were. */
static void wait_for(zend_array *array) {
    if (waiting.len == waiting.room) {
        size_t room = waiting.room == 0 ? 1024 : waiting.room * 2;
        zend_array **list = realloc(waiting.list, room * sizeof *list);
        if (list == NULL) {
            return;
        }
        waiting.list = list;
        waiting.room = room;
    }
    waiting.list[waiting.len++] = array;
}

static void exempt_array(zend_array *array) {
    if (array != NULL && exempt((zend_refcounted *)array)) {
        wait_for(array);
    }
}

static void exempt_value(zval *value) {
    if (Z_TYPE_P(value) == IS_INDIRECT) {
        value = Z_INDIRECT_P(value);
    }
    ZVAL_DEREF(value);
    if (Z_TYPE_P(value) == IS_ARRAY && Z_REFCOUNTED_P(value)) {
        exempt_array(Z_ARR_P(value));
    }
}

static void exempt_elements(HashTable *table) {
    zval *value;
    ZEND_HASH_FOREACH_VAL(table, value) {
        exempt_value(value);
    }
    ZEND_HASH_FOREACH_END();
}

static void exempt_variables(const zend_function *function) {
    if (function->type == ZEND_USER_FUNCTION && function->op_array.static_variables != NULL) {
        HashTable *variables = ZEND_MAP_PTR_GET(function->op_array.static_variables_ptr);
        if (variables != NULL) {
            exempt_elements(variables);
        }
    }
}

static void exempt_object(zend_object *object) {
    if (!exempt((zend_refcounted *)object)) {
        return;
    }
    if (object->ce == zend_ce_closure) {
        exempt_variables(zend_get_closure_method_def(object));
    }
    /* objects of extensions keep their values where only they know */
    if (object->handlers == zend_get_std_object_handlers()) {
        for (int i = 0; i < object->ce->default_properties_count; i++) {
            exempt_value(&object->properties_table[i]);
        }
        exempt_array(object->properties);
    }
}

static void exempt_objects(void) {
    for (uint32_t i = 1; i < EG(objects_store).top; i++) {
        zend_object *object = EG(objects_store).object_buckets[i];
        if (IS_OBJ_VALID(object)) {
            exempt_object(object);
        }
    }
}

static void exempt_class(zend_class_entry *class) {
    zend_function *function;
    ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
        exempt_variables(function);
    }
    ZEND_HASH_FOREACH_END();
    zval *members = class->default_static_members_count > 0 ? CE_STATIC_MEMBERS(class) : NULL;
    for (int i = 0; members != NULL && i < class->default_static_members_count; i++) {
        exempt_value(&members[i]);
    }
}

void cycle_collector_exempt_boot(void) {
    exempt_objects();
    zend_class_entry *class;
    ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
        if (class->type == ZEND_USER_CLASS) {
            exempt_class(class);
        }
    }
    ZEND_HASH_FOREACH_END();
    zend_function *function;
    ZEND_HASH_FOREACH_PTR(EG(function_table), function) {
        exempt_variables(function);
    }
    ZEND_HASH_FOREACH_END();
    exempt_elements(&EG(symbol_table));
    while (waiting.len > 0) {
        exempt_elements(waiting.list[--waiting.len]);
    }
    free(waiting.list);
    waiting.list = NULL;
    waiting.room = 0;
}
