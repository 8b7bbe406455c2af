/* Tests how a process becomes able to take snapshots: arranged, probed, forked from a zygote. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

extern char **environ;
extern const unsigned int __rseq_size __attribute__((weak));

/* --- the program as a child of test_arrangement() --- */

static int probe(void) {
    const char *why;
    bool works = snapshot_probe(&why);
    printf("%s|%s", works ? "file" : "none", why);
    return 0;
}

/* Kept memory in a process that is not arranged. */
static int keep(void) {
    unsigned char *first = snapshot_keep(1), *second = snapshot_keep(10 << 20);
    bool fine =
        (uintptr_t)first % 64 == 0 && (uintptr_t)second % 64 == 0 && first != second && *first == 0;
    *first = 1;
    for (size_t i = 0; i < 10 << 20; i++) {
        fine = fine && second[i] == 0;
        second[i] = 2;
    }
    printf("%s", fine && *first == 1 ? "kept" : "not kept");
    return 0;
}

/* Arguments and environment, each with its NUL. */
static int show(char **argv) {
    for (; *argv != NULL; argv++) {
        fwrite(*argv, 1, strlen(*argv) + 1, stdout);
    }
    putchar('\n');
    for (char **entry = environ; *entry != NULL; entry++) {
        fwrite(*entry, 1, strlen(*entry) + 1, stdout);
    }
    return 0;
}

static int facts(void) {
    /* no page of the loader's table is left to be filled: with lazy binding that would be a write in a request */
    void *small = malloc(10), *large = malloc(64 << 20);
    printf("rseq %d, huge pages %s, malloc %s, descriptor 9 %s",
        &__rseq_size != NULL ? (int)__rseq_size : 0,
        prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 ? "off" : "on",
        (char *)large > (char *)small && (char *)large < (char *)sbrk(0) ? "by brk" : "by mmap",
        fcntl(9, F_GETFD) >= 0 ? "open" : "closed");
    return 0;
}

static void say(const char *what) {
    if (write(STDOUT_FILENO, what, strlen(what)) < 0) {
        abort();
    }
}
static int take(void) {
    struct snapshot_options options = {.say = say};
    snapshot_take(&options);
    say("taken");
    return 0;
}
/* /proc/self belongs to root if a process itself gave up root: then there may be no snapshot, but
 * never a crash. */
static int take_after_setuid(void) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
        return 1;
    }
    return take();
}
static int retire_silently(void) {
    struct snapshot_options options = {0};
    if (snapshot_take(&options)) {
        snapshot_retire_later("a reason that is not reported");
        snapshot_restore(false);
    }
    return 0;
}

int helper_before(char **argv) {
    const char *helper = argv[0] != NULL && argv[1] != NULL ? argv[1] : "";
    return strcmp(helper, "--probe") == 0 ? probe() : strcmp(helper, "--keep") == 0 ? keep() : -1;
}

int helper_after(char **argv) {
    const char *helper = argv[0] != NULL && argv[1] != NULL ? argv[1] : "";
    if (strcmp(helper, "--nested") == 0) {
        argv[1] = "--show";
        execv("/proc/self/exe", argv);
        return 1;
    }
    return strcmp(helper, "--show") == 0                ? show(argv)
           : strcmp(helper, "--facts") == 0             ? facts()
           : strcmp(helper, "--take") == 0              ? take()
           : strcmp(helper, "--take-after-setuid") == 0 ? take_after_setuid()
           : strcmp(helper, "--retire-silently") == 0   ? retire_silently()
           : strncmp(helper, "--refused-", 10) == 0     ? take_refused(helper + 10)
                                                        : -1;
}

/* --- the tests --- */

struct output {
    int status;
    size_t len;
    char bytes[65536];
};

/* Executes this program. A loop of executions ends by SIGALRM. */
static uid_t user; /* who executes it; 0: who runs the tests */

static struct output *execute(char *const argv[], char *const envp[]) {
    static struct output output;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        give_up("pipe");
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(STDERR_FILENO, 9);
        signal(SIGALRM, SIG_DFL);
        alarm(limit_of(240)); /* ends one that hangs; a busy machine needs more than 60 */
        if (user != 0 && (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)) {
            _exit(126);
        }
        execve("/proc/self/exe", argv, envp);
        _exit(127);
    }
    close(ends[1]);
    memset(&output, 0, sizeof output);
    ssize_t got;
    while ((got = read(ends[0], output.bytes + output.len, sizeof output.bytes - 1 - output.len)) >
           0) {
        output.len += (size_t)got;
    }
    close(ends[0]);
    waitpid(pid, &output.status, 0);
    return &output;
}

