/* See rehearsal.h. */
#include "sapi/boot/rehearsal.h"

#include "ext/compat.h"

#include <fcntl.h>
#include <php.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zend_exceptions.h>
#include <zend_smart_str.h>

#include "sapi/boot/randomness.h"
#include "sapi/output/log.h"

enum { PATIENCE_S = 10 };

static int report_fd;
static uint32_t boot_classes; /* entries of the class table that the boot has used */

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

void rehearsal_end(void) {
    /* in the order of their declaration: parents come before their children */
    for (uint32_t i = boot_classes; i < CG(class_table)->nNumUsed; i++) {
        const Bucket *entry = &CG(class_table)->arData[i];
        if (Z_TYPE(entry->val) != IS_PTR || entry->key == NULL || ZSTR_VAL(entry->key)[0] == '\0') {
            continue; /* an alias, a class without a name, or one that is only prepared */
        }
        const zend_class_entry *class = Z_PTR(entry->val);
        if (class->type == ZEND_USER_CLASS && (class->ce_flags & ZEND_ACC_ANON_CLASS) == 0 &&
            !(write_all(ZSTR_VAL(class->name), ZSTR_LEN(class->name)) && write_all("\n", 1))) {
            break;
        }
    }
    _exit(0);
}

/* Reads to the end of the report. False when that did not come in time. */
static bool read_report(smart_str *names) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        long left = PATIENCE_S - (now.tv_sec - start.tv_sec);
        struct pollfd wait = {.fd = report_fd, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)left * 1000) <= 0) {
            return false;
        }
        char bytes[65536];
        ssize_t got = read(report_fd, bytes, sizeof bytes);
        if (got <= 0) {
            return got == 0;
        }
        smart_str_appendl(names, bytes, (size_t)got);
    }
}

static unsigned load_classes(const char *names) {
    unsigned loaded = 0;
    const char *end;
    for (; (end = strchr(names, '\n')) != NULL; names = end + 1) {
        zend_string *name = zend_string_init(names, (size_t)(end - names), 0);
        if (zend_lookup_class(name) != NULL) {
            loaded++;
        }
        if (EG(exception) != NULL) {
            zend_clear_exception();
        }
        zend_string_release(name);
    }
    return loaded;
}

bool rehearsal_begin(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    boot_classes = CG(class_table)->nNumUsed;
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
        randomness_renew();
        return true;
    }
    close(ends[1]);
    report_fd = ends[0];
    smart_str names = {0};
    bool whole = pid > 0 && read_report(&names);
    close(ends[0]);
    int status = 0;
    if (pid > 0) {
        if (!whole) {
            kill(pid, SIGKILL);
        }
        waitpid(pid, &status, 0);
    }
    smart_str_0(&names);
    if (!whole || status != 0) {
        log_line(LOG_WARNING, LOG_SOURCE_WORKER,
            "the warm-up request did not come to its end: the first use of each class is paid by "
            "every request");
    } else if (names.s != NULL) {
        load_classes(ZSTR_VAL(names.s));
    }
    smart_str_free(&names);
    return false;
}
