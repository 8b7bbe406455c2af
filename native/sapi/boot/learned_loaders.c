/* See learned_loaders.h. */
#include "sapi/boot/learned_loaders.h"

#include "ext/compat.h"

#include <php_streams.h>
#include <string.h>
#include <zend_closures.h>

#include "sapi/boot/learned_loaders_code.h"

/* A variable that a loader reads, and its value at the wait point. The reference that is held makes each change of an array a copy. */
struct watched {
    zval *place;
    const char *global; /* its name, instead of a place */
    zval value;
};

enum { MOST = 256 };

static struct watched watched[MOST];
static size_t watched_count;
static zval *missing[MOST]; /* what Composer's loaders have looked for in vain: changes by itself */
static size_t missing_count;
static bool known;

/* What changes how files are found. Relative paths depend on the current folder. */
static struct {
    const char *name;
    zend_internal_function *function;
    zif_handler handler;
} changing[] = {
    {.name = "spl_autoload_register"}, {.name = "spl_autoload_unregister"}, {.name = "chdir"}};
enum { CHANGING = sizeof changing / sizeof *changing };
static bool sees_changes;

static ZEND_FUNCTION(seen) {
    known = false;
    for (size_t i = 0; i < CHANGING; i++) {
        if (changing[i].function->function_name == EX(func)->common.function_name) {
            changing[i].handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
            return;
        }
    }
}

void learned_loaders_watch(void) {
    for (size_t i = 0; i < CHANGING && !sees_changes; i++) {
        zend_function *function =
            zend_hash_str_find_ptr(CG(function_table), changing[i].name, strlen(changing[i].name));
        if (function == NULL || function->type != ZEND_INTERNAL_FUNCTION) {
            return; /* disabled: the application may have one of its own */
        }
        changing[i].function = &function->internal_function;
        changing[i].handler = function->internal_function.handler;
    }
    for (size_t i = 0; i < CHANGING && !sees_changes; i++) {
        changing[i].function->handler = ZEND_FN(seen);
    }
    sees_changes = true;
}

static bool watch(zval *place, const char *global) {
    zval *value = place;
    ZVAL_DEINDIRECT(value);
    ZVAL_DEREF(value);
    if (watched_count == MOST || Z_TYPE_P(value) == IS_CONSTANT_AST) {
        return false;
    }
    struct watched *one = &watched[watched_count++];
    one->place = place;
    one->global = global;
    ZVAL_COPY(&one->value, value);
    return true;
}

static bool is_property(const zend_property_info *info, const char *name) {
    const char *class_name, *property;
    zend_unmangle_property_name(info->name, &class_name, &property);
    return strcmp(property, name) == 0;
}

/* Composer\Autoload\ClassLoader, without a cache in APCu and without PHP's include path. */
static bool watch_composer(zend_object *loader) {
    zend_property_info *info;
    ZEND_HASH_FOREACH_PTR(&loader->ce->properties_info, info) {
        if ((info->flags & ZEND_ACC_STATIC) != 0) {
            continue;
        }
#ifdef ZEND_ACC_VIRTUAL
        if ((info->flags & ZEND_ACC_VIRTUAL) != 0) {
            return false;
        }
#endif
        zval *place = OBJ_PROP(loader, info->offset);
        bool has_more = (is_property(info, "apcuPrefix") && Z_TYPE_P(place) != IS_NULL) ||
                        (is_property(info, "useIncludePath") && Z_TYPE_P(place) != IS_FALSE);
        if (has_more) {
            return false;
        }
        if (!is_property(info, "missingClasses")) {
            if (!watch(place, NULL)) {
                return false;
            }
        } else if (missing_count < MOST) {
            missing[missing_count++] = place;
        } else {
            return false;
        }
    }
    ZEND_HASH_FOREACH_END();
    return true;
}

/* AutoLoader::autoload() of MediaWiki reads the static properties of its class, and three variables. It writes a log where it looks for names in
 * lower case, too. */