static void begin(const char *name, uint32_t *failures) {
    *failures = board->failures;
    board->turn = 0;
    snprintf(board->name, sizeof board->name, "%s", name);
}

static size_t put(char *to, size_t len, const char *text) {
    strcpy(to + len, text);
    return len + strlen(text) + 1;
}

static void compare_environment(
    const char *name, const char *helper, char *const more[], char *const envp[]) {
    uint32_t failures;
    begin(name, &failures);
    char *argv[16] = {"a program's name that is none", (char *)(uintptr_t)helper};
    size_t count = 2;
    for (; more[count - 2] != NULL; count++) {
        argv[count] = more[count - 2];
    }
    static char expected[65536];
    size_t len = put(expected, 0, argv[0]);
    len = put(expected, len, "--show");
    for (size_t i = 2; i < count; i++) {
        len = put(expected, len, argv[i]);
    }
    expected[len++] = '\n';
    for (size_t i = 0; envp[i] != NULL; i++) {
        len = put(expected, len, envp[i]);
    }
    const struct output *output = execute(argv, envp);
    check(output->status == 0, "ended with %x", output->status);
    check(output->len == len && memcmp(output->bytes, expected, len) == 0,
        "arguments or environment differ");
    if (output->len != len || memcmp(output->bytes, expected, len) != 0) {
        for (size_t i = 0; i < output->len; i += strlen(output->bytes + i) + 1) {
            printf("      has `%s`\n", output->bytes + i);
        }
    }
    count_case(failures);
}

/* `code` -1: taken or refused. */
static void compare_output(
    const char *name, const char *helper, const char *variable, int code, const char *expected) {
    uint32_t failures;
    begin(name, &failures);
    char *argv[] = {"snapshot", (char *)(uintptr_t)helper, NULL};
    char *envp[] = {(char *)(uintptr_t)variable, NULL};
    const struct output *output = execute(argv, envp);
    int got = WIFEXITED(output->status) ? WEXITSTATUS(output->status) : -1;
    bool either = code < 0 && (got == 0 || got == SNAPSHOT_EXIT_RETIRED);
    check(got == code || either, "ended with %x", output->status);
    /* `*` stands for one word or more */
    const char *star = strchr(expected, '*');
    size_t prefix = star != NULL ? (size_t)(star - expected) : strlen(expected);
    check(star != NULL ? output->len > prefix && memcmp(output->bytes, expected, prefix) == 0
                       : strcmp(output->bytes, expected) == 0,
        "said `%s`, not `%s`", output->bytes, expected);
    count_case(failures);
}

