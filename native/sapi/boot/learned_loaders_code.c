/* See learned_loaders_code.h. */
#include "sapi/boot/learned_loaders_code.h"

#include <string.h>

#include "sapi/compat.h"

/* Whether a function's result depends on its arguments and on files only. */
static bool is_plain_function(const zend_function *function) {
    static const char *const plain[] = {"file_exists", "is_file", "is_readable", "ltrim",
        "str_replace", "str_starts_with", "strlen", "strncmp", "strpos", "strrpos", "strtolower",
        "strtr", "substr", "trim"};
    if (function == NULL || function->type != ZEND_INTERNAL_FUNCTION) {
        return false;
    }
    const zend_string *name = function->common.function_name;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (zend_string_equals_cstr(name, plain[i], strlen(plain[i]))) {
            return true;
        }
    }
    return false;
}

/* The bound value of a `static` or `use` variable. */
static const zval *bound_value(const zend_op_array *code, const zend_op *op) {
    const HashTable *values = ZEND_MAP_PTR_GET(code->static_variables_ptr);
    if (values == NULL) {
        values = code->static_variables;
    }
    uint32_t offset =
        op->extended_value & ~(ZEND_BIND_REF | ZEND_BIND_IMPLICIT | ZEND_BIND_EXPLICIT);
    const zval *value = (const zval *)((const char *)values->arData + offset);
    ZVAL_DEREF(value);
    return value;
}

/* `static $bound; if ($bound === null) { $bound = literal; }`: behind this the value is the literal. */
static bool assigns_once(const zend_op *bind, const zend_op *assign) {
    const zend_op *test = bind + 1;
    const zend_op *jump = bind + 2;
    return assign == bind + 3 && assign->op2_type == IS_CONST && jump->opcode == ZEND_JMPZ &&
           OP_JMP_ADDR(jump, jump->op2) == assign + 1 && test->opcode == ZEND_TYPE_CHECK &&
           test->extended_value == (1 << IS_NULL) && test->op1_type == IS_CV &&
           test->op1.var == bind->op1.var && jump->op1_type == IS_TMP_VAR &&
           (test->result_type & IS_TMP_VAR) != 0 && jump->op1.var == test->result.var;
}

/* Whether a bound variable has one value: `use` takes texts and numbers, `static` is assigned a literal at most. */
static bool binds_plain_value(const zend_op_array *code, const zend_op *bind) {
    const zval *value = bound_value(code, bind);
    if ((bind->extended_value & ZEND_BIND_REF) == 0) {
        return Z_TYPE_P(value) <= IS_STRING;
    }
    if ((bind->extended_value & ZEND_BIND_EXPLICIT) != 0) {
        return false; /* use (&$variable) */
    }
    for (uint32_t i = 0; i < code->last; i++) {
        const zend_op *op = &code->opcodes[i];
        if (op->opcode == ZEND_ASSIGN && op->op1_type == IS_CV && op->op1.var == bind->op1.var) {
            if (!assigns_once(bind, op)) {
                return false;
            }
        }
    }
    return Z_TYPE_P(value) <= IS_ARRAY;
}

static bool is_plain(const zend_op_array *code, const zend_op *op) {
    switch (op->opcode) {
    case ZEND_NOP:
    case ZEND_EXT_NOP:
    case ZEND_EXT_STMT:
    case ZEND_EXT_FCALL_BEGIN:
    case ZEND_EXT_FCALL_END:
    case ZEND_RECV:
    case ZEND_QM_ASSIGN:
    case ZEND_TYPE_CHECK:
    case ZEND_IS_IDENTICAL:
    case ZEND_IS_NOT_IDENTICAL:
    case ZEND_IS_EQUAL:
    case ZEND_IS_NOT_EQUAL:
    case ZEND_BOOL:
    case ZEND_BOOL_NOT:
    case ZEND_JMP:
    case ZEND_JMPZ:
    case ZEND_JMPNZ:
    case ZEND_JMPZ_EX:
    case ZEND_JMPNZ_EX:
    case ZEND_ISSET_ISEMPTY_DIM_OBJ:
    case ZEND_FETCH_DIM_R:
    case ZEND_CONCAT:
    case ZEND_FAST_CONCAT:
    case ZEND_ROPE_INIT:
    case ZEND_ROPE_ADD:
    case ZEND_ROPE_END:
    case ZEND_STRLEN:
    case ZEND_ADD:
    case ZEND_SUB:
    case ZEND_SEND_VAL:
    case ZEND_SEND_VAR:
    case ZEND_DO_ICALL:
    case ZEND_OP_DATA:
    case ZEND_FREE:
    case ZEND_RETURN:
        return true;
    case ZEND_ASSIGN:
        return op->op1_type == IS_CV;
    case ZEND_BIND_STATIC:
        return binds_plain_value(code, op);
    case ZEND_INIT_FCALL:
        return is_plain_function(
            zend_hash_find_ptr(CG(function_table), Z_STR_P(RT_CONSTANT(op, op->op2))));
    case ZEND_INCLUDE_OR_EVAL:
        return op->extended_value != ZEND_EVAL;
    default:
        return is_plain_function(compat_frameless_function(op));
    }
}

bool loader_code_is_plain(const zend_op_array *code) {
    if (code->num_args != 1 || (code->fn_flags & (ZEND_ACC_RETURN_REFERENCE | ZEND_ACC_GENERATOR |
                                                     ZEND_ACC_VARIADIC)) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < code->last; i++) {
        if (!is_plain(code, &code->opcodes[i])) {
            return false;
        }
    }
    return true;
}
