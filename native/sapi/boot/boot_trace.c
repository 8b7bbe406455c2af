/* See boot_trace.h. Superglobals are seen by handlers of the opcodes that fetch them, calls by replaced functions of the engine's tables. */
#include "sapi/boot/boot_trace.h"

#include "ext/compat.h"

#include <ext/json/php_json.h>
#include <zend_smart_str.h>

#include "sapi/output/log.h"

enum {
    READS_MAX = 4096, /* different ones; more are only counted */
    NAME_MAX_LEN = 200,
};

struct hook {
    const struct trace_call *call;
    zend_internal_function *function; /* whose handler is replaced */
    zif_handler original;
};

static struct hook *hooks;
static size_t hook_count;
static bool traces;
static HashTable reads; /* key: all fields but the last; value: how often */
static zend_long left_out;
static zend_op_array *(*original_compile)(zend_file_handle *, int);

static const unsigned char fetches[] = {
    ZEND_FETCH_R, ZEND_FETCH_RW, ZEND_FETCH_IS, ZEND_FETCH_FUNC_ARG};
static user_opcode_handler_t fetch_handlers[sizeof fetches];

/* --- recording ------------------------------------------------------------------------------------------------------------------------- */

/* Code of others: Composer's packages, and those of Debian. */
static bool is_of_application(const char *file) {
    return strstr(file, "/vendor/") == NULL &&
           strncmp(file, "/usr/share/php", strlen("/usr/share/php")) != 0 && *file == '/';
}

static const zend_execute_data *frame_of_code(const zend_execute_data *frame) {
    while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->common.type))) {
        frame = frame->prev_execute_data;
    }
    return frame;
}

static const char *file_of(const zend_execute_data *frame) {
    return ZSTR_VAL(frame->func->op_array.filename);
}

static void add_field(smart_str *key, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        smart_str_appendc(key, text[i] == '\0' || text[i] == '\n' ? ' ' : text[i]);
    }
    smart_str_appendc(key, '\n');
}

static void add_place(smart_str *key, const zend_execute_data *frame) {
    if (frame == NULL) {
        add_field(key, "", 0);
        add_field(key, "0", 1);
        return;
    }
    char line[16];
    int len = snprintf(line, sizeof line, "%u", frame->opline != NULL ? frame->opline->lineno : 0);
    add_field(key, file_of(frame), strlen(file_of(frame)));
    add_field(key, line, (size_t)len);
}

void trace_record(const char *kind, const char *what, size_t what_len) {
    const zend_execute_data *frame = frame_of_code(EG(current_execute_data));
    if (frame == NULL) {
        return;
    }
    const zend_execute_data *caller = frame;
    while (caller != NULL && !is_of_application(file_of(caller))) {
        caller = frame_of_code(caller->prev_execute_data);
    }
    smart_str key = {0};
    add_field(&key, kind, strlen(kind));
    add_field(&key, what, what_len < NAME_MAX_LEN ? what_len : NAME_MAX_LEN);
    add_place(&key, frame);
    add_place(&key, caller != frame ? caller : NULL);
    smart_str_0(&key);
    zval *count = zend_hash_str_find(&reads, ZSTR_VAL(key.s), ZSTR_LEN(key.s));
    if (count != NULL) {
        Z_LVAL_P(count)++;
    } else if (zend_hash_num_elements(&reads) < READS_MAX) {
        zval one;
        ZVAL_LONG(&one, 1);
        zend_hash_str_add(&reads, ZSTR_VAL(key.s), ZSTR_LEN(key.s), &one);
    } else {
        left_out++;
    }
    smart_str_free(&key);
}

/* --- calls ----------------------------------------------------------------------------------------------------------------------------- */

/* A class of PHP code that inherits a method has a copy of the function, with the same name and scope. */
static const struct hook *hook_of(const zend_function *function) {
    for (size_t i = 0; i < hook_count; i++) {
        if (hooks[i].function->function_name == function->common.function_name &&
            hooks[i].function->scope == function->common.scope) {
            return &hooks[i];
        }
    }
    return NULL;
}

