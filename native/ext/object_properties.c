/* See object_properties.h. */
#include "object_properties.h"

struct property {
    uint32_t offset; /* of a declared one; 0: dynamic */
    zend_string *name;
    zval value; /* counted, and never a reference */
};

struct kept {
    zend_object *object; /* counted */
    struct property *properties;
    size_t count;
};

/* All in request memory. */
static struct kept *kept;
static size_t kept_count;
/* Former values that are freed in the end. */
static HashTable *former;

/* A table this much larger than the remembered one is not kept: a request may have put a lot into it. */
enum { SMALL_TABLE = 64, LARGER = 2 };

static bool is_accessible(const zend_property_info *info, const zend_class_entry *class) {
    uint32_t flags = info->flags;
#ifdef ZEND_ACC_VIRTUAL
    if ((flags & ZEND_ACC_VIRTUAL) != 0) {
        return false;
    }
#endif
    return (flags & (ZEND_ACC_STATIC | ZEND_ACC_READONLY)) == 0 &&
           ((flags & ZEND_ACC_PRIVATE) == 0 || info->ce == class);
}

static void keep(struct kept *of, uint32_t offset, zend_string *name, zval *value) {
    struct property *property = &of->properties[of->count++];
    property->offset = offset;
    property->name = name;
    ZVAL_COPY_DEREF(&property->value, value);
}

static void remember(struct kept *of, zend_object *object) {
    const zend_class_entry *class = object->ce;
    uint32_t declared = (uint32_t) class->default_properties_count;
    uint32_t dynamic = object->properties != NULL ? zend_hash_num_elements(object->properties) : 0;
    of->object = object;
    GC_ADDREF(object);
    of->properties = safe_emalloc(declared + dynamic, sizeof *of->properties, 1);
    of->count = 0;
    for (uint32_t i = 0; i < declared && class->properties_info_table != NULL; i++) {
        const zend_property_info *info = class->properties_info_table[i];
        if (info != NULL && is_accessible(info, class)) {
            zval *slot = OBJ_PROP(object, info->offset);
            if (Z_TYPE_P(slot) != IS_UNDEF) {
                keep(of, info->offset, NULL, slot);
            }
        }
    }
    if (dynamic > 0) {
        zend_string *name;
        zval *value;
        ZEND_HASH_FOREACH_STR_KEY_VAL(object->properties, name, value) {
            /* an indirect one is declared */
            if (name != NULL && Z_TYPE_P(value) != IS_INDIRECT) {
                keep(of, 0, zend_string_copy(name), value);
            }
        }
        ZEND_HASH_FOREACH_END();
    }
}

/* Whether two values are the same one: equal scalars, or the same array, object or string. */
static bool is_same(const zval *one, const zval *other) {
    if (Z_TYPE_P(one) != Z_TYPE_P(other)) {
        return false;
    }
    if (Z_TYPE_P(one) <= IS_TRUE) {
        return true;
    }
    return Z_TYPE_P(one) == IS_DOUBLE
               ? memcmp(&Z_DVAL_P(one), &Z_DVAL_P(other), sizeof(double)) == 0
           : Z_TYPE_P(one) == IS_LONG ? Z_LVAL_P(one) == Z_LVAL_P(other)
                                      : Z_PTR_P(one) == Z_PTR_P(other);
}

/* Takes a value over, to free it in the end. */
static void discard(zval *value) {
    if (Z_REFCOUNTED_P(value)) {
        zend_hash_next_index_insert_new(former, value);
    }
}

static void replace(zval *now, zval *then) {
    zval before;
    ZVAL_COPY_VALUE(&before, now);
    ZVAL_COPY(now, then);
    discard(&before);
}

/* Whether nothing but one property refers to an array, and it is not much larger than the remembered one. */
static bool may_be_changed(const zend_array *now, const zend_array *then) {
    return GC_REFCOUNT(now) == 1 && (GC_FLAGS(now) & GC_IMMUTABLE) == 0 && !HT_HAS_ITERATORS(now) &&
           (now->nTableSize <= SMALL_TABLE || now->nTableSize / LARGER <= then->nTableSize) &&
           now->nInternalPointer == then->nInternalPointer &&
           zend_hash_num_elements(now) >= zend_hash_num_elements(then) && !HT_IS_PACKED(now) &&
           !HT_IS_PACKED(then) && HT_IS_WITHOUT_HOLES(then);
}

