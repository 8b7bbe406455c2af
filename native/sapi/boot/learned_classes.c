/* See learned_classes.h. */
#include "sapi/boot/learned_classes.h"

#include "ext/compat.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zend_exceptions.h>

#include "sapi/boot/learned_loaders.h"

enum {
    MOST = 4096,
    MOST_TRIALS = 4,
};

/* --- the zygote, and the requests ------------------------------------------------------------------------------------------------------ */

/* A class that a learned one builds on. */
struct base {
    zend_string *name;
    zend_class_entry *class;
};

struct learned {
    zend_string *name;  /* as it was asked for */
    zend_string *file;  /* as it was included */
    zend_string *key;   /* of the class table */
    zend_string *place; /* its key until the class is whole: no name, so it is not listed */
    zend_class_entry *class;
    zend_string *included; /* the file among the included ones */
    struct base *bases;
    uint32_t base_count;
};

static struct learned *learned[MOST];
static size_t learned_count;
static HashTable ready; /* by name */

static zend_class_entry *(*autoload)(zend_string *name, zend_string *lc_name);

/* Takes the last entries out of a table. What they point to stays. */
static void take_out(HashTable *table, uint32_t from) {
    dtor_func_t destructor = table->pDestructor;
    table->pDestructor = NULL;
    while (table->nNumUsed > from) {
        zend_hash_del_bucket(table, &table->arData[table->nNumUsed - 1]);
    }
    table->pDestructor = destructor;
}

/* The class was not declared: nothing is left of the include. */
static void take_back(const struct learned *one) {
    zval *entry = zend_hash_find(EG(class_table), one->place);
    dtor_func_t destructor = EG(class_table)->pDestructor;
    EG(class_table)->pDestructor = NULL;
    if (entry != NULL) {
        zend_hash_del_bucket(EG(class_table), (Bucket *)entry);
    }
    EG(class_table)->pDestructor = destructor;
    zend_hash_del(&EG(included_files), one->included);
}

/* Declares a class as the include of its file would: its place in the class table is before those of the classes that it builds on. NULL: the
 * autoloaders have to do it. */
static zend_class_entry *declare(const struct learned *one) {
    if (zend_hash_add_empty_element(&EG(included_files), one->included) == NULL) {
        return NULL;
    }
    zend_hash_add_ptr(EG(class_table), one->place, one->class);
    for (uint32_t i = 0; i < one->base_count; i++) {
        if (zend_lookup_class(one->bases[i].name) != one->bases[i].class) {
            take_back(one);
            return NULL;
        }
    }
    zval *entry = zend_hash_find(EG(class_table), one->place);
    if (entry == NULL ||
        zend_hash_set_bucket_key(EG(class_table), (Bucket *)entry, one->key) == NULL) {
        take_back(one); /* one of the bases has brought a class of this name */
        return NULL;
    }
    return one->class;
}

static zend_class_entry *load(zend_string *name, zend_string *lc_name) {
    const struct learned *one = zend_hash_find_ptr(&ready, name);
    if (one != NULL && learned_loaders_are_same(name)) {
        zend_class_entry *class = declare(one);
        if (class != NULL || EG(exception) != NULL) {
            return class;
        }
    }
    return autoload(name, lc_name);
}

void learned_classes_begin(void) {
    if (autoload == NULL && zend_autoload != NULL) {
        learned_loaders_remember();
        zend_hash_init(&ready, 0, NULL, NULL, false);
        autoload = zend_autoload;
        zend_autoload = load;
    }
}

/* --- making them ready ----------------------------------------------------------------------------------------------------------------- */

bool learned_classes_only_declares(const zend_op_array *code) {
    for (uint32_t i = 0; i < code->last; i++) {
        const zend_op *op = &code->opcodes[i];
        switch (op->opcode) {
        case ZEND_NOP:
        case ZEND_EXT_NOP:
        case ZEND_EXT_STMT:
        case ZEND_DECLARE_CLASS:
        case ZEND_DECLARE_CLASS_DELAYED:
            break;
        case ZEND_RETURN: {
            const zval *value = op->op1_type == IS_CONST ? RT_CONSTANT(op, op->op1) : NULL;
            if (value == NULL || Z_TYPE_P(value) != IS_LONG || Z_LVAL_P(value) != 1) {
                return false;
            }
            break;
        }
        default:
            return false;
        }
    }
    return code->last_var == 0 && code->num_dynamic_func_defs == 0;
}

static void include(zend_string *file) {
    zend_op_array *code = compile_filename(ZEND_INCLUDE, file);
    if (code == NULL) {
        return;
    }
    if (learned_classes_only_declares(code)) {
        zend_execute_data *frame = EG(current_execute_data);
        zval result;
        ZVAL_UNDEF(&result);
        EG(current_execute_data) = NULL; /* none of its variables is this code's */
        zend_execute(code, &result);
        EG(current_execute_data) = frame;
        zval_ptr_dtor(&result);
    }
    zend_destroy_static_vars(code);
    destroy_op_array(code);
    efree_size(code, sizeof *code);
}

static void add_base(struct learned *one, zend_class_entry *class) {
    if (class != NULL && class->type == ZEND_USER_CLASS) {
        one->bases[one->base_count++] = (struct base){zend_string_copy(class->name), class};
    }
}

/* In the order in which zend_do_link_class() looks for them, Zend/zend_inheritance.c */
static void find_bases(struct learned *one) {
    const zend_class_entry *class = one->class;
    one->bases = ecalloc(1 + class->num_traits + class->num_interfaces, sizeof *one->bases);
    add_base(one, class->parent);
    for (uint32_t i = 0; i < class->num_traits; i++) {
        add_base(one, zend_hash_find_ptr(CG(class_table), class->trait_names[i].lc_name));
    }
    for (uint32_t i = 0; i < class->num_interfaces; i++) {
        add_base(one, class->interfaces[i]);
    }
}

