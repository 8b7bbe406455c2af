/* See learned_classes.h. Runs in the temporary fork. */
#include "sapi/boot/learned_classes.h"

#include "ext/compat.h"

#include <stdbool.h>
#include <string.h>
#include <zend_observer.h>
#include <zend_smart_str.h>

#include "sapi/boot/learned_loaders.h"

/* A class that the autoloaders are looking for. On the heap: a fatal error leaves the functions that have asked. */
struct asked {
    struct asked *outer;
    zend_string *file; /* the last one that they have included */
    uint32_t files;
    bool has_class; /* it declares one, and does nothing else */
};

static struct asked *asked;
static uint64_t errors; /* warnings and the like, also those that are not shown */

static smart_str *found; /* what is reported of each class */
static size_t found_count, found_room;
static HashTable known;       /* classes that were found */
static uint32_t boot_classes; /* entries of the class table that the boot has used */

static zend_class_entry *(*autoload)(zend_string *name, zend_string *lc_name);
static zend_op_array *(*compile)(zend_file_handle *file, int type);

static void count_error(int type, zend_string *file, uint32_t line, zend_string *message) {
    (void)type, (void)file, (void)line, (void)message;
    errors++;
}

static zend_op_array *compile_watched(zend_file_handle *file, int type) {
    struct asked *by = asked;
    uint32_t classes = zend_hash_num_elements(CG(class_table));
    uint32_t functions = zend_hash_num_elements(CG(function_table));
    zend_op_array *code = compile(file, type);
    if (by != NULL) {
        by->files++;
        by->has_class = code != NULL && learned_classes_only_declares(code) &&
                        zend_hash_num_elements(CG(class_table)) == classes + 1 &&
                        zend_hash_num_elements(CG(function_table)) == functions;
        by->file = file->filename != NULL ? zend_string_copy(file->filename) : NULL;
    }
    return code;
}

/* Whether the zygote has a class, or will have it. */
static bool is_known(const zend_class_entry *class) {
    if (class->type != ZEND_USER_CLASS ||
        zend_hash_index_exists(&known, (zend_ulong)(uintptr_t) class)) {
        return true;
    }
    zend_string *key = zend_string_tolower(class->name);
    const zval *entry = zend_hash_find(CG(class_table), key);
    zend_string_release(key);
    return entry != NULL && (const Bucket *)entry - CG(class_table)->arData < boot_classes;
}

static bool bases_are_known(const zend_class_entry *class) {
    bool all = class->parent == NULL || is_known(class->parent);
    for (uint32_t i = 0; i < class->num_interfaces; i++) {
        all = all && is_known(class->interfaces[i]);
    }
    for (uint32_t i = 0; i < class->num_traits; i++) {
        const zend_class_entry *trait =
            zend_hash_find_ptr(CG(class_table), class->trait_names[i].lc_name);
        all = all && trait != NULL && is_known(trait);
    }
    return all;
}

static void add(zend_string *name, zend_string *file, const zend_class_entry *class) {
    if (found_count == found_room) {
        found_room = found_room > 0 ? 2 * found_room : 64;
        found = safe_erealloc(found, found_room, sizeof *found, 0);
    }
    smart_str text = {0};
    smart_str_append(&text, name);
    smart_str_appendc(&text, '\0');
    smart_str_append(&text, file);
    found[found_count++] = text;
    zend_hash_index_add_empty_element(&known, (zend_ulong)(uintptr_t) class);
}

static zend_class_entry *autoload_watched(zend_string *name, zend_string *lc_name) {
    bool same = learned_loaders_are_same(name);
    uint64_t errors_before = errors;
    struct asked *one = ecalloc(1, sizeof *one);
    one->outer = asked;
    asked = one;
    zend_class_entry *class = autoload(name, lc_name);
    asked = one->outer;
    if (class != NULL && same && one->files == 1 && one->has_class && one->file != NULL &&
        ZSTR_VAL(one->file)[0] == '/' && errors == errors_before && EG(exception) == NULL &&
        learned_loaders_are_same(name) && bases_are_known(class)) {
        add(name, one->file, class);
    }
    return class;
}

void learned_classes_watch(void) {
    if (zend_autoload == NULL) {
        return;
    }
    boot_classes = CG(class_table)->nNumUsed;
    zend_hash_init(&known, 0, NULL, NULL, false);
    autoload = zend_autoload;
    zend_autoload = autoload_watched;
    compile = zend_compile_file;
    zend_compile_file = compile_watched;
    zend_observer_error_register(count_error);
}

void learned_classes_report(bool (*report)(const char *bytes, size_t len)) {
    for (size_t i = 0; i < found_count; i++) {
        if (!report(ZSTR_VAL(found[i].s), ZSTR_LEN(found[i].s))) {
            return;
        }
    }
}
