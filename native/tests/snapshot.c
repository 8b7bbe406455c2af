/* The snapshot engine tried from outside: boots, damages, restores, and compares everything. No PHP.
 * usage: snapshot [PART OF A NAME]; QUICK=1 leaves out variants, PART=2/8 runs the
 * second eighth, SEED= repeats a run, TESTS_TIMES= multiplies time limits */
#include <errno.h>
#include <fenv.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "snapshot.h"

struct board *board;
static pid_t watched; /* the case's process */
static const char *only;
static unsigned cases, failed_cases;

void check(bool ok, const char *format, ...) {
    if (ok) {
        return;
    }
    char line[1024];
    int len = snprintf(line, sizeof line, "FAIL  %s, turn %u: ", board->name, board->turn);
    va_list arguments;
    va_start(arguments, format);
    len += vsnprintf(line + len, sizeof line - (size_t)len - 1, format, arguments);
    va_end(arguments);
    if (len > (int)sizeof line - 2) {
        len = (int)sizeof line - 2;
    }
    line[len++] = '\n';
    /* no stdio: this may be a case's process, and its buffers belong to the snapshot */
    if (write(STDOUT_FILENO, line, (size_t)len) < 0) {
        abort();
    }
    __atomic_add_fetch(&board->failures, 1, __ATOMIC_RELAXED);
}

void give_up(const char *what) {
    int error = errno;
    check(false, "%s: %s", what, strerror(error));
    _exit(1);
}

uint64_t random_number(void) {
    board->seed ^= board->seed >> 12;
    board->seed ^= board->seed << 25;
    board->seed ^= board->seed >> 27;
    return board->seed * 0x2545f4914f6cdd1d;
}

