/* See boot_state.h. */
#include "sapi/boot/boot_state.h"

#include <SAPI.h>
#include <ext/session/php_session.h>
#include <ext/standard/basic_functions.h>
#include <php.h>
#include <php_ini.h>
#include <stdbool.h>

#include "sapi/compat.h"

/* absent in a PHP without sessions */
#pragma weak ps_globals
#pragma weak _php_find_ps_module

static bool remembered;

/* name -> value, of the settings that the boot changed. Request memory: freed with the boot. */
static HashTable *ini;
static HashTable *shutdown_functions;

/* A union of an array and a structure up to PHP 8.3, a structure since: zvals, one behind the other, in each of them. */
#define HANDLERS (sizeof PS(mod_user_names) / sizeof(zval))
static zval handlers[HANDLERS];
static bool handlers_set;
static zend_string *handler_class;

static zval *session_handler(size_t i) {
    return (zval *)&PS(mod_user_names) + i;
}

static bool has_sessions(void) {
    return &ps_globals != NULL;
}

static void call_module(const char *name, bool start) {
    zend_module_entry *entry = zend_hash_str_find_ptr(&module_registry, name, strlen(name));
    if (entry == NULL) {
        return;
    }
    if (start && entry->request_startup_func != NULL) {
        entry->request_startup_func(entry->type, entry->module_number);
    } else if (!start && entry->request_shutdown_func != NULL) {
        entry->request_shutdown_func(entry->type, entry->module_number);
    }
}

static void remember_ini(void) {
    ALLOC_HASHTABLE(ini);
    zend_hash_init(ini, 8, NULL, ZVAL_PTR_DTOR, 0);
    if (EG(modified_ini_directives) == NULL) {
        return;
    }
    zend_ini_entry *entry;
    ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry) {
        zval value;
        if (entry->value != NULL) {
            ZVAL_STR_COPY(&value, entry->value);
        } else {
            ZVAL_NULL(&value);
        }
        zend_hash_update(ini, entry->name, &value);
    }
    ZEND_HASH_FOREACH_END();
}

static bool has_value(const zend_ini_entry *entry, const zval *value) {
    if (Z_TYPE_P(value) != IS_STRING) {
        return entry->value == NULL;
    }
    return entry->value != NULL &&
           (entry->value == Z_STR_P(value) || zend_string_equals(entry->value, Z_STR_P(value)));
}

/* The first setting that is not as the boot left it, or NULL. */
static zend_ini_entry *changed_setting(void) {
    zend_ini_entry *entry;
    ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry) {
        zval *value = zend_hash_find(ini, entry->name);
        if (value == NULL || !has_value(entry, value)) {
            return entry;
        }
    }
    ZEND_HASH_FOREACH_END();
    return NULL;
}

static void set_setting(zend_string *name, zend_string *value) {
    /* "user" may be set by session_set_save_handler() only: ext/session/session.c, OnUpdateSaveHandler */
    bool handler = has_sessions() && zend_string_equals_literal(name, "session.save_handler");
    if (handler) {
        PS(set_handler) = 1;
    }
    zend_alter_ini_entry_ex(name, value, ZEND_INI_SYSTEM, ZEND_INI_STAGE_DEACTIVATE, true);
    if (handler) {
        PS(set_handler) = 0;
    }
}

static void restore_ini(void) {
    /* the table changes during the walk: each round restores one entry, and a setting that refuses
     * ends the loop */
    zend_ini_entry *entry;
    zend_ini_entry *stuck = NULL;
    while (EG(modified_ini_directives) != NULL && (entry = changed_setting()) != NULL &&
           entry != stuck) {
        zval *value = zend_hash_find(ini, entry->name);
        stuck = entry;
        if (value == NULL) {
            zend_restore_ini_entry(entry->name, ZEND_INI_STAGE_DEACTIVATE);
        } else if (Z_TYPE_P(value) == IS_STRING) {
            set_setting(entry->name, Z_STR_P(value));
        }
    }
    /* ini_restore() in a request takes back what the boot had set */
    zend_string *name;
    zval *value;
    ZEND_HASH_FOREACH_STR_KEY_VAL(ini, name, value) {
        if (Z_TYPE_P(value) == IS_STRING &&
            (EG(modified_ini_directives) == NULL ||
                !zend_hash_exists(EG(modified_ini_directives), name))) {
            set_setting(name, Z_STR_P(value));
        }
    }
    ZEND_HASH_FOREACH_END();
}

