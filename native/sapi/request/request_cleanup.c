/* See request_cleanup.h. */
#include "sapi/request/request_cleanup.h"

#include <SAPI.h>
#include <ext/spl/spl_directory.h>
#include <php.h>
#include <rfc1867.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zend_exceptions.h>
#include <zend_modules.h>

enum { MODULES = 256 };

static uint32_t boot_top;
static uint64_t *boot_objects; /* a bit for each handle below boot_top */
static zend_long boot_resources;
static bool left_alone[MODULES]; /* by number: see LEFT_ALONE */
static uint32_t first_held;      /* no object below this handle is one for free_objects() */

/* Extensions whose objects are not freed at the end of a request. Most hold nothing but memory, which is restored or gone with
 * the process; requests have many of these. The others hold database connections, which databases.h resets or closes. */
static const char *const LEFT_ALONE[] = {"core", "date", "dom", "hash", "intl", "mysqli", "pdo",
    "pdo_mysql", "pdo_pgsql", "pdo_sqlite", "pgsql", "random", "redis", "reflection", "simplexml",
    "spl", "standard", "tokenizer"};

static bool is_of_boot(uint32_t handle) {
    return handle < boot_top && (boot_objects[handle / 64] >> (handle % 64) & 1) != 0;
}

/* The first handle from here on that is none of the boot's. */
static uint32_t of_request(uint32_t handle) {
    while (handle < boot_top) {
        uint64_t others = ~boot_objects[handle / 64] >> (handle % 64);
        if (others != 0) {
            return handle + (uint32_t)__builtin_ctzll(others);
        }
        handle = (handle / 64 + 1) * 64;
    }
    return handle;
}

void request_cleanup_mark(void) {
    const zend_objects_store *store = &EG(objects_store);
    boot_top = store->top;
    boot_objects = calloc(boot_top / 64 + 1, sizeof *boot_objects);
    if (boot_objects == NULL) {
        abort();
    }
    /* without a list of free ones no handle is used again */
    const bool all = store->free_list_head == -1;
    for (uint32_t i = 0; i < store->top; i++) {
        if (all || (i > 0 && IS_OBJ_VALID(store->object_buckets[i]))) {
            boot_objects[i / 64] |= 1ULL << (i % 64);
        }
    }
    first_held = 1;
    boot_resources = EG(regular_list).nNextFreeElement;
    for (size_t i = 0; i < sizeof LEFT_ALONE / sizeof *LEFT_ALONE; i++) {
        const zend_module_entry *module =
            zend_hash_str_find_ptr(&module_registry, LEFT_ALONE[i], strlen(LEFT_ALONE[i]));
        if (module != NULL && module->module_number < MODULES) {
            left_alone[module->module_number] = true;
        }
    }
}

/* Extensions whose objects hold descriptors, or a mapping. */
static const char *const HOLD_DESCRIPTORS[] = {"curl", "ftp", "imap", "ldap", "memcached", "mysqli",
    "pdo", "pdo_mysql", "pdo_pgsql", "pdo_sqlite", "pgsql", "redis", "shmop", "sockets", "sqlite3",
    "xmlreader"};

/* The extension that the object's class, or the first one above it that PHP code did not define, belongs to. NULL: none. */
static const zend_module_entry *extension_of(const zend_object *object) {
    const zend_class_entry *class = object->ce;
    while (class->type != ZEND_INTERNAL_CLASS && class->parent != NULL) {
        class = class->parent;
    }
    return class->type == ZEND_INTERNAL_CLASS ? class->info.internal.module : NULL;
}

/* SplFileObject and the iterators over folders. The others of SPL hold nothing but memory: that they are destroyed in time may be noticed. */
static bool is_open_file(const zend_object *object) {
    return object->ce->destructor == NULL &&
           (instanceof_function(object->ce, spl_ce_SplFileObject) ||
               instanceof_function(object->ce, spl_ce_DirectoryIterator));
}

