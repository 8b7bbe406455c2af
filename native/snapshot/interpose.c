/* Mappings, the loader, and children that may share memory. */
#include "snapshot/interpose.h"

#if SNAPSHOT_ENGINE

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pty.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wordexp.h>

/* --- libc's own ------------------------------------------------------------------------------------------------------------------------- */

void *interposed[INTERPOSED_COUNT];

static const char *const names[INTERPOSED_COUNT] = {
#define INTERPOSED_NAME(name) #name,
    INTERPOSED(INTERPOSED_NAME)
#undef INTERPOSED_NAME
};

void *interpose_find(enum interposed which) {
    void *found = dlsym(RTLD_NEXT, names[which]);
    if (found == NULL) {
        fprintf(stderr, "error: libc has no %s()\n", names[which]);
        abort();
    }
    interposed[which] = found;
    return found;
}

/* PHP loads extensions with RTLD_DEEPBIND: their calls would find libc before they find us. */
__attribute__((visibility("hidden"))) int interpose_dlopen_mask = -1;

void interpose_resolve(void) {
    interpose_dlopen_mask = ~RTLD_DEEPBIND;
    for (int which = 0; which < INTERPOSED_COUNT; which++) {
        interpose_find((enum interposed)which);
    }
}

/* dlopen() uses its return address to find its caller, and vfork() returns twice: both are jumped
 * to, not called. */
__attribute__((used, visibility("hidden"))) void *interpose_next_dlopen(void) {
    touch(TOUCHED_OPENED); /* and closed: by libc, so it cannot be seen which file */
    return (void *)NEXT(dlopen);
}
__attribute__((used, visibility("hidden"))) void *interpose_next_vfork(void) {
    touch(TOUCHED_CHILDREN);
    return (void *)NEXT(vfork);
}
#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl dlopen\n"
        ".type dlopen,@function\n"
        "dlopen:\n"
        "    push %rdi\n"
        "    push %rsi\n"
        "    sub $8, %rsp\n"
        "    call interpose_next_dlopen\n"
        "    add $8, %rsp\n"
        "    pop %rsi\n"
        "    pop %rdi\n"
        "    andl interpose_dlopen_mask(%rip), %esi\n"
        "    jmp *%rax\n"
        ".size dlopen, . - dlopen\n"
        ".p2align 4\n"
        ".globl vfork\n"
        ".type vfork,@function\n"
        "vfork:\n"
        "    sub $8, %rsp\n"
        "    call interpose_next_vfork\n"
        "    add $8, %rsp\n"
        "    jmp *%rax\n"
        ".size vfork, . - vfork\n");
#elif defined(__aarch64__)
/* `hint #34` is `bti c`; a jump by x16 may land on one. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl dlopen\n"
        ".type dlopen,@function\n"
        "dlopen:\n"
        "    hint #34\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl interpose_next_dlopen\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    adrp x9, interpose_dlopen_mask\n"
        "    ldr w9, [x9, :lo12:interpose_dlopen_mask]\n"
        "    and w1, w1, w9\n"
        "    br x16\n"
        ".size dlopen, . - dlopen\n"
        ".p2align 4\n"
        ".globl vfork\n"
        ".type vfork,@function\n"
        "vfork:\n"
        "    hint #34\n"
        "    stp x29, x30, [sp, #-16]!\n"
        "    bl interpose_next_vfork\n"
        "    mov x16, x0\n"
        "    ldp x29, x30, [sp], #16\n"
        "    br x16\n"
        ".size vfork, . - vfork\n");
#endif

/* --- mappings --------------------------------------------------------------------------------------------------------------------------- */

/* Another thread (or a signal handler) is changing it: compare all mappings instead. */
static bool lock_born(struct engine *e) {
    if (__atomic_exchange_n(&e->born_lock, 1, __ATOMIC_ACQUIRE) == 0) {
        return true;
    }
    touch(TOUCHED_MAPPINGS);
    return false;
}

static void unlock_born(struct engine *e) {
    __atomic_store_n(&e->born_lock, 0, __ATOMIC_RELEASE);
}

/* A mapping of the request, removed at its end if it still exists. */
static void add_born(uint64_t start, uint64_t len) {
    struct engine *e = engine;
    if (!lock_born(e)) {
        return;
    }
    if (e->born_count < BORN_MAX) {
        e->born[e->born_count++] = (struct range){start, PAGE_UP(start + len)};
        e->born_pages += PAGE_UP(len) / PAGE;
    } else {
        touch(TOUCHED_MAPPINGS);
    }
    unlock_born(e);
}

