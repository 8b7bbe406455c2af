/* See request_leavings.h. */
#include "request_leavings.h"

#include <SAPI.h>
#include <php.h>
#include <rfc1867.h>
#include <stdlib.h>

static uint32_t boot_top;
static uint8_t *boot_objects; /* a bit for each handle below boot_top */
static zend_long boot_resources;

static bool is_of_boot(uint32_t handle) {
    return handle < boot_top && (boot_objects[handle / 8] >> (handle % 8) & 1) != 0;
}

void request_leavings_mark(void) {
    const zend_objects_store *store = &EG(objects_store);
    boot_top = store->top;
    boot_objects = calloc(boot_top / 8 + 1, 1);
    if (boot_objects == NULL) {
        abort();
    }
    for (uint32_t i = 1; i < store->top; i++) {
        if (IS_OBJ_VALID(store->object_buckets[i])) {
            boot_objects[i / 8] |= (uint8_t)(1 << (i % 8));
        }
    }
    boot_resources = EG(regular_list).nNextFreeElement;
}

/* zend_objects_store_call_destructors(), Zend/zend_objects_API.c, for the request's objects only. */
static void destroy_objects(void) {
    zend_objects_store *store = &EG(objects_store);
    if ((EG(flags) & EG_FLAGS_OBJECT_STORE_NO_REUSE) != 0) {
        return;
    }
    EG(flags) |= EG_FLAGS_OBJECT_STORE_NO_REUSE;
    for (uint32_t i = 1; i < store->top; i++) {
        zend_object *object = store->object_buckets[i];
        /* the boot's objects are not even looked at: they are many, and mostly cold */
        if (!IS_OBJ_VALID(object) || is_of_boot(i) ||
            (OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) != 0) {
            continue;
        }
        if (object->handlers->dtor_obj == zend_objects_destroy_object &&
            object->ce->destructor == NULL) {
            continue;
        }
        GC_ADD_FLAGS(object, IS_OBJ_DESTRUCTOR_CALLED);
        GC_ADDREF(object);
        object->handlers->dtor_obj(object);
        GC_DELREF(object);
    }
}

/* Last opened, first closed: zend_close_rsrc_list(), Zend/zend_list.c */
static void close_resources(void) {
    for (zend_long i = EG(regular_list).nNextFreeElement - 1; i >= boot_resources && i > 0; i--) {
        zval *resource = zend_hash_index_find(&EG(regular_list), (zend_ulong)i);
        if (resource != NULL) {
            zend_list_close(Z_RES_P(resource));
        }
    }
}

void request_leavings_clear(void) {
    zend_try {
        destroy_objects();
    }
    zend_end_try();
    zend_try {
        close_resources();
    }
    zend_end_try();
    zend_try {
        if (SG(rfc1867_uploaded_files) != NULL) {
            destroy_uploaded_files_hash();
        }
    }
    zend_end_try();
}