/* Declares the class. False: its file does not do just that, and nothing is declared. */
static bool prepare(struct learned *one) {
    uint32_t classes = EG(class_table)->nNumUsed;
    uint32_t files = EG(included_files).nNumUsed;
    include(one->file);
    bool whole = EG(exception) == NULL && EG(class_table)->nNumUsed == classes + 1 &&
                 EG(included_files).nNumUsed == files + 1;
    if (EG(exception) != NULL) {
        zend_clear_exception();
    }
    if (whole) {
        const Bucket *entry = &EG(class_table)->arData[classes];
        const zend_class_entry *class = Z_PTR(entry->val);
        whole = Z_TYPE(entry->val) == IS_PTR && (class->ce_flags & ZEND_ACC_LINKED) != 0 &&
                zend_string_equals_ci(entry->key, one->name);
    }
    if (!whole) {
        take_out(EG(class_table), classes);
        take_out(&EG(included_files), files);
        return false;
    }
    one->key = zend_string_copy(EG(class_table)->arData[classes].key);
    one->place = zend_string_concat2(ZEND_STRL("\0"), ZSTR_VAL(one->key), ZSTR_LEN(one->key));
    one->class = Z_PTR(EG(class_table)->arData[classes].val);
    one->included = zend_string_copy(EG(included_files).arData[files].key);
    find_bases(one);
    return true;
}

/* Strings that name classes lead to them directly: the hidden ones must not be found by these. */
static void forget_names(const HashTable *hidden) {
    void **slots = (void **)((char *)CG(map_ptr_base) + 1);
    for (size_t i = 0; i < CG(map_ptr_last); i++) {
        if (slots[i] != NULL && zend_hash_index_exists(hidden, (zend_ulong)(uintptr_t)slots[i])) {
            slots[i] = NULL;
        }
    }
}

/* Some errors end a process instead of throwing, so another one tries it. Returns how many that has got through. */
static size_t try_all(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        zend_try {
            for (size_t i = 0; getppid() == parent && i < learned_count; i++) {
                prepare(learned[i]);
                if (write(ends[1], "", 1) != 1) {
                    break;
                }
            }
        }
        zend_end_try();
        _exit(0);
    }
    close(ends[1]);
    size_t through = 0;
    char bytes[256];
    ssize_t got;
    while (pid > 0 && (got = read(ends[0], bytes, sizeof bytes)) > 0) {
        through += (size_t)got;
    }
    close(ends[0]);
    if (pid > 0) {
        int status;
        waitpid(pid, &status, 0);
    }
    return through;
}

static void forget(size_t at) {
    zend_string_release(learned[at]->name);
    zend_string_release(learned[at]->file);
    efree(learned[at]);
    learned_count--;
    memmove(&learned[at], &learned[at + 1], (learned_count - at) * sizeof *learned);
}

/* False: there is one more error at each trial. */
static bool can_prepare(void) {
    for (int trials = 0; trials < MOST_TRIALS; trials++) {
        size_t through = try_all();
        if (through == learned_count) {
            return true;
        }
        forget(through);
    }
    return false;
}

static void prepare_all(void) {
    uint32_t classes = EG(class_table)->nNumUsed;
    uint32_t files = EG(included_files).nNumUsed;
    HashTable hidden;
    zend_hash_init(&hidden, 0, NULL, NULL, false);
    for (size_t i = 0; i < learned_count;) {
        struct learned *one = learned[i];
        if (prepare(one)) {
            zend_hash_index_add_empty_element(&hidden, (zend_ulong)(uintptr_t)one->class);
            zend_hash_update_ptr(&ready, one->name, one);
            i++;
        } else {
            forget(i);
        }
    }
    take_out(EG(class_table), classes);
    take_out(&EG(included_files), files);
    forget_names(&hidden);
    zend_hash_destroy(&hidden);
}

void learned_classes_prepare(void) {
    if (learned_count == 0) {
        return;
    }
    /* without holes, entries that are added are the last ones */
    zend_hash_rehash(EG(class_table));
    zend_hash_rehash(&EG(included_files));
    zend_class_entry *(*load_in_requests)(zend_string *, zend_string *) = zend_autoload;
    zend_autoload = NULL;
    /* a warning would call code of the application */
    zval handler;
    ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
    ZVAL_UNDEF(&EG(user_error_handler));
    int reporting = EG(error_reporting);
    EG(error_reporting) = 0;
    if (!can_prepare()) {
        learned_count = 0;
    }
    prepare_all();
    EG(error_reporting) = reporting;
    ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
    zend_autoload = load_in_requests;
}

size_t learned_classes_count(void) {
    return learned_count;
}

zend_string *learned_classes_file(size_t at) {
    return learned[at]->included;
}

void learned_classes_take(const char *bytes, size_t len) {
    size_t name = strnlen(bytes, len);
    if (name == len || learned_count == MOST) {
        return;
    }
    for (size_t i = 0; i < learned_count; i++) {
        if (ZSTR_LEN(learned[i]->name) == name &&
            memcmp(ZSTR_VAL(learned[i]->name), bytes, name) == 0) {
            return; /* by another warm-up */
        }
    }
    struct learned *one = ecalloc(1, sizeof *one);
    one->name = zend_string_init(bytes, name, false);
    one->file = zend_string_init(bytes + name + 1, len - name - 1, false);
    learned[learned_count++] = one;
}