/* Returns whether [start, end) lies in a mapping of the request; removes it when it is the whole. */
static bool in_born(uint64_t start, uint64_t end, bool remove_whole) {
    struct engine *e = engine;
    bool found = false;
    if (!lock_born(e)) {
        return false;
    }
    for (uint32_t i = 0; i < e->born_count && !found; i++) {
        const struct range *range = &e->born[i];
        bool whole = start == range->start && end == range->end;
        if (start >= range->start && end <= range->end && (whole || !remove_whole)) {
            found = true;
            if (remove_whole) {
                e->born[i] = e->born[--e->born_count];
            }
        }
    }
    unlock_born(e);
    return found;
}

void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    struct engine *e = engine;
    if (e != NULL && flags == (MAP_PRIVATE | MAP_ANONYMOUS) &&
        protection == (PROT_READ | PROT_WRITE)) {
        void *memory;
        if (arena_map(address, len, __builtin_return_address(0), &memory)) {
            return memory;
        }
    }
    long r = raw(SYS_mmap, address, len, protection, flags, fd, offset);
    if (raw_failed(r)) {
        errno = (int)-r;
        return MAP_FAILED;
    }
    if (interpose_taken()) {
        if (flags & MAP_FIXED) {
            touch(TOUCHED_MAPPINGS);
        } else {
            add_born((uint64_t)r, len);
        }
    }
    return (void *)r;
}

void *mmap64(void *address, size_t len, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));

int munmap(void *address, size_t len) {
    if (engine != NULL && arena_unmap(address, len)) {
        return 0;
    }
    if (interpose_taken() && !in_born((uint64_t)address, PAGE_UP((uint64_t)address + len), true)) {
        touch(TOUCHED_MAPPINGS);
    }
    long r = raw(SYS_munmap, address, len);
    if (r < 0) {
        errno = (int)-r;
        return -1;
    }
    return 0;
}

/* freeze.c has split one mapping of the caller into several, and the kernel then refuses to move
 * them. */
static long remap_split(void *address, size_t old_len, size_t len, int flags) {
    uint64_t end = PAGE_UP((uint64_t)address + old_len);
    if ((flags & ~MREMAP_MAYMOVE) != 0 || len <= old_len ||
        !freeze_splits((uint64_t)address, end)) {
        return -EFAULT;
    }
    if (flags == 0) {
        return -ENOMEM; /* it cannot grow where it is */
    }
    long r = raw(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!raw_failed(r)) {
        memcpy((void *)r, address, old_len);
        raw(SYS_munmap, address, end - (uint64_t)address);
    }
    return r;
}

void *mremap(void *address, size_t old_len, size_t len, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target = flags & MREMAP_FIXED ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    void *memory;
    if (engine != NULL && arena_remap(address, old_len, len, &memory)) {
        if (memory == MAP_FAILED) {
            errno = ENOMEM;
        }
        return memory;
    }
    bool taken = interpose_taken();
    if (taken && (flags != MREMAP_MAYMOVE ||
                     !in_born((uint64_t)address, PAGE_UP((uint64_t)address + old_len), true))) {
        touch(TOUCHED_MAPPINGS);
        taken = false;
    }
    long r = raw(SYS_mremap, address, old_len, len, flags, target);
    if (r == -EFAULT && engine != NULL) {
        r = remap_split(address, old_len, len, flags);
    }
    if (taken) {
        add_born((uint64_t)(raw_failed(r) ? (long)address : r), raw_failed(r) ? old_len : len);
    }
    if (raw_failed(r)) {
        errno = (int)-r;
        return MAP_FAILED;
    }
    return (void *)r;
}

/* Returns whether some of [start, end) is memory of the boot that the snapshot does not contain,
 * because it could not be written. */
static bool touches_read_only(uint64_t start, uint64_t end) {
    const struct engine *e = engine;
    for (uint32_t i = 0; i < e->mapping_count; i++) {
        const struct mapping *mapping = &e->mappings[i];
        if (mapping->start < end && mapping->end > start && mapping->permissions[1] != 'w' &&
            mapping->permissions[3] == 'p') {
            return true;
        }
    }
    return false;
}

int mprotect(void *address, size_t len, int protection) {
    uint64_t start = (uint64_t)address;
    uint64_t end = PAGE_UP(start + len);
    long r = raw(SYS_mprotect, address, len, protection);
    if (interpose_taken() && !in_born(start, end, false)) {
        touch(TOUCHED_MAPPINGS);
        if (r == 0 && (protection & PROT_WRITE) && touches_read_only(start, end)) {
            snapshot_retire_later("the request made read-only memory of the boot writable");
        }
    }
    if (r < 0) {
        errno = (int)-r;
        return -1;
    }
    return 0;
}

static bool touches_region(uint64_t start, uint64_t end) {
    const struct engine *e = engine;
    for (uint32_t i = 0; i < e->region_count; i++) {
        if (e->regions[i].start < end && e->regions[i].end > start) {
            return true;
        }
    }
    return false;
}

