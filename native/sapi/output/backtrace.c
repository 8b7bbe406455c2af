/* See backtrace.h. */
#include "sapi/output/backtrace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include <php.h>

enum {
    TRIES = 5,
    PAUSE_NS =
        1000 * 1000,     /* between two tries: a worker stopped in the middle of a call goes on */
    FRAMES = 50,         /* shown */
    LONGEST_CHAIN = 400, /* followed: some frames are the engine's own */
    LONGEST_NAME = 200,
    LONGEST_FILE = 500,
};

struct reader {
    pid_t pid;
    int error; /* of the last look that failed */
    char *to;
    size_t room, len;
};

/* The worker's memory at the same address. Borrowed: from, of the other process. */
static bool look(struct reader *r, void *to, const void *from, size_t len) {
    struct iovec here = {.iov_base = to, .iov_len = len};
    struct iovec there = {.iov_base = (void *)from, .iov_len = len};
    ssize_t got = process_vm_readv(r->pid, &here, 1, &there, 1, 0);
    if (got == (ssize_t)len) {
        return true;
    }
    r->error = got < 0 ? errno : EFAULT;
    return false;
}

static __attribute__((format(printf, 2, 3))) void put(struct reader *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(r->to + r->len, r->room - r->len, format, arguments);
    va_end(arguments);
    if (len > 0) {
        r->len += (size_t)len < r->room - r->len ? (size_t)len : r->room - r->len - 1;
    }
}

/* A zend_string of the worker as text for a log: cut, without control characters. Borrowed: to, of `longest` + 1 bytes. */
static bool read_string(struct reader *r, const zend_string *from, char *to, size_t longest) {
    zend_string head;
    if (from == NULL || !look(r, &head, from, offsetof(zend_string, val))) {
        return false;
    }
    size_t len = head.len;
    if (len == 0 || len > 1 << 20) {
        return false;
    }
    len = len < longest ? len : longest;
    if (!look(r, to, (const char *)from + offsetof(zend_string, val), len)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)to[i] < 0x20 || to[i] == 0x7f) {
            /* an anonymous class's name goes on behind a NUL with the place of its declaration */
            if (to[i] == '\0' && i > 0) {
                len = i;
                break;
            }
            to[i] = '?';
        }
    }
    to[len] = '\0';
    return true;
}

static bool put_name(struct reader *r, const zend_execute_data *frame,
    const zend_op_array *function, bool outermost) {
    char text[LONGEST_NAME + 1];
    if (function->function_name == NULL) {
        put(r, outermost ? "{main}" : "include");
        return true;
    }
    if (function->scope != NULL) {
        const char *scope = (const char *)function->scope + offsetof(zend_class_entry, name);
        const zend_string *name;
        if (!look(r, &name, scope, sizeof name) || !read_string(r, name, text, LONGEST_NAME)) {
            return false;
        }
        put(r, "%s%s", text, Z_TYPE(frame->This) == IS_OBJECT ? "->" : "::");
    }
    if (!read_string(r, function->function_name, text, LONGEST_NAME)) {
        return false;
    }
    put(r, "%s()", text);
    return true;
}

/* The current line; the function's first line if the engine executes an internal instruction. */
static bool put_place(
    struct reader *r, const zend_execute_data *frame, const zend_op_array *function) {
    char file[LONGEST_FILE + 1];
    uint32_t line = function->line_start;
    if (!read_string(r, function->filename, file, LONGEST_FILE)) {
        return false;
    }
    if (frame->opline >= function->opcodes && frame->opline < function->opcodes + function->last) {
        const char *at = (const char *)frame->opline + offsetof(zend_op, lineno);
        if (!look(r, &line, at, sizeof line)) {
            return false;
        }
    }
    put(r, " at %s:%u", file, line);
    return true;
}

/* Appends the line of one frame; none for frames that are not of a function. */
static bool put_frame(struct reader *r, const zend_execute_data *frame, unsigned *number) {
    zend_op_array function = {0};
    if (frame->func == NULL) {
        return true; /* zend_call_function(), generators: in between */
    }
    /* what functions of both kinds begin with */
    if (!look(r, &function, frame->func, sizeof function.type)) {
        return false;
    }
    bool user = ZEND_USER_CODE(function.type);
    if (!user && function.type != ZEND_INTERNAL_FUNCTION) {
        return false;
    }
    if (!look(r, &function, frame->func, user ? sizeof function : sizeof(zend_internal_function))) {
        return false;
    }
    if (!user && function.function_name == NULL) {
        return true; /* where a fiber begins */
    }
    put(r, "%s#%u ", *number > 0 ? "\n" : "", *number);
    ++*number;
    return put_name(r, frame, &function, frame->prev_execute_data == NULL) &&
           (!user || put_place(r, frame, &function));
}

/* Returns whether the engine itself called this function, so that it needs no caller. The others
 * are called by PHP code. If one of them has no caller, it was read before ZEND_DO_FCALL linked it
 * (Zend/zend_vm_def.h). */
static bool may_be_outermost(const zend_execute_data *frame) {
    return frame->func == NULL || (ZEND_CALL_INFO(frame) & ZEND_CALL_TOP) != 0;
}

/* Walks the stack once. False: the data are not a stack. */
static bool walk(struct reader *r, bool *cut) {
    const zend_execute_data *at;
    bool whole = true;
    unsigned number = 0;
    r->len = 0;
    *cut = false;
    if (!look(r, &at, &EG(current_execute_data), sizeof at)) {
        return false;
    }
    for (unsigned i = 0; at != NULL; i++) {
        zend_execute_data frame;
        if (number == FRAMES || i == LONGEST_CHAIN) {
            *cut = true;
            return true;
        }
        if (!look(r, &frame, at, sizeof frame) || !put_frame(r, &frame, &number)) {
            return false;
        }
        at = frame.prev_execute_data;
        whole = may_be_outermost(&frame);
    }
    return whole;
}

size_t backtrace_of(pid_t pid, char *to, size_t room, const char **why) {
    struct reader r = {.pid = pid, .to = to, .room = room};
    bool cut;
    for (int i = 0; i < TRIES; i++) {
        if (i > 0) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
        r.error = 0;
        if (walk(&r, &cut)) {
            *why = r.len == 0 ? "no PHP code runs" : cut ? "the rest is left out" : "";
            return r.len;
        }
        if (r.error == EPERM || r.error == ENOSYS) {
            *why = "this system does not let a process read another's memory (process_vm_readv)";
            return 0;
        }
        if (r.error == ESRCH) {
            *why = "it has ended";
            return 0;
        }
    }
    *why = "it runs too fast to be read";
    return 0;
}