static void remember_session(void) {
    handlers_set = false;
    handler_class = NULL;
    if (!has_sessions()) {
        return;
    }
    for (size_t i = 0; i < HANDLERS; i++) {
        ZVAL_COPY(&handlers[i], session_handler(i));
        handlers_set = handlers_set || !Z_ISUNDEF(handlers[i]);
    }
    if (PS(mod_user_class_name) != NULL) {
        handler_class = zend_string_copy(PS(mod_user_class_name));
    }
}

void boot_state_remember(void) {
    remember_ini();
    remember_session();
    shutdown_functions = BG(user_shutdown_function_names);
    BG(user_shutdown_function_names) = NULL;
    remembered = true;
}

void boot_state_run_shutdown_functions(void) {
    /* a shutdown function may register another one */
    while (BG(user_shutdown_function_names) != NULL) {
        php_call_shutdown_functions();
        php_free_shutdown_functions();
    }
}

void boot_state_end_session(void) {
    if (has_sessions()) {
        /* writes and closes an open session, forgets id and handlers */
        call_module("session", false);
        zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof "_SESSION" - 1);
    }
}

void boot_state_restore(void) {
    restore_ini();
    call_module("filter", false);
    if (has_sessions() && handlers_set) {
        for (size_t i = 0; i < HANDLERS; i++) {
            ZVAL_COPY(session_handler(i), &handlers[i]);
        }
        if (handler_class != NULL && PS(mod_user_class_name) == NULL) {
            PS(mod_user_class_name) = zend_string_copy(handler_class);
        }
    }
}

void boot_state_begin_session(void) {
    if (has_sessions()) {
        call_module("session", true);
    }
}

void boot_state_forget_input(void) {
    call_module("filter", false);
}

void boot_state_begin_compression(void) {
    const char *compresses = zend_ini_string(ZEND_STRL("zlib.output_compression"), 0);
    if (compresses != NULL && *compresses != '\0' && strcmp(compresses, "0") != 0 &&
        strcasecmp(compresses, "off") != 0) {
        call_module("zlib", true);
    }
}

void boot_state_release(void) {
    if (!remembered) {
        return;
    }
    remembered = false;
    HashTable *of_request = BG(user_shutdown_function_names);
    BG(user_shutdown_function_names) = shutdown_functions;
    shutdown_functions = NULL;
    if (of_request != NULL) {
        if (BG(user_shutdown_function_names) == NULL) {
            BG(user_shutdown_function_names) = of_request;
        } else {
            php_shutdown_function_entry *entry;
            ZEND_HASH_FOREACH_PTR(of_request, entry) {
                zend_hash_next_index_insert_ptr(BG(user_shutdown_function_names), entry);
            }
            ZEND_HASH_FOREACH_END();
            /* the entries have moved: only the table goes */
            of_request->pDestructor = NULL;
            zend_hash_destroy(of_request);
            FREE_HASHTABLE(of_request);
        }
    }
    /* the rest is request memory that the engine's shutdown frees as a whole; objects must lose
     * their last reference */
    zend_array_destroy(ini);
    ini = NULL;
    if (handlers_set) {
        for (size_t i = 0; i < HANDLERS; i++) {
            zval_ptr_dtor(&handlers[i]);
            ZVAL_UNDEF(&handlers[i]);
        }
    }
    if (handler_class != NULL) {
        zend_string_release(handler_class);
        handler_class = NULL;
    }
}
