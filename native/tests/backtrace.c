/* Tests the reading of a stack in every state of a running worker. The frames are in this
 * process's own memory. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <php.h>

#include "check.h"
#include "sapi/output/backtrace.h"

/* Symbols that the engine provides. */
zend_executor_globals executor_globals;
#undef vsnprintf
int ap_php_vsnprintf(char *to, size_t room, const char *format, va_list arguments) {
    return vsnprintf(to, room, format, arguments);
}

enum { LINE = 7 };

static zend_op opcodes[] = {{.lineno = LINE}};

/* Zeroed, until the end of the program. */
static void *take(size_t size) {
    static _Alignas(max_align_t) char memory[16 * 1024];
    static size_t taken;
    void *made = memory + taken;
    taken += (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (taken > sizeof memory) {
        abort();
    }
    return made;
}

static zend_string *text(const char *from) {
    size_t len = strlen(from);
    zend_string *made = take(_ZSTR_STRUCT_SIZE(len));
    made->len = len;
    memcpy(ZSTR_VAL(made), from, len);
    return made;
}

static zend_function *user(const char *name) {
    zend_function *made = take(sizeof *made);
    made->type = ZEND_USER_FUNCTION;
    made->op_array.function_name = name == NULL ? NULL : text(name);
    made->op_array.filename = text("/app/index.php");
    made->op_array.opcodes = opcodes;
    made->op_array.last = 1;
    return made;
}

static zend_function *internal(const char *name) {
    zend_function *made = take(sizeof *made);
    made->type = ZEND_INTERNAL_FUNCTION;
    made->internal_function.function_name = name == NULL ? NULL : text(name);
    return made;
}

static zend_execute_data frame(zend_function *function, uint32_t info, zend_execute_data *caller) {
    zend_execute_data made = {.func = function, .opline = opcodes, .prev_execute_data = caller};
    ZEND_CALL_INFO(&made) = info;
    return made;
}

static char stack[1024];
static const char *why;

static void read_from(zend_execute_data *innermost) {
    EG(current_execute_data) = innermost;
    size_t len = backtrace_of(getpid(), stack, sizeof stack - 1, &why);
    stack[len] = '\0';
}

static void check_told(const char *expected) {
    check(strcmp(stack, expected) == 0, stack);
    check(why[0] == '\0', why);
}

static void check_dropped(void) {
    check(stack[0] == '\0', stack);
    check(strcmp(why, "it runs too fast to be read") == 0, why);
}

static void a_stack_is_told_from_the_innermost_function_to_the_script(void) {
    zend_execute_data script = frame(user(NULL), ZEND_CALL_TOP_CODE, NULL);
    zend_execute_data file = frame(user(NULL), ZEND_CALL_NESTED_CODE, &script);
    zend_execute_data spin = frame(user("spin"), ZEND_CALL_NESTED_FUNCTION, &file);
    zend_execute_data call = frame(internal("usleep"), ZEND_CALL_NESTED_FUNCTION, &spin);
    read_from(&call);
    check_told("#0 usleep()\n#1 spin() at /app/index.php:7\n#2 include at /app/index.php:7\n"
               "#3 {main} at /app/index.php:7");
}

static void a_call_that_is_not_linked_to_its_caller_yet_is_no_stack(void) {
    zend_execute_data call = frame(internal("usleep"), ZEND_CALL_NESTED_FUNCTION, NULL);
    read_from(&call);
    check_dropped();
}

/* In outer(inner()) the frame of outer() is created first, and inner()'s points to it until
 * inner() is called. */
static void calls_in_the_making_are_no_callers(void) {
    zend_execute_data outer = frame(user("outer"), ZEND_CALL_NESTED_FUNCTION, NULL);
    zend_execute_data inner = frame(internal("inner"), ZEND_CALL_NESTED_FUNCTION, &outer);
    read_from(&inner);
    check_dropped();
}

static void a_function_that_the_engine_calls_needs_no_caller(void) {
    zend_execute_data destructor = frame(user("__destruct"), ZEND_CALL_TOP_FUNCTION, NULL);
    read_from(&destructor);
    check_told("#0 __destruct() at /app/index.php:7");
}

static void where_a_fiber_begins_no_function_is_told(void) {
    zend_execute_data script = frame(user(NULL), ZEND_CALL_TOP_CODE, NULL);
    zend_execute_data start = frame(internal("start"), ZEND_CALL_NESTED_FUNCTION, &script);
    zend_execute_data begin = frame(internal(NULL), 0, &start);
    zend_execute_data job = frame(user("job"), ZEND_CALL_TOP_FUNCTION, &begin);
    read_from(&job);
    check_told("#0 job() at /app/index.php:7\n#1 start()\n#2 {main} at /app/index.php:7");
}

static void no_frame_is_no_code(void) {
    read_from(NULL);
    check(stack[0] == '\0' && strcmp(why, "no PHP code runs") == 0, why);
}

static void memory_that_is_not_there_is_no_stack(void) {
    zend_execute_data lost =
        frame(user("lost"), ZEND_CALL_NESTED_FUNCTION, (zend_execute_data *)16);
    read_from(&lost);
    check_dropped();
    zend_execute_data wild = frame((zend_function *)16, ZEND_CALL_TOP_CODE, NULL);
    read_from(&wild);
    check_dropped();
}

int main(void) {
    RUN(a_stack_is_told_from_the_innermost_function_to_the_script);
    RUN(a_call_that_is_not_linked_to_its_caller_yet_is_no_stack);
    RUN(calls_in_the_making_are_no_callers);
    RUN(a_function_that_the_engine_calls_needs_no_caller);
    RUN(where_a_fiber_begins_no_function_is_told);
    RUN(no_frame_is_no_code);
    RUN(memory_that_is_not_there_is_no_stack);
    printf("backtrace: %d tests, %d failed\n", checked, failures);
    return failures > 0;
}
