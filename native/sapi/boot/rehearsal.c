/* See rehearsal.h. */
#include "sapi/boot/rehearsal.h"

#include "ext/compat.h"

#include <ctype.h>
#include <fcntl.h>
#include <php.h>

#include <ext/pcre/php_pcre.h>
#include <ext/standard/basic_functions.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zend_exceptions.h>
#include <zend_smart_str.h>
#include <zend_virtual_cwd.h>

#include "ext/monotonic.h"
#include "sapi/boot/boot_descriptors.h"
#include "sapi/boot/learned_calls.h"
#include "sapi/boot/randomness.h"
#include "sapi/output/log.h"

enum { PATIENCE_MS = 10000 };

static int report_fd;
static bool learns_classes;
static uint32_t boot_classes;  /* entries of the class table that the boot has used */
static uint32_t boot_patterns; /* regular expressions in the cache that are the boot's */

/* What the fork reports: this, then `len` bytes, which may be any. */
struct learned {
    enum { CLASS, PATTERN, REAL_PATH, CALLS } kind;
    uint32_t len;
};

static bool write_all(const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t wrote = write(report_fd, bytes, len);
        if (wrote <= 0) {
            return false;
        }
        bytes += wrote;
        len -= (size_t)wrote;
    }
    return true;
}

static bool report(struct learned item, const char *bytes) {
    return write_all((const char *)&item, sizeof item) && write_all(bytes, item.len);
}

/* Compiled regular expressions, in the order of their first use. The cache's key of one that depends on a locale begins with its name: the
 * zygote has the same, unless requests change it (pcre_get_compiled_regex_cache(), ext/pcre/php_pcre.c). */
static void report_patterns(void) {
    const HashTable *cache = &PCRE_G(pcre_cache);
    const zend_string *locale = BG(ctype_string);
    for (uint32_t i = boot_patterns; i < cache->nNumUsed; i++) {
        const Bucket *entry = &cache->arData[i];
        if (Z_TYPE(entry->val) == IS_UNDEF || entry->key == NULL) {
            continue;
        }
        const char *pattern = ZSTR_VAL(entry->key);
        if (locale != NULL && zend_string_starts_with(entry->key, locale)) {
            pattern += ZSTR_LEN(locale);
        }
        const char *end = ZSTR_VAL(entry->key) + ZSTR_LEN(entry->key);
        struct learned item = {PATTERN, (uint32_t)(end - pattern)};
        /* no delimiter of a pattern is a letter: this is one of another locale */
        if (!isalnum((unsigned char)pattern[0]) && !report(item, pattern)) {
            return;
        }
    }
}

static void report_real_paths(void) {
    realpath_cache_bucket **buckets = realpath_cache_get_buckets();
    for (zend_long i = 0; i < realpath_cache_max_buckets(); i++) {
        for (const realpath_cache_bucket *at = buckets[i]; at != NULL; at = at->next) {
            struct learned item = {REAL_PATH, (uint32_t)at->path_len};
            if (!report(item, at->path)) {
                return;
            }
        }
    }
}

static void report_calls(void) {
    zend_string *calls = learned_calls_report();
    if (calls != NULL) {
        report((struct learned){CALLS, (uint32_t)ZSTR_LEN(calls)}, ZSTR_VAL(calls));
        zend_string_release(calls);
    }
}

/* In the order of their declaration: parents come before their children. */
static void report_classes(void) {
    for (uint32_t i = boot_classes; i < CG(class_table)->nNumUsed; i++) {
        const Bucket *entry = &CG(class_table)->arData[i];
        if (Z_TYPE(entry->val) != IS_PTR || entry->key == NULL || ZSTR_VAL(entry->key)[0] == '\0') {
            continue; /* an alias, a class without a name, or one that is only prepared */
        }
        const zend_class_entry *class = Z_PTR(entry->val);
        if (class->type == ZEND_USER_CLASS && (class->ce_flags & ZEND_ACC_ANON_CLASS) == 0 &&
            !report(
                (struct learned){CLASS, (uint32_t)ZSTR_LEN(class->name)}, ZSTR_VAL(class->name))) {
            break;
        }
    }
}

void rehearsal_end(void) {
    if (learns_classes) {
        report_classes();
    }
    report_patterns();
    report_real_paths();
    report_calls();
    _exit(0);
}

/* Reads to the end of the report. False when that did not come in time. */
static bool read_report(smart_str *learned) {
    const int64_t until = monotonic_microseconds() + PATIENCE_MS * 1000;
    for (;;) {
        int64_t left = (until - monotonic_microseconds()) / 1000;
        struct pollfd wait = {.fd = report_fd, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)left) <= 0) {
            return false;
        }
        char bytes[65536];
        ssize_t got = read(report_fd, bytes, sizeof bytes);
        if (got <= 0) {
            return got == 0;
        }
        smart_str_appendl(learned, bytes, (size_t)got);
    }
}

/* Does here what the fork has done, as far as no request's state comes with it. */
static void learn(struct learned item, const char *bytes) {
    zend_string *text = zend_string_init(bytes, item.len, 0);
    char path[MAXPATHLEN];
    switch (item.kind) {
    case CLASS:
        zend_lookup_class(text);
        break;
    case PATTERN:
        pcre_get_compiled_regex_cache(text);
        break;
    case REAL_PATH:
        tsrm_realpath(ZSTR_VAL(text), path);
        break;
    case CALLS:
        learned_calls_repeat(ZSTR_VAL(text), ZSTR_LEN(text));
        break;
    }
    if (EG(exception) != NULL) {
        zend_clear_exception();
    }
    zend_string_release(text);
}

static void learn_each(const char *report, size_t len) {
    const char *end = report + len;
    struct learned item;
    while ((size_t)(end - report) >= sizeof item) {
        memcpy(&item, report, sizeof item);
        report += sizeof item;
        if ((size_t)(end - report) < item.len) {
            return;
        }
        learn(item, report);
        report += item.len;
    }
}

static void learn_all(const char *report, size_t len) {
    /* a warning would call code of the application */
    zval handler;
    ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
    ZVAL_UNDEF(&EG(user_error_handler));
    int reporting = EG(error_reporting);
    EG(error_reporting) = 0;
    bool bailed_out = false;
    zend_try {
        learn_each(report, len);
    }
    zend_catch {
        bailed_out = true;
    }
    zend_end_try();
    EG(error_reporting) = reporting;
    ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
    if (bailed_out) {
        zend_bailout();
    }
}

bool rehearsal_begin(bool classes) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    learns_classes = classes;
    boot_classes = CG(class_table)->nNumUsed;
    boot_patterns = PCRE_G(pcre_cache).nNumUsed;
    fflush(NULL);
    pid_t zygote = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != zygote) {
            _exit(0);
        }
        close(ends[0]);
        report_fd = ends[1];
        boot_descriptors_isolate_files();
        randomness_forget();
        randomness_renew();
        learned_calls_watch();
        return true;
    }
    close(ends[1]);
    report_fd = ends[0];
    smart_str learned = {0};
    bool whole = pid > 0 && read_report(&learned);
    close(ends[0]);
    int status = 0;
    if (pid > 0) {
        if (!whole) {
            kill(pid, SIGKILL);
        }
        waitpid(pid, &status, 0);
    }
    if (!whole || status != 0) {
        log_line(LOG_WARNING, LOG_SOURCE_WORKER,
            "the warm-up request did not come to its end: the first use of each class is paid by "
            "every request");
    } else if (learned.s != NULL) {
        learn_all(ZSTR_VAL(learned.s), ZSTR_LEN(learned.s));
    }
    smart_str_free(&learned);
    return false;
}