void pause_for(unsigned milliseconds) {
    struct timespec left = {
        .tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}

unsigned char *map_anonymous(size_t len, int protection, int flags) {
    void *at = mmap(NULL, len, protection, flags, -1, 0);
    if (at == MAP_FAILED) {
        give_up("mmap");
    }
    return at;
}

unsigned limit_of(unsigned seconds) {
    const char *times = getenv("TESTS_TIMES");
    return times != NULL ? seconds * (unsigned)atoi(times) : seconds;
}

#if defined(__x86_64__)
long raw(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#else
long raw(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#endif

/* Runs on the engine's stack just before the process ends. */
static void on_said(const char *what) {
    size_t i = 0;
    for (; what[i] != '\0' && i < sizeof board->last_said - 1; i++) {
        board->last_said[i] = what[i];
    }
    board->last_said[i] = '\0';
    board->said++;
}

/* What /proc does not show. */
static void read_kernel_state(struct kernel_state *state) {
    memset(state, 0, sizeof *state);
    for (int number = 1; number < 65; number++) {
        raw(SYS_rt_sigaction, number, 0, (long)&state->signals[number], 8, 0, 0);
    }
    stack_t alternate = {0};
    struct itimerval timer = {0};
    sigaltstack(NULL, &alternate);
    state->facts[0] = (long)alternate.ss_sp;
    state->facts[1] = (long)alternate.ss_size;
    for (int which = 0; which < 3; which++) {
        getitimer(which, &timer);
        state->facts[2 + which] = timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0;
    }
    state->facts[5] = prctl(PR_GET_DUMPABLE);
    state->facts[6] = prctl(PR_GET_KEEPCAPS);
    int value = 0;
    prctl(PR_GET_PDEATHSIG, &value);
    state->facts[7] = value;
    value = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &value);
    state->facts[8] = value;
    state->facts[9] = raw(SYS_ioprio_get, 1, 0, 0, 0, 0, 0);
    state->facts[10] = fegetround();
#if defined(__x86_64__)
    unsigned short control;
    __asm__("fnstcw %0" : "=m"(control));
    state->facts[11] = control;
    state->facts[12] = __builtin_ia32_stmxcsr() & 0xffc0; /* without the flags */
#else
    __asm__("mrs %0, fpcr" : "=r"(state->facts[11]));
#endif
}

/* malloc's free end, which the engine may treat as dead: it reads its header only. */
static void find_malloc_top(void) {
    uintptr_t end = (uintptr_t)sbrk(0);
    board->malloc_top = (struct snapshot_range){end - mallinfo2().keepcost + 64, end};
}

static void compare_kernel_state(void) {
    static const char *const names[] = {"alternate stack", "alternate stack's size", "ITIMER_REAL",
        "ITIMER_VIRTUAL", "ITIMER_PROF", "dumpable", "keepcaps", "signal at the parent's death",
        "subreaper", "ioprio", "rounding", "floating point control word", "mxcsr"};
    struct kernel_state now;
    read_kernel_state(&now);
    for (int number = 1; number < 65; number++) {
        check(memcmp(&now.signals[number], &board->at_boot.signals[number],
                  sizeof now.signals[number]) == 0,
            "disposition of signal %d", number);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check(now.facts[i] == board->at_boot.facts[i], "%s was %lx, is %lx", names[i],
            board->at_boot.facts[i], now.facts[i]);
    }
}

/* QUICK=1 is for the quick tests and for emulated processors: two variants of each case, and the long ones are shorter. */
bool is_quick(void) {
    const char *quick = getenv("QUICK");
    return quick != NULL && *quick == '1';
}

static unsigned turns_of(const struct test_case *c) {
    enum { LONG = 1000, VERY_LONG = 10000, SHORTER = 20 };
    unsigned turns = c->turns != 0 ? c->turns : DEFAULT_TURNS;
    bool is_long = turns >= ((c->flags & STEADY) != 0 ? VERY_LONG : LONG);
    return is_long && is_quick() ? turns / SHORTER : turns;
}

static const struct variant variants[] = {
    {.name = "default"},
    {.name = "strict", .options = {.strict = true}, .raw = true},
    {.name = "complete", .complete = true, .raw = true},
    {.name = "exact oracle", .options = {.exact = true, .oracle = true}, .exact_only = true},
    {.name = "checked", .options = {.check_every = 3, .verify = UINT32_MAX}, .exact_only = true},
    {.name = "shared oracle", .options = {.oracle = true}, .share = true},
};

/* Two damaged turns, then an undamaged one. The first three are undamaged, so that the engine
 * knows an ordinary turn's writes. */
static bool damages(unsigned turn) {
    return turn >= 3 && turn % 3 != 2;
}

static __attribute__((noinline)) _Noreturn void live(
    const struct test_case *c, const struct variant *variant) {
    struct snapshot_options options = variant->options;
    options.dead = board->excluded;
    options.dead_count = board->excluded_count;
    options.say = on_said;
    board->frame = (uintptr_t)__builtin_frame_address(0);
    errno = 77;

    bool taken = snapshot_take(&options);

    bool kept_errno = errno == 77;
    unsigned turn = board->turn;
    unsigned last = turns_of(c);
    bool seldom = (c->flags & SELDOM) != 0 && turn % 64 != 0 && turn != last;
    if (!seldom && (c->flags & UNSEEN) == 0) {
        raw(SYS_kill, board->pid, SIGSTOP, 0, 0, 0, 0); /* the inspector looks */
    }
    check(taken == (turn == 0), "snapshot_take() returns true once, then false");
    check(kept_errno, "errno");
    if (turn == 0) {
        read_kernel_state(&board->at_boot);
        find_malloc_top();
    }
    compare_kernel_state();
    if (c->verify != NULL) {
        c->verify();
    }
    if (turn == last) {
        snapshot_statistics(&board->statistics);
        _exit(0);
    }
    if (damages(turn)) {
        c->request(board->damaged++);
    }
    board->turn = turn + 1;
    snapshot_restore(variant->complete || board->complete);
}

/* A frame above live(): the inspector compares it. */
__attribute__((noinline)) void live_case(const struct test_case *c, const struct variant *variant) {
    board->pid = getpid();
    volatile unsigned char canary[3 * PAGE];
    for (size_t i = 0; i < sizeof canary; i++) {
        canary[i] = (unsigned char)(i * 7);
    }
    live(c, variant);
}

static void on_alarm(int number) {
    (void)number;
    kill(watched, SIGKILL);
}

void watch(pid_t pid, unsigned seconds) {
    watched = pid;
    alarm(limit_of(seconds));
}

void judge(const struct test_case *c, int status) {
    unsigned last = turns_of(c);
    unsigned turn = board->turn;
    if (WIFSIGNALED(status)) {
        check(false, "the process died by signal %d; the engine said: %s", WTERMSIG(status),
            board->last_said);
        return;
    }
    int code = WEXITSTATUS(status);
    if (code == SNAPSHOT_EXIT_RETIRED) {
        check(c->outcome != EXACT, "retired: %s", board->last_said);
        check(board->said == 1 && board->last_said[0] != '\0',
            "a process that retires says why, once: %u times", board->said);
        /* a case that may retire may do so at a later check, as long as nothing differs until
         * then */
        check(board->damaged > 0, "an undamaged turn ended in retirement: %s", board->last_said);
        check(c->outcome != RETIRES || board->damaged == 1, "retired only after %u damaged turns",
            board->damaged);
    } else {
        check(code == 0, "exit status %d", code);
        check(code != 0 || turn == last, "ended early");
        check(c->outcome != RETIRES, "was restored, and should have retired");
        check(board->said == 0, "the engine said: %s", board->last_said);
    }
}

/* The resources of the process must not grow from turn 512 on. */
static void watch_sizes(struct size_facts *first) {
    if (board->turn < 512) {
        return;
    }
    struct size_facts now = inspector_sizes();
    if (first->mappings == 0) {
        *first = now;
    }
    check(now.mappings == first->mappings && now.descriptors == first->descriptors &&
              now.virtual_pages == first->virtual_pages,
        "mappings %lu, %lu, descriptors %lu, %lu, address space %lu, %lu", first->mappings,
        now.mappings, first->descriptors, now.descriptors, first->virtual_pages, now.virtual_pages);
    check(now.resident_pages < first->resident_pages + 256, "resident pages %lu, %lu",
        first->resident_pages, now.resident_pages);
}

void count_case(uint32_t failures_before) {
    cases++;
    failed_cases += board->failures != failures_before;
}

void share_scenery(void) {
    const char *why;
    bool shared = snapshot_share(NULL, 0, &why);
    check(shared, "nothing is shared: %s", why);
}

void clear_board(const char *name, const char *variant) {
    uint32_t failures = board->failures;
    uint64_t seed = board->seed;
    memset(board, 0, offsetof(struct board, scratch));
    memset(board->scratch, 0, 65536);
    board->failures = failures;
    board->seed = seed;
    snprintf(board->name, sizeof board->name, "%s (%s)", name, variant);
    board->variant = variant;
    fflush(stdout);
}

void run_variant(const struct test_case *c, const struct variant *variant) {
    uint32_t failures = board->failures;
    clear_board(c->name, variant->name);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        build_scenery();
        if (variant->share) {
            share_scenery();
        }
        if (c->boot != NULL) {
            c->boot();
        }
        live_case(c, variant);
    }
    struct size_facts sizes = {0};
    watch(pid, (c->prepare != NULL ? 240 : 60) + turns_of(c) / 50);
    int status;
    while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == SIGSTOP) {
            if (board->turn == 0) {
                inspector_baseline(pid);
            } else {
                inspector_compare();
            }
            if ((c->flags & STEADY) != 0) {
                watch_sizes(&sizes);
            }
        }
        kill(pid, SIGCONT);
    }
    alarm(0);
    inspector_close();
    judge(c, status);
    count_case(failures);
}