void test_arrangement(void) {
    char *none[] = {NULL};
    char *arguments[] = {"", "two words", "--", "\xff\xfe", "--show", "x=y", NULL};
    char *plain[] = {"PATH=/usr/bin:/bin", "HOME=/root", NULL};
    char *odd[] = {"B=2", "A=1", "EMPTY=", "A=again", "novalue", "=C:=path", "\xff=\xfe", NULL};
    char *tuned[] = {
        "GLIBC_TUNABLES=glibc.malloc.check=0:glibc.malloc.tcache_count=3", "A=1", NULL};
    char *with_rseq[] = {"GLIBC_TUNABLES=glibc.pthread.rseq=1", "LD_BIND_NOW=", NULL};
    char *without_rseq[] = {"LD_BIND_NOW=1", "GLIBC_TUNABLES=glibc.pthread.rseq=0", NULL};
    char *bound[] = {"LD_BIND_NOW=1", "Z=1", NULL};
    char *ours[] = {"HEARTH_SNAPSHOT_EXACT=1", "HEARTH_SNAPSHOT_ARRANGED=1",
        "HEARTH_SNAPSHOT_TRACKER=none", NULL};
    compare_environment("no environment", "--show", none, none);
    compare_environment("an ordinary environment", "--show", none, plain);
    compare_environment("arguments are kept", "--show", arguments, plain);
    compare_environment("an odd environment is kept", "--show", none, odd);
    compare_environment("the user's tunables are kept", "--show", none, tuned);
    compare_environment("the user's wish for rseq is kept", "--show", none, with_rseq);
    compare_environment("the user's wish for no rseq is kept", "--show", none, without_rseq);
    compare_environment("LD_BIND_NOW is kept", "--show", none, bound);
    compare_environment("variables of Hearth are kept", "--show", none, ours);
    compare_environment("an arranged program executes itself", "--nested", arguments, plain);
    static const char *const expected = "rseq 0, huge pages off, malloc by brk, descriptor 9 open";
    compare_output("rseq and huge pages are off, malloc uses brk", "--facts", "A=1", 0, expected);
    compare_output(
        "so they are with tunables", "--facts", "GLIBC_TUNABLES=glibc.pthread.rseq=1", 0, expected);
    compare_output("so they are with LD_BIND_NOW", "--facts", "LD_BIND_NOW=1", 0, expected);

    compare_output("memory is kept in any process", "--keep", "A=1", 0, "kept");
    compare_output("no tracker is wanted", "--probe", "HEARTH_SNAPSHOT_TRACKER=none", 0, "none|*");
    compare_output("a tracker that does not exist is wanted", "--probe",
        "HEARTH_SNAPSHOT_TRACKER=nonsense", 0, "none|*");
    compare_output("no snapshot without a tracker", "--take", "HEARTH_SNAPSHOT_TRACKER=none",
        SNAPSHOT_EXIT_RETIRED, "*");

    const char *why;
    if (!snapshot_probe(&why)) {
        return;
    }
    compare_output("the probe tells that it works", "--probe", "A=1", 0, "file|");
    compare_output("a snapshot is taken", "--take", "A=1", 0, "taken");
    if (geteuid() == 0) {
        user = 65534;
        compare_output("a snapshot is taken by an ordinary user", "--take", "A=1", 0, "taken");
        user = 0;
        compare_output("a snapshot is taken by a process that was root", "--take-after-setuid",
            "A=1", -1, "*");
    }
    const int retired = SNAPSHOT_EXIT_RETIRED;
    compare_output("files must be smaller than the snapshot", "--refused-file-size", "A=1", retired,
        "the limit on file sizes (RLIMIT_FSIZE) is 65536 bytes, and the snapshot needs *");
    compare_output("the limit on file sizes can be raised", "--refused-file-size-soft", "A=1", 0,
        "taken, the limit is kept");
    compare_output("memfd_create() is refused", "--refused-memfd", "A=1", retired,
        "memfd_create: operation not permitted");
    compare_output("close_range() is refused", "--refused-close-range", "A=1", retired,
        "close_range: operation not permitted");
    compare_output("seals are refused", "--refused-seals", "A=1", retired,
        "a memfd cannot be sealed: operation not permitted");
    compare_output("a memfd cannot grow", "--refused-growth", "A=1", retired,
        "a memfd cannot grow: no space left");
    compare_output("a memfd cannot be written", "--refused-writing", "A=1", retired,
        "a memfd cannot be written: out of memory or of mappings (vm.max_map_count)");
    compare_output("the address space is used up when the snapshot is taken",
        "--refused-more-address-space", "A=1", retired, "no memory for the snapshot");
    compare_output("24,000 mappings are taken", "--refused-many-mappings", "A=1", 0, "taken");
    compare_output("40,000 mappings are too many", "--refused-mappings", "A=1", retired,
        "too many writable mappings");
    compare_output("the address space is used up", "--refused-address-space", "A=1", retired, "*");
    if (geteuid() == 0) {
        user = 65534;
        compare_output("/proc/self/pagemap is not for this process", "--refused-pagemap", "A=1",
            retired, "/proc/self/pagemap: permission denied");
        user = 0;
    }
    compare_output("a process without a listener retires", "--retire-silently", "A=1",
        SNAPSHOT_EXIT_RETIRED, "");
}

/* --- many processes of one boot --- */

enum { WORKERS = 8 };

static void random_damage(unsigned n) {
    struct area areas[AREAS];
    list_areas(areas);
    for (int i = 0; i < 30; i++) {
        const struct area *area = &areas[random_number() % AREAS];
        area->at[random_number() % area->len] ^= (unsigned char)(1 + n % 255);
    }
    free(boot.large);
}