/* What forks and core dumps get of memory: /proc/self/maps does not show it. Of the request's own mappings it ends with them. A call that fails may have
 * marked a part of the range. */
void interpose_advised(const void *address, size_t len, int advice) {
    bool marks = advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK ||
                 advice == MADV_DONTFORK || advice == MADV_DOFORK || advice == MADV_DONTDUMP ||
                 advice == MADV_DODUMP;
    uint64_t start = (uint64_t)address;
    if (marks && len != 0 && interpose_taken() &&
        maps_overlapping(start, PAGE_UP(start + len)) != NULL) {
        snapshot_retire_later(
            "the request changed what forks or core dumps get of the boot's memory");
    }
}

int madvise(void *address, size_t len, int advice) {
    enum { DONTNEED_LOCKED = 24, GUARD_INSTALL = 102 };
    uint64_t start = (uint64_t)address;
    uint64_t end = PAGE_UP(start + len);
    interpose_advised(address, len, advice);
    bool drops = advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE ||
                 advice == DONTNEED_LOCKED;
    if ((drops || advice == GUARD_INSTALL) && interpose_taken() && touches_region(start, end)) {
        struct engine *e = engine;
        uint32_t at = __atomic_fetch_add(&e->dropped_count, 1, __ATOMIC_RELAXED);
        if (at < DROPPED_MAX) {
            e->dropped[at] = (struct range){start, end};
        }
        if (advice == GUARD_INSTALL) {
            snapshot_retire_later("the request put guards into memory of the boot");
        }
    }
    long r = raw(SYS_madvise, address, len, advice);
    if (drops && engine != NULL) {
        if (advice == MADV_FREE && r == -EINVAL) {
            r = 0; /* refused for mappings of files; keeping the contents is allowed */
        } else if (r == 0 && advice != MADV_FREE &&
                   (!engine->taken || touches_region(start, end))) {
            freeze_zero(start, end);
        }
    }
    if (r < 0) {
        errno = (int)-r;
        return -1;
    }
    return 0;
}

/* It discards pages by calls that cannot be seen. A restore frees a request's allocations
 * anyway. */
int malloc_trim(size_t keep) {
    return interpose_taken() ? 0 : NEXT(malloc_trim)(keep);
}

static void locked(void) {
    if (interpose_taken()) {
        touch(TOUCHED_LOCKED);
    } else if (engine != NULL) {
        engine->boot_locked = true;
    }
}

int mlock(const void *address, size_t len) {
    locked();
    return NEXT(mlock)(address, len);
}

int mlock2(const void *address, size_t len, unsigned int flags) {
    locked();
    return NEXT(mlock2)(address, len, flags);
}

int munlock(const void *address, size_t len) {
    locked();
    return NEXT(munlock)(address, len);
}

int munlockall(void) {
    locked();
    return NEXT(munlockall)();
}

int mlockall(int flags) {
    locked();
    if (interpose_taken()) {
        snapshot_retire_later("the request locked all memory");
    }
    return NEXT(mlockall)(flags);
}

/* --- children ---------------------------------------------------------------------------------------------------------------------------- */

pid_t fork(void) {
    touch(TOUCHED_CHILDREN);
    return NEXT(fork)();
}

pid_t _Fork(void) {
    touch(TOUCHED_CHILDREN);
    return NEXT(_Fork)();
}

int forkpty(int *terminal, char *name, const struct termios *settings, const struct winsize *size) {
    touch(TOUCHED_CHILDREN);
    return NEXT(forkpty)(terminal, name, settings, size);
}

int wordexp(const char *restrict words, wordexp_t *restrict result, int flags) {
    touch(TOUCHED_CHILDREN);
    return NEXT(wordexp)(words, result, flags);
}

/* Calls whose child shares memory until it executes a program: the child's faults are not ours. */

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
    const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    touch(TOUCHED_CHILDREN);
    return NEXT(posix_spawn)(pid, path, actions, attributes, argv, envp);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
    const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    touch(TOUCHED_CHILDREN);
    return NEXT(posix_spawnp)(pid, file, actions, attributes, argv, envp);
}

FILE *popen(const char *command, const char *mode) {
    touch(TOUCHED_CHILDREN);
    return NEXT(popen)(command, mode);
}

int system(const char *command) {
    touch(TOUCHED_CHILDREN);
    if (engine != NULL) {
        /* These signals are ignored while it waits. */
        __atomic_fetch_or(
            &engine->touched_signals, 1ULL << SIGINT | 1ULL << SIGQUIT, __ATOMIC_RELAXED);
    }
    return NEXT(system)(command);
}

#endif