/* Linux 6.1 does not: statm lags behind by some pages for each processor. */
static bool counts_resident_pages(void) {
    enum { TOUCHED = 5 };
    volatile unsigned char *memory =
        mmap(NULL, TOUCHED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long size, before, now;
    bool exact = memory != MAP_FAILED;
    FILE *statm = fopen("/proc/self/statm", "re");
    setvbuf(statm, NULL, _IONBF, 0);
    exact = fscanf(statm, "%lu %lu", &size, &before) == 2 && exact;
    for (unsigned long page = 0; exact && page < TOUCHED; page++) {
        memory[page * PAGE] = 1;
        rewind(statm);
        exact = fscanf(statm, "%lu %lu", &size, &now) == 2 && now == before + page + 1;
    }
    fclose(statm);
    return exact;
}

/* Returns whether a case is promised only by variants that check everything. */
static bool is_raw(const struct test_case *c) {
    static int exact = -1;
    if (exact < 0) {
        exact = counts_resident_pages();
    }
    return (c->flags & RAW) != 0 || ((c->flags & COUNTED) != 0 && exact == 0);
}

/* Returns whether the next case belongs to the selected part. */
static bool is_in_part(void) {
    static unsigned next;
    unsigned part = 1;
    unsigned parts = 1;
    const char *wanted = getenv("PART");
    if (wanted != NULL && sscanf(wanted, "%u/%u", &part, &parts) != 2) {
        part = parts = 1;
    }
    return next++ % parts == part - 1;
}

static void run_variants(const struct test_case *c) {
    if ((c->flags & STEADY) != 0) {
        run_variant(c, &variants[0]);
        return;
    }
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const struct variant *variant = &variants[i];
        bool needed = i == 0 || variant->share || (is_raw(c) && variant->complete);
        if (is_quick() && !needed) {
            continue;
        }
        if ((variant->raw || !is_raw(c)) && (variant->complete || (c->flags & CHECKED) == 0) &&
            (c->outcome == EXACT || !variant->exact_only)) {
            run_variant(c, variant);
        }
    }
}