static bool watch_mediawiki(zend_class_entry *class) {
    static const char *const globals[] = {
        "wgAutoloadLocalClasses", "wgAutoloadClasses", "wgAutoloadAttemptLowercase"};
    zval *members = CE_STATIC_MEMBERS(class);
    bool is_his =
        zend_hash_str_exists(&class->properties_info, ZEND_STRL("psr4Namespaces")) &&
        zend_hash_str_exists(&class->properties_info, ZEND_STRL("autoloadLocalClassesLower"));
    if (members == NULL || !is_his) {
        return false;
    }
    for (int i = 0; i < class->default_static_members_count; i++) {
        if (!watch(&members[i], NULL)) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        zval *place = zend_hash_str_find(&EG(symbol_table), globals[i], strlen(globals[i]));
        if (place == NULL || !watch(place, globals[i])) {
            return false;
        }
    }
    return Z_TYPE(watched[watched_count - 1].value) == IS_FALSE;
}

static bool is_text(const zval *value, const char *text) {
    return value != NULL && Z_TYPE_P(value) == IS_STRING &&
           zend_string_equals_cstr(Z_STR_P(value), text, strlen(text));
}

static bool watch_loader(const zval *loader) {
    if (Z_TYPE_P(loader) == IS_OBJECT && Z_OBJCE_P(loader) == zend_ce_closure) {
        const zend_function *function = zend_get_closure_method_def(Z_OBJ_P(loader));
        return function->type == ZEND_USER_FUNCTION && loader_code_is_plain(&function->op_array);
    }
    if (Z_TYPE_P(loader) != IS_ARRAY) {
        return false;
    }
    const zval *of = zend_hash_index_find(Z_ARRVAL_P(loader), 0);
    const zval *method = zend_hash_index_find(Z_ARRVAL_P(loader), 1);
    if (of != NULL && Z_TYPE_P(of) == IS_OBJECT) {
        return zend_string_equals_literal(Z_OBJCE_P(of)->name, "Composer\\Autoload\\ClassLoader") &&
               is_text(method, "loadClass") && watch_composer(Z_OBJ_P(of));
    }
    zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("autoloader"));
    return is_text(of, "AutoLoader") && is_text(method, "autoload") && class != NULL &&
           class->type == ZEND_USER_CLASS && watch_mediawiki(class);
}

void learned_loaders_remember(void) {
    zend_function *list =
        zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("spl_autoload_functions"));
    known = false;
    if (!sees_changes || list == NULL || list->type != ZEND_INTERNAL_FUNCTION) {
        return;
    }
    zval loaders, *loader;
    ZVAL_UNDEF(&loaders);
    zend_call_known_function(list, NULL, NULL, &loaders, 0, NULL, NULL);
    if (Z_TYPE(loaders) == IS_ARRAY) {
        known = zend_hash_num_elements(Z_ARRVAL(loaders)) > 0;
        ZEND_HASH_FOREACH_VAL(Z_ARRVAL(loaders), loader) {
            known = known && watch_loader(loader);
        }
        ZEND_HASH_FOREACH_END();
    }
    zval_ptr_dtor(&loaders);
}

static bool is_same(const struct watched *one) {
    zval *value = one->place;
    if (one->global != NULL) {
        value = zend_hash_str_find(&EG(symbol_table), one->global, strlen(one->global));
        if (value == NULL) {
            return false;
        }
    }
    ZVAL_DEINDIRECT(value);
    ZVAL_DEREF(value);
    if (Z_TYPE_P(value) != Z_TYPE(one->value)) {
        return false;
    }
    /* an array, a string, a number; or nothing but its type */
    return Z_TYPE_P(value) <= IS_TRUE || Z_LVAL_P(value) == Z_LVAL(one->value);
}

/* A stream wrapper of the application may read other code from a file. */
static bool files_are_read_plainly(void) {
    const HashTable *now = php_stream_get_url_stream_wrappers_hash();
    const HashTable *own = php_stream_get_url_stream_wrappers_hash_global();
    return now == own || zend_hash_str_find_ptr(now, ZEND_STRL("file")) ==
                             zend_hash_str_find_ptr(own, ZEND_STRL("file"));
}

bool learned_loaders_are_same(zend_string *class) {
    if (!known || !files_are_read_plainly()) {
        return false;
    }
    for (size_t i = 0; i < watched_count; i++) {
        if (!is_same(&watched[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < missing_count; i++) {
        if (Z_TYPE_P(missing[i]) != IS_ARRAY || zend_hash_exists(Z_ARRVAL_P(missing[i]), class)) {
            return false;
        }
    }
    return true;
}