static bool is_same_key(const Bucket *one, const Bucket *other) {
    return one->h == other->h &&
           (one->key == other->key || (one->key != NULL && other->key != NULL &&
                                          zend_string_equal_content(one->key, other->key)));
}

/* Gives a request's copy of an array the remembered elements. False: it has been changed otherwise than by new values and new elements
 * behind the others; nothing is done then. */
static bool put_back_elements(zend_array *now, zend_array *then) {
    if (!may_be_changed(now, then)) {
        return false;
    }
    uint32_t count = then->nNumUsed;
    for (uint32_t i = 0; i < count; i++) {
        if (Z_TYPE(now->arData[i].val) == IS_UNDEF ||
            !is_same_key(&now->arData[i], &then->arData[i])) {
            return false;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!is_same(&now->arData[i].val, &then->arData[i].val)) {
            replace(&now->arData[i].val, &then->arData[i].val);
        }
    }
    for (uint32_t i = now->nNumUsed; i > count; i--) {
        Bucket *bucket = &now->arData[i - 1];
        if (Z_TYPE(bucket->val) != IS_UNDEF) {
            discard(&bucket->val);
            ZVAL_NULL(&bucket->val);
            zend_hash_del_bucket(now, bucket);
        }
    }
    now->nNextFreeElement = then->nNextFreeElement;
    return true;
}

static void put_back_value(zval *now, zval *then) {
    ZVAL_DEREF(now);
    if (is_same(now, then) || (Z_TYPE_P(now) == IS_ARRAY && Z_TYPE_P(then) == IS_ARRAY &&
                                  put_back_elements(Z_ARR_P(now), Z_ARR_P(then)))) {
        return;
    }
    replace(now, then);
}

static void put_back(const struct kept *of) {
    zend_object *object = of->object;
    for (size_t i = 0; i < of->count; i++) {
        struct property *property = &of->properties[i];
        if (property->name == NULL) {
            zval *slot = OBJ_PROP(object, property->offset);
            if (Z_TYPE_P(slot) == IS_UNDEF) {
                Z_PROP_FLAG_P(slot) = 0; /* initialised */
            }
            put_back_value(slot, &property->value);
            continue;
        }
        zval *now =
            object->properties != NULL ? zend_hash_find(object->properties, property->name) : NULL;
        if (now != NULL && GC_REFCOUNT(object->properties) == 1) {
            put_back_value(now, &property->value);
        } else {
            zend_update_property_ex(object->ce, object, property->name, &property->value);
        }
    }
}

void object_properties_remember(HashTable *objects) {
    object_properties_forget();
    kept = safe_emalloc(zend_hash_num_elements(objects), sizeof *kept, 1);
    zval *object;
    ZEND_HASH_FOREACH_VAL(objects, object) {
        ZVAL_DEREF(object);
        if (Z_TYPE_P(object) == IS_OBJECT) {
            remember(&kept[kept_count++], Z_OBJ_P(object));
        }
    }
    ZEND_HASH_FOREACH_END();
}

void object_properties_put_back(void) {
    if (kept == NULL || former != NULL) {
        return;
    }
    ALLOC_HASHTABLE(former);
    zend_hash_init(former, 16, NULL, ZVAL_PTR_DTOR, 0);
    for (size_t i = 0; i < kept_count; i++) {
        put_back(&kept[i]);
    }
    HashTable *freed = former;
    former = NULL;
    zend_array_destroy(freed);
}

void object_properties_forget(void) {
    struct kept *list = kept;
    size_t count = kept_count;
    kept = NULL;
    kept_count = 0;
    if (list == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < list[i].count; j++) {
            zval_ptr_dtor(&list[i].properties[j].value);
            if (list[i].properties[j].name != NULL) {
                zend_string_release(list[i].properties[j].name);
            }
        }
        efree(list[i].properties);
        OBJ_RELEASE(list[i].object);
    }
    efree(list);
}