void run_case(const struct test_case *c) {
    if (!is_in_part() || (only != NULL && strstr(c->name, only) == NULL) ||
        ((c->flags & AS_ROOT) != 0 && geteuid() != 0)) {
        return;
    }
    const char *why = c->prepare != NULL ? c->prepare() : NULL;
    if (why != NULL) {
        printf("snapshot: left out: %s: %s\n", c->name, why);
        return;
    }
    run_variants(c);
    if (c->undo != NULL) {
        c->undo();
    }
}

static int end(void) {
    printf("snapshot: %u cases, %u failed\n", cases, failed_cases);
    return failed_cases == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    int code = helper_before(argv);
    if (code >= 0) {
        return code;
    }
    snapshot_arrange(argv);
    code = helper_after(argv);
    if (code >= 0) {
        return code;
    }
    only = argc >= 2 && *argv[1] != 0 ? argv[1] : NULL;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *seed = getenv("SEED");
    board->seed = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("snapshot: seed %llu (repeat with SEED=)\n", (unsigned long long)board->seed);
    signal(SIGALRM, on_alarm);
    if (is_in_part() && (only == NULL || strcmp(only, "arrangement") == 0)) {
        test_arrangement();
    }
    const char *why;
    if (!snapshot_probe(&why)) {
        printf("snapshot: this machine cannot take snapshots, no case was run: %s\n", why);
        return end();
    }
    inspector_prepare();
    const struct case_list *const lists[] = {&memory_cases, &arena_cases, &mapping_cases,
        &fixed_cases, &process_cases, &descriptor_cases, &lock_cases, &attribute_cases,
        &library_cases, &outside_cases, &machine_cases, &limit_cases, &tracer_cases, &life_cases};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (size_t k = 0; k < lists[i]->count; k++) {
            run_case(&lists[i]->cases[k]);
        }
    }
    if (is_in_part() && (only == NULL || strcmp(only, "zygote") == 0)) {
        test_zygote();
    }
    if (is_in_part() && (only == NULL || strcmp(only, "faults") == 0)) {
        test_faults();
    }
    if (is_in_part() && (only == NULL || strcmp(only, "soak") == 0)) {
        test_soak(lists, sizeof lists / sizeof lists[0]);
    }
    return end();
}