static ZEND_FUNCTION(traced) {
    const struct hook *hook = hook_of(EX(func));
    ZEND_ASSERT(hook != NULL);
    if (traces) {
        trace_record_call(hook->call, execute_data);
    }
    hook->original(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* Replaces a function's handler, unless that was done: an alias has the same structure. */
static void replace(const struct trace_call *call, zend_function *function) {
    if (function == NULL || function->type != ZEND_INTERNAL_FUNCTION ||
        function->internal_function.handler == ZEND_FN(traced)) {
        return; /* no such extension, or disabled */
    }
    zend_internal_function *internal = &function->internal_function;
    hooks = perealloc(hooks, (hook_count + 1) * sizeof *hooks, true);
    hooks[hook_count++] = (struct hook){call, internal, internal->handler};
    internal->handler = ZEND_FN(traced);
}

/* The engine's own classes that inherit a method have copies of it already. */
static void replace_method(const struct trace_call *call) {
    const zend_class_entry *base =
        zend_hash_str_find_ptr(CG(class_table), call->class, strlen(call->class));
    zend_class_entry *class;
    ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
        if (base == NULL || class->type != ZEND_INTERNAL_CLASS ||
            !instanceof_function(class, base)) {
            continue;
        }
        zend_function *method =
            zend_hash_str_find_ptr(&class->function_table, call->name, strlen(call->name));
        if (method != NULL && method->common.scope == base) {
            replace(call, method);
        }
    }
    ZEND_HASH_FOREACH_END();
}

static void replace_functions(void) {
    for (const struct trace_call *call = trace_calls; call->name != NULL; call++) {
        if (call->class != NULL) {
            replace_method(call);
        } else {
            replace(
                call, zend_hash_str_find_ptr(CG(function_table), call->name, strlen(call->name)));
        }
    }
}

/* --- superglobals ---------------------------------------------------------------------------------------------------------------------- */

static const char *kind_of_global(const zend_string *name) {
    static const char *const of_requests[] = {
        "_GET", "_POST", "_COOKIE", "_FILES", "_REQUEST", "_SERVER", "_SESSION"};
    for (size_t i = 0; i < sizeof of_requests / sizeof *of_requests; i++) {
        if (zend_string_equals_cstr(name, of_requests[i], strlen(of_requests[i]))) {
            return "request";
        }
    }
    return zend_string_equals_literal(name, "_ENV") ? "environment" : NULL;
}

/* Returns the key that the next instruction looks up in the array, if that is what it does and the key is known. */
static const zend_string *key_of(const zend_execute_data *frame, const zend_op *fetch) {
    const zend_op *next = fetch + 1;
    switch (next->opcode) {
    case ZEND_FETCH_DIM_R:
    case ZEND_FETCH_DIM_IS:
    case ZEND_FETCH_DIM_FUNC_ARG:
    case ZEND_ISSET_ISEMPTY_DIM_OBJ:
        break;
    default:
        return NULL;
    }
    if (!(next->op1_type & (IS_VAR | IS_TMP_VAR)) || next->op1.var != fetch->result.var) {
        return NULL;
    }
    const zval *key = NULL;
    if (next->op2_type == IS_CONST) {
        key = RT_CONSTANT(next, next->op2);
    } else if (next->op2_type == IS_CV) {
        key = ZEND_CALL_VAR(frame, next->op2.var);
        ZVAL_DEREF(key);
    }
    return key != NULL && Z_TYPE_P(key) == IS_STRING ? Z_STR_P(key) : NULL;
}

static int on_fetch(zend_execute_data *frame) {
    const zend_op *fetch = frame->opline;
    if (traces && fetch->op1_type == IS_CONST &&
        (fetch->extended_value & ZEND_FETCH_TYPE_MASK) == ZEND_FETCH_GLOBAL) {
        const zval *name = RT_CONSTANT(fetch, fetch->op1);
        const char *kind = Z_TYPE_P(name) == IS_STRING ? kind_of_global(Z_STR_P(name)) : NULL;
        if (kind != NULL) {
            const zend_string *key = key_of(frame, fetch);
            char what[NAME_MAX_LEN];
            int len = key != NULL ? snprintf(what, sizeof what, "$%s['%s']", Z_STRVAL_P(name),
                                        ZSTR_VAL(key))
                                  : snprintf(what, sizeof what, "$%s", Z_STRVAL_P(name));
            trace_record(kind, what, len < (int)sizeof what ? (size_t)len : sizeof what - 1);
        }
    }
    for (size_t i = 0; i < sizeof fetches; i++) {
        if (fetches[i] == fetch->opcode && fetch_handlers[i] != NULL) {
            return fetch_handlers[i](frame);
        }
    }
    return ZEND_USER_OPCODE_DISPATCH;
}

/* --- files that are included and have no name of PHP code ------------------------------------------------------------------------------- */

static bool has_name_of_code(const zend_string *path) {
    static const char *const ends[] = {
        ".php", ".inc", ".phtml", ".phar", ".php8", ".module", ".install", ".theme", ".engine"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t len = strlen(ends[i]);
        if (ZSTR_LEN(path) >= len &&
            strcasecmp(ZSTR_VAL(path) + ZSTR_LEN(path) - len, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static zend_op_array *on_compile(zend_file_handle *file, int type) {
    if (traces && file->filename != NULL && !has_name_of_code(file->filename)) {
        smart_str what = {0};
        smart_str_append_printf(&what, "include '%s'", ZSTR_VAL(file->filename));
        smart_str_0(&what);
        trace_record("file", ZSTR_VAL(what.s), ZSTR_LEN(what.s));
        smart_str_free(&what);
    }
    return original_compile(file, type);
}

/* --- from the boot's first line to its last ---------------------------------------------------------------------------------------------- */

void boot_trace_begin(void) {
    if (hooks != NULL) {
        return; /* a script that boots again is traced once */
    }
    zend_hash_init(&reads, 64, NULL, NULL, true);
    replace_functions();
    for (size_t i = 0; i < sizeof fetches; i++) {
        fetch_handlers[i] = zend_get_user_opcode_handler(fetches[i]);
        zend_set_user_opcode_handler(fetches[i], on_fetch);
    }
    original_compile = zend_compile_file;
    zend_compile_file = on_compile;
    traces = true;
}

/* Splits a key into its fields again. */
static void add_fields(zval *fields, const char *key) {
    static const char *const names[] = {"kind", "what", "file", "line", "caller", "caller_line"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strcspn(key, "\n");
        if (strstr(names[i], "line") != NULL) {
            add_assoc_long(fields, names[i], strtol(key, NULL, 10));
        } else {
            add_assoc_stringl(fields, names[i], key, len);
        }
        key += len + (key[len] == '\n');
    }
}

static void send_read(const char *key, zend_long count) {
    zval fields;
    array_init(&fields);
    add_fields(&fields, key);
    add_assoc_long(&fields, "count", count);
    smart_str json = {0};
    php_json_encode(&json, &fields,
        PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_UNESCAPED_UNICODE | PHP_JSON_INVALID_UTF8_SUBSTITUTE);
    smart_str_0(&json);
    if (json.s != NULL) {
        static const char message[] = "read by the boot";
        log_text(LOG_DEBUG, LOG_SOURCE_WORKER, message, sizeof message - 1, ZSTR_VAL(json.s),
            ZSTR_LEN(json.s));
    }
    smart_str_free(&json);
    zval_ptr_dtor(&fields);
}

void boot_trace_end(void) {
    if (!traces) {
        return;
    }
    traces = false;
    zend_compile_file = original_compile;
    for (size_t i = 0; i < hook_count; i++) {
        hooks[i].function->handler = hooks[i].original;
    }
    /* The opcodes' handlers stay: compiled code calls them. They pass on, as do copies of methods that classes have inherited. */
    zend_string *key;
    zval *count;
    ZEND_HASH_FOREACH_STR_KEY_VAL(&reads, key, count) {
        send_read(ZSTR_VAL(key), Z_LVAL_P(count));
    }
    ZEND_HASH_FOREACH_END();
    if (left_out > 0) {
        log_line(LOG_WARNING, LOG_SOURCE_WORKER,
            "the boot reads more than is reported: " ZEND_LONG_FMT " further reads", left_out);
    }
    zend_hash_destroy(&reads);
}
