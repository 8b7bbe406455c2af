/* See opcache_guard.h. */
#include "sapi/boot/opcache_guard.h"

#include <SAPI.h>
#include <php.h>
#include <stdint.h>
#include <time.h>

#include "sapi/output/log.h"

static ZEND_FUNCTION(refuse_reset) {
    ZEND_PARSE_PARAMETERS_NONE();
    log_line(LOG_WARNING, LOG_SOURCE_WORKER,
        "opcache_reset() has no effect on an application that has booted ahead: restart the server "
        "to load new code");
    RETURN_FALSE;
}

static zend_op_array *(*compile_as_before)(zend_file_handle *, int);
/* opcache.file_update_protection and opcache.revalidate_freq, where OPcache reads them; in seconds */
static zend_long *protection, *revalidation;
static zend_long configured, written;
static time_t clock_of_opcache;

/* persistent_compile_file(), ext/opcache/ZendAccelerator.c, compares the file's time with (time of the boot - protection). */
static zend_op_array *compile(zend_file_handle *file, int type) {
    if (*protection != written) {
        configured = written = *protection; /* by ini_set() */
    }
    if (configured > 0) {
        if (clock_of_opcache == 0) {
            clock_of_opcache =
                (time_t)sapi_get_request_time(); /* as accel_activate() in the boot */
        }
        zend_long left = configured - (zend_long)(time(NULL) - clock_of_opcache);
        written = left != 0 ? left : 1; /* 0 would protect no file */
        *protection = written;
    }
    return compile_as_before(file, type);
}

/* Returns where a setting of OPcache is read; NULL without OPcache. */
static zend_long *place_of(const char *name, size_t len) {
    zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, len);
    if (entry == NULL || entry->on_modify != OnUpdateLong || entry->mh_arg2 == NULL) {
        return NULL;
    }
    return (zend_long *)((char *)entry->mh_arg2 + (uintptr_t)entry->mh_arg1);
}

void opcache_guard_boot_is_over(void) {
    if (revalidation != NULL && *revalidation > 0) {
        /* validate_timestamp_and_record(), ext/opcache/ZendAccelerator.c: what is cached from now on is older than the clock */
        *revalidation = -1;
    }
}

void opcache_guard_keep_clock(void) {
    protection = place_of(ZEND_STRL("opcache.file_update_protection"));
    revalidation = place_of(ZEND_STRL("opcache.revalidate_freq"));
    if (protection == NULL) {
        return;
    }
    configured = written = *protection;
    compile_as_before = zend_compile_file;
    zend_compile_file = compile;
}

void opcache_guard_refuse_reset(void) {
    zend_function *reset =
        zend_hash_str_find_ptr(CG(function_table), "opcache_reset", sizeof "opcache_reset" - 1);
    if (reset != NULL && reset->type == ZEND_INTERNAL_FUNCTION) {
        reset->internal_function.handler = ZEND_FN(refuse_reset);
    }
}