static void run_workers(struct board *boards, const struct test_case *c,
    const struct variant *variants, bool shares, int round) {
    pid_t pids[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        memset(&boards[i], 0, offsetof(struct board, scratch));
        pids[i] = fork();
        if (pids[i] == 0) {
            board = &boards[i];
            board->seed = (uint64_t)i + 1;
            snprintf(board->name, sizeof board->name, "worker %d of a zygote", i);
            board->variant = variants[i % 2].name;
            board->arena = boot.chunk;
            live_case(c, &variants[i % 2]);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        check(status == 0, "worker %d ended with %x", i, status);
        check(boards[i].failures == 0 && boards[i].turn == 60, "worker %d failed in turn %u: %s", i,
            boards[i].turn, boards[i].last_said);
        const struct snapshot_statistics *s = &boards[i].statistics;
        check(shares ? s->shared_pages > s->snapshot_pages / 2 : s->shared_pages == 0,
            "worker %d shares %lu of %lu pages", i, s->shared_pages, s->snapshot_pages);
        check(round != 1 || s->handed_pages > 10, "worker %d was handed %lu pages", i,
            s->handed_pages);
        check(round != 1 || s->mapped_pages > 10, "worker %d found %lu pages mapped", i,
            s->mapped_pages);
    }
}

static void test_zygote_that(bool shares);

/* A table that no worker would leave: addresses of all kinds, the process that held it has died. */
static void spoil(struct snapshot_hot_set *set) {
    pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    waitpid(dead, NULL, 0);
    struct area areas[AREAS];
    list_areas(areas);
    for (unsigned i = 0; i < SNAPSHOT_HOT_PAGES; i++) {
        const struct area *area = &areas[random_number() % AREAS];
        uint64_t page = (uint64_t)area->at + random_number() % (2 * area->len);
        set->pages[i].page = i % 3 == 0   ? page
                             : i % 3 == 1 ? page & ~(uint64_t)(PAGE - 1)
                                          : random_number();
        set->pages[i].lines = random_number();
    }
    const struct area code = {.at = (unsigned char *)(uintptr_t)test_zygote_that, .len = 1 << 20};
    for (unsigned i = 0; i < SNAPSHOT_HOT_RUNS; i++) {
        const struct area *area = i % 2 == 0 ? &code : &areas[random_number() % AREAS];
        uint64_t start = (uint64_t)area->at + random_number() % (2 * area->len);
        set->runs[i].start = i % 3 != 0 ? start & ~(uint64_t)(PAGE - 1) : random_number();
        set->runs[i].end = i % 5 != 0 ? set->runs[i].start + random_number() % 64 * PAGE
                                      : random_number() & ~(uint64_t)(PAGE - 1);
    }
    set->count = set->run_count = UINT32_MAX;
    set->owner = (uint32_t)dead;
}

enum { ROUNDS = 3 };

/* Takes its boot once. Its forks take their snapshots at the same time, then others that learn
 * from them, then some that learn from random data. */
static void zygote_process(struct board *boards, bool shares) {
    build_scenery();
    if (shares) {
        share_scenery();
    }
    static const struct test_case c = {.name = "zygote",
        .request = random_damage,
        .verify = verify_sum,
        .flags = UNSEEN,
        .turns = 60};
    struct snapshot_hot_set *set =
        mmap(NULL, sizeof *set, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (set == MAP_FAILED) {
        give_up("mmap");
    }
    static struct variant variants[] = {
        {.name = "default"}, {.name = "oracle", .options = {.oracle = true}}};
    variants[0].options.hot_set = variants[1].options.hot_set = set;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 2) {
            spoil(set);
        }
        run_workers(boards, &c, variants, shares, round);
    }
    /* and the zygote itself is inspected, like any other process */
    board = &boards[0];
    board->turn = 0;
    live_case(&c, &variants[0]);
}

static void test_zygote_that(bool shares) {
    uint32_t failures;
    begin(shares ? "a zygote that shares, and its workers" : "a zygote and its workers", &failures);
    struct board *boards = mmap(
        NULL, WORKERS * sizeof *boards, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (boards == MAP_FAILED) {
        give_up("mmap");
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(limit_of(240)); /* ends one that hangs; a busy machine needs more than 60 */
        zygote_process(boards, shares);
    }
    int status;
    waitpid(pid, &status, 0);
    check(status == 0, "the zygote ended with %x: %s", status, boards[0].last_said);
    munmap(boards, WORKERS * sizeof *boards);
    count_case(failures);
}

void test_zygote(void) {
    test_zygote_that(false);
    test_zygote_that(true);
}