static bool holds_descriptor(const zend_object *object) {
    if (is_open_file(object)) {
        return true;
    }
    const zend_module_entry *module = extension_of(object);
    for (size_t i = 0; module != NULL && i < sizeof HOLD_DESCRIPTORS / sizeof *HOLD_DESCRIPTORS;
         i++) {
        if (strcasecmp(module->name, HOLD_DESCRIPTORS[i]) == 0) {
            return true;
        }
    }
    return false;
}

void request_cleanup_hold(void) {
    const zend_objects_store *store = &EG(objects_store);
    for (uint32_t i = 1; i < store->top; i++) {
        zend_object *object = store->object_buckets[i];
        if (IS_OBJ_VALID(object) && object->handlers->free_obj != zend_object_std_dtor &&
            holds_descriptor(object)) {
            GC_ADDREF(object);
            if (is_open_file(object)) {
                /* else it is closed with all objects: spl_filesystem_object_destroy_object(), ext/spl/spl_directory.c */
                GC_ADD_FLAGS(object, IS_OBJ_DESTRUCTOR_CALLED);
            }
        }
    }
    zend_resource *resource;
    ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
        GC_ADDREF(resource);
    }
    ZEND_HASH_FOREACH_END();
}

/* Returns whether an object may hold something that no restore releases: a semaphore, or a file that is written when it is
 * closed. */
static bool holds_more(const zend_object *object) {
    if (object->handlers->free_obj == zend_object_std_dtor) {
        return false;
    }
    const zend_module_entry *module = extension_of(object);
    return module == NULL || module->module_number >= MODULES || !left_alone[module->module_number];
}

/* zend_objects_store_call_destructors(), Zend/zend_objects_API.c, for the request's objects only. */
static void destroy_objects(void) {
    zend_objects_store *store = &EG(objects_store);
    if ((EG(flags) & EG_FLAGS_OBJECT_STORE_NO_REUSE) != 0) {
        return;
    }
    EG(flags) |= EG_FLAGS_OBJECT_STORE_NO_REUSE;
    first_held = 1; /* if an error of a destructor ends this */
    uint32_t held = 0;
    /* the boot's objects are not even looked at: they are many, and mostly cold */
    for (uint32_t i = of_request(1); i < store->top; i = of_request(i + 1)) {
        zend_object *object = store->object_buckets[i];
        if (!IS_OBJ_VALID(object)) {
            continue;
        }
        if (held == 0 && holds_more(object)) {
            held = i;
        }
        if ((OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) != 0) {
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
    first_held = held != 0 ? held : store->top;
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

/* zend_objects_store_free_object_storage(), Zend/zend_objects_API.c, for the request's objects only: last made, first freed, and the
 * objects themselves stay, so that others may still point to them. */
static void free_objects(void) {
    zend_objects_store *store = &EG(objects_store);
    for (uint32_t i = store->top; i-- > first_held;) {
        zend_object *object = store->object_buckets[i];
        if (!IS_OBJ_VALID(object) || is_of_boot(i) ||
            (OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED) != 0 || !holds_more(object)) {
            continue;
        }
        GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
        GC_ADDREF(object);
        object->handlers->free_obj(object);
    }
}

void request_cleanup_clear(void) {
    /* Without a caller, an exception of a destructor is reported: zend_call_destructors(), Zend/zend_execute_API.c */
    zend_execute_data *caller = EG(current_execute_data);
    EG(current_execute_data) = NULL;
    zend_try {
        destroy_objects();
    }
    zend_end_try();
    /* one that is left would keep stream wrappers from being called */
    zend_clear_exception();
    zend_try {
        close_resources();
    }
    zend_end_try();
    /* behind the resources, as the engine does it: some of these objects count on finding their streams closed */
    zend_try {
        free_objects();
    }
    zend_end_try();
    zend_try {
        if (SG(rfc1867_uploaded_files) != NULL) {
            destroy_uploaded_files_hash();
        }
    }
    zend_end_try();
    EG(current_execute_data) = caller;
}
