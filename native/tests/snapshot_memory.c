/* Cases: memory, by whatever way it is written. */
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* Calls for each page of the areas that a request may write to. */
static void each_page(
    void (*write_to)(unsigned char *page, size_t len, unsigned number), unsigned number) {
    struct area areas[AREAS];
    list_areas(areas);
    for (size_t i = 0; i < AREAS; i++) {
        for (size_t at = 0; at < areas[i].len; at += PAGE) {
            size_t left = areas[i].len - at;
            write_to(areas[i].at + at, left < (size_t)PAGE ? left : (size_t)PAGE, number);
        }
    }
}

static void first_byte(unsigned char *page, size_t len, unsigned number) {
    (void)len;
    page[0] += (unsigned char)(number + 1);
}
static void last_byte(unsigned char *page, size_t len, unsigned number) {
    page[len - 1] ^= (unsigned char)(number + 1);
}
static void one_bit(unsigned char *page, size_t len, unsigned number) {
    page[random_number() % len] ^= (unsigned char)(1U << number % 8);
}
static void all_bytes(unsigned char *page, size_t len, unsigned number) {
    memset(page, 0xa0 + (int)number, len);
}
static void equal_bytes(unsigned char *page, size_t len, unsigned number) {
    (void)number;
    for (size_t i = 0; i < len; i += 64) {
        ((volatile unsigned char *)page)[i] = page[i];
    }
}
static void every_line(unsigned char *page, size_t len, unsigned number) {
    for (size_t i = number % 64; i < len; i += 64) {
        page[i]++;
    }
}

static void write_nothing(unsigned n) {
    (void)n;
}
static void write_first_bytes(unsigned n) {
    each_page(first_byte, n);
}
static void write_last_bytes(unsigned n) {
    each_page(last_byte, n);
}
static void write_bits(unsigned n) {
    each_page(one_bit, n);
}
static void write_all(unsigned n) {
    each_page(all_bytes, n);
}
static void write_equal(unsigned n) {
    each_page(equal_bytes, n);
}
static void write_lines(unsigned n) {
    each_page(every_line, n);
}
static void write_across(unsigned n) {
    (void)n;
    struct area areas[AREAS];
    list_areas(areas);
    for (size_t i = 0; i < AREAS; i++) {
        for (size_t at = PAGE; at + 4 < areas[i].len; at += PAGE) {
            uint64_t value = random_number();
            memcpy(areas[i].at + at - 4, &value, sizeof value); /* unaligned: half in each page */
        }
    }
}

static void write_one_page(unsigned n) {
    struct area areas[AREAS];
    list_areas(areas);
    const struct area *area = &areas[(n + random_number()) % AREAS];
    area->at[random_number() % area->len] ^= 0x55;
}

/* Another page each time: the page known from the previous turn does not help. */
static void walk(unsigned n) {
    boot_bss[n * 2 * PAGE % GLOBAL_LEN] += 1;
    boot.anon[n * PAGE % (ANON_PAGES * PAGE)] += 1;
}

static void touch_new_pages(unsigned n) {
    memset(boot_bss + GLOBAL_LEN / 2, 0x11 + (int)n, GLOBAL_LEN / 2);
    for (size_t page = 1; page < ANON_PAGES; page += 2) {
        memset(boot.anon + page * PAGE, 0x22, PAGE);
    }
    for (size_t page = 64; page < 200; page++) {
        boot.chunk[page * PAGE + n] = 1;
    }
}

/* Only read: the kernel maps its zero page, which is not a write. */
static void read_new_pages(unsigned n) {
    volatile unsigned char sum = 0;
    for (size_t page = 0; page < ANON_PAGES; page++) {
        sum = (unsigned char)(sum + boot.anon[page * PAGE + n]);
    }
    for (size_t page = 0; page < GLOBAL_PAGES; page++) {
        sum = (unsigned char)(sum + boot_bss[page * PAGE]);
    }
}

/* A page of zeros beside memory that changes, the first write to memory that did not, and a fault that is no write: as many pages are found as
 * have become private, and one of them is not among the found. */
static void read_here_write_there(unsigned n) {
    const volatile unsigned char *pages = boot.anon;
    const volatile unsigned char *before = boot.chunk;
    boot.anon[0]++;
    if (n > 0) {
        boot.file[n % FILE_PAGES * PAGE] ^= (unsigned char)(0x55 | pages[(2 * n + 1) * PAGE]);
        (void)before[CHUNK - n * PAGE];
    }
}

static void random_writes(unsigned n) {
    (void)n;
    struct area areas[AREAS];
    list_areas(areas);
    for (uint64_t writes = random_number() % 40; writes > 0; writes--) {
        const struct area *area = &areas[random_number() % AREAS];
        size_t at = random_number() % area->len;
        size_t len = 1 + random_number() % (random_number() % 4 == 0 ? 3 * PAGE : 64);
        len = len < area->len - at ? len : area->len - at;
        switch (random_number() % 4) {
        case 0:
            memset(area->at + at, 0, len);
            break;
        case 1:
            memset(area->at + at, (int)random_number() & 0xff, len);
            break;
        case 2:
            area->at[at] ^= (unsigned char)(1U << random_number() % 8);
            break;
        default:
            for (size_t i = 0; i < len; i++) {
                area->at[at + i] = (unsigned char)random_number();
            }
        }
    }
}

/* --- the kernel writes --- */

static void system_calls_write(unsigned n) {
    unsigned char *page = boot_bss + (n * 8 % GLOBAL_PAGES) * PAGE;
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (read(fd, page, 64) <= 0 || pread(fd, page + 2 * PAGE - 8, 16, 0) != 16) {
        give_up("read");
    }
    close(fd);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    if (send(pair[0], "received", 8, 0) != 8 || recv(pair[1], page + 3 * PAGE, 8, 0) != 8) {
        give_up("recv");
    }
    if (send(pair[0], "received", 8, 0) != 8) {
        give_up("send");
    }
    struct iovec parts[] = {{boot.anon + 1, 4}, {boot_data + 5 * PAGE, 4}};
    if (readv(pair[1], parts, 2) != 8 || getrandom(boot.large + 9 * PAGE, 100, 0) != 100 ||
        uname((struct utsname *)(boot.chunk + 20 * PAGE)) != 0 ||
        getcwd((char *)boot.file + 3 * PAGE, PAGE) == NULL) {
        give_up("a system call that writes");
    }
    close(pair[0]);
    close(pair[1]);
}

static void proc_mem_writes(unsigned n) {
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    unsigned char byte = (unsigned char)(7 + n);
    unsigned char *const targets[] = {boot_bss + 3 * PAGE, boot_bss + 40 * PAGE,
        boot_data + 9 * PAGE + 1, boot.anon + 5 * PAGE, boot.file + PAGE, boot.chunk + 70 * PAGE};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)targets[i]) != 1) {
            give_up("/proc/self/mem");
        }
    }
    close(fd);
}

/* /proc/self/mem writes where the process itself cannot. */
static void proc_mem_writes_read_only(unsigned n) {
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    unsigned char byte = (unsigned char)(7 + n);
    if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)boot.readonly) != 1) {
        give_up("/proc/self/mem");
    }
    close(fd);
}

/* A breakpoint, as a debugger would set it: into the program's code. */
static void proc_mem_writes_code(unsigned n) {
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    unsigned char byte = (unsigned char)(0xcc + n);
    if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)on_boot_signal) != 1) {
        give_up("/proc/self/mem");
    }
    close(fd);
}

static void process_vm_write(unsigned n) {
    uint64_t value = n;
    struct iovec local = {&value, sizeof value}, remote = {boot_bss + 50 * PAGE, sizeof value};
    process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
}

static void child_writes_into_parent(unsigned n) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        uint64_t value = n + 1;
        struct iovec local = {&value, sizeof value}, remote = {boot_bss + 51 * PAGE, sizeof value};
        process_vm_writev(parent, &local, 1, &remote, 1, 0);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* --- stack --- */

static __attribute__((noinline)) void allocate_on_stack(unsigned n) {
    unsigned char *at = alloca(4 << 20);
    memset(at, 0x33 + (int)n, 4 << 20);
    __asm__ volatile("" : : "r"(at) : "memory");
}

static __attribute__((noinline)) unsigned recurse(unsigned depth) {
    volatile unsigned char frame[4000];
    frame[depth % sizeof frame] = (unsigned char)depth;
    return depth == 0 ? frame[0] : recurse(depth - 1) + frame[depth % sizeof frame];
}
static void recurse_deeply(unsigned n) {
    recurse(1000 + n);
}

/* Writes into the frames of snapshot_take()'s caller, as a bug would. */
static void overwrite_callers(unsigned n) {
    memset((void *)(board->frame + 16 + n), 0x44, 2 * PAGE);
}

/* --- malloc and brk --- */

static void malloc_storm(unsigned n) {
    static void *kept[3000];
    for (size_t i = 0; i < 3000; i++) {
        size_t len = 1 + random_number() % (i % 100 == 0 ? 500000 : 2000);
        kept[i] = malloc(len);
        memset(kept[i], (int)(i + n), len < 5000 ? len : 5000);
        if (i % 3 == 0) {
            size_t other = random_number() % (i + 1);
            free(kept[other]);
            kept[other] = NULL;
        } else if (i % 7 == 0) {
            kept[i] = realloc(kept[i], len * 2);
        }
    }
}

static void free_boot_blocks(unsigned n) {
    for (size_t i = n % 2; i < sizeof boot.small / sizeof boot.small[0]; i += 2) {
        free(boot.small[i]);
    }
    free(boot.large);
    boot.large = calloc(1, LARGE / 2);
}
static void trim_malloc(unsigned n) {
    free_boot_blocks(n);
    malloc_trim(0);
}

static void large_malloc(unsigned n) {
    unsigned char *at = malloc((32U << 20) + n * PAGE);
    for (size_t page = 0; page < 32 << 20; page += 16 * PAGE) {
        at[page] = 1;
    }
    void *aligned;
    if (posix_memalign(&aligned, 1 << 20, 3 << 20) != 0) {
        give_up("posix_memalign");
    }
    memset(aligned, 1, 100);
    if (n % 2 == 0) {
        free(at);
    }
}

static void grow_brk(unsigned n) {
    unsigned char *at = sbrk((3 + n) * PAGE);
    memset(at, 0x55, (3 + n) * PAGE);
}

static void shrink_brk(unsigned n) {
    if (sbrk(-(intptr_t)((1 + n) * PAGE)) == (void *)-1) {
        give_up("sbrk");
    }
}

static void shrink_and_grow_brk(unsigned n) {
    (void)n;
    sbrk(-8 * PAGE);
    sbrk(8 * PAGE); /* zeroed now */
}

/* --- other state of the thread --- */

static void change_thread(unsigned n) {
    errno = (int)n + 1;
    boot_thread_local[n] = 0;
    fesetround(FE_UPWARD);
    feenableexcept(FE_DIVBYZERO);
#if defined(__x86_64__)
    unsigned short control = 0x0f7f;
    __asm__ volatile("fldcw %0" : : "m"(control));
    __builtin_ia32_ldmxcsr(0x9f80); /* denormals are zero, flush to zero */
#else
    uint64_t control = 3 << 24; /* flush to zero, default NaN */
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}

/* --- kept memory and dead ranges --- */

static uint64_t *kept_counter;
static void boot_kept(void) {
    kept_counter = snapshot_keep(100 * PAGE);
    check((uintptr_t)kept_counter % 64 == 0, "kept memory is aligned");
    for (size_t i = 0; i < (size_t)100 * PAGE / 8; i++) {
        check(kept_counter[i] == 0, "kept memory is zeroed");
    }
}
static void write_kept(unsigned n) {
    check(kept_counter[0] == n && kept_counter[100 * PAGE / 8 - 1] == n,
        "kept memory was touched: %llu, turn %u", (unsigned long long)kept_counter[0], n);
    kept_counter[0]++;
    kept_counter[100 * PAGE / 8 - 1]++;
    memset((unsigned char *)kept_counter + 8, (int)n, 99 * PAGE);
    boot_bss[0]++;
}

/* Asked for in a request: the memory lives as long as the pointer. */
static void keep_more(unsigned n) {
    uint64_t **pointers = (uint64_t **)(void *)board->scratch;
    pointers[n] = snapshot_keep(2 * PAGE);
    check(*pointers[n] == 0 && pointers[n][PAGE / 4 - 1] == 0, "kept memory is zeroed");
    pointers[n][0] = pointers[n][PAGE / 4 - 1] = 1000 + n;
    for (unsigned i = 0; i <= n; i++) {
        check(pointers[i][0] == 1000 + i && pointers[i][PAGE / 4 - 1] == 1000 + i,
            "memory kept in turn %u is no longer what it was", i);
    }
}

static void boot_dead(void) {
    board->excluded[0] =
        (struct snapshot_range){(uintptr_t)boot_bss + 100, (uintptr_t)boot_bss + 5 * PAGE + 1};
    board->excluded[1] =
        (struct snapshot_range){(uintptr_t)boot_bss + 40 * PAGE, (uintptr_t)boot_bss + 42 * PAGE};
    board->excluded[2] = (struct snapshot_range){
        (uintptr_t)boot.chunk + 10 * PAGE, (uintptr_t)boot.chunk + CHUNK - 1};
    board->excluded[3] =
        (struct snapshot_range){(uintptr_t)boot.large + 1, (uintptr_t)boot.large + 2};
    board->excluded_count = 4;
}
/* Whole pages in a dead range are never put back. */
static void verify_dead(void) {
    if (board->turn > 3) {
        check(boot_bss[2 * PAGE] == 0xa0 + (int)(board->damaged - 1),
            "a dead page was put back: %02x", boot_bss[2 * PAGE]);
    }
}

/* --- thousands of turns against a shadow --- */

/* At most this much of each area except the arena. */
enum { SHADOW = 200000 };

static void each_shadow(void (*use)(unsigned char *shadow, const struct area *area, size_t len)) {
    struct area areas[AREAS];
    list_areas(areas);
    unsigned char *shadow = board->scratch;
    for (size_t i = 0; i + 2 < AREAS; i++) {
        size_t len = areas[i].len < SHADOW ? areas[i].len : SHADOW;
        use(shadow, &areas[i], len);
        shadow += len;
    }
    check(shadow <= board->scratch + sizeof board->scratch, "room for the shadow");
}
static void copy_shadow(unsigned char *shadow, const struct area *area, size_t len) {
    memcpy(shadow, area->at, len);
}
static void compare_shadow(unsigned char *shadow, const struct area *area, size_t len) {
    check(memcmp(shadow, area->at, len) == 0, "%s differs from its shadow", area->name);
}
static void boot_shadow(void) {
    each_shadow(copy_shadow);
}
static void verify_shadow(void) {
    each_shadow(compare_shadow);
}

static const struct test_case cases[] = {
    {.name = "nothing is written", .request = write_nothing},
    {.name = "the first byte of every page", .request = write_first_bytes},
    {.name = "the last byte of every page", .request = write_last_bytes},
    {.name = "one bit of every page", .request = write_bits},
    {.name = "all bytes of all pages", .request = write_all},
    {.name = "bytes are overwritten with themselves", .request = write_equal},
    {.name = "one byte of every line", .request = write_lines},
    {.name = "writes that straddle pages", .request = write_across},
    {.name = "one byte of one page", .request = write_one_page, .turns = 30},
    {.name = "another page in every turn", .request = walk, .turns = 30},
    {.name = "pages that were never touched are zero again", .request = touch_new_pages},
    {.name = "pages that were never touched are read", .request = read_new_pages},
    {.name = "a page that was read does not stand for a written one",
        .request = read_here_write_there},
    {.name = "random writes", .request = random_writes, .turns = 30},
    {.name = "random writes against a shadow",
        .request = random_writes,
        .flags = ALONE | SELDOM,
        .boot = boot_shadow,
        .verify = verify_shadow,
        .turns = 1000},
    {.name = "system calls write into cold pages", .request = system_calls_write},
    {.name = "writes through /proc/self/mem", .request = proc_mem_writes},
    {.name = "writes through /proc/self/mem into read-only memory",
        .request = proc_mem_writes_read_only,
        .outcome = EITHER},
    {.name = "writes through /proc/self/mem into code",
        .request = proc_mem_writes_code,
        .outcome = EITHER},
    {.name = "process_vm_writev() into itself", .request = process_vm_write},
    {.name = "a child writes into its parent by process_vm_writev()",
        .request = child_writes_into_parent,
        .flags = HEAVY},
    {.name = "4 MB by alloca()", .request = allocate_on_stack, .flags = HEAVY},
    {.name = "recursion to 4 MB", .request = recurse_deeply, .flags = HEAVY},
    {.name = "the callers' frames are overwritten", .request = overwrite_callers},
    {.name = "a storm of malloc(), free() and realloc()", .request = malloc_storm, .flags = HEAVY},
    {.name = "boot blocks are freed", .request = free_boot_blocks, .flags = LAST},
    {.name = "boot blocks are freed and malloc() trimmed",
        .request = trim_malloc,
        .outcome = EITHER},
    {.name = "32 MB by malloc()", .request = large_malloc, .flags = HEAVY},
    {.name = "brk grows", .request = grow_brk},
    {.name = "brk shrinks", .request = shrink_brk, .outcome = EITHER},
    {.name = "brk shrinks and grows", .request = shrink_and_grow_brk, .outcome = EITHER},
    {.name = "errno, thread-local memory, rounding and control words", .request = change_thread},
    {.name = "kept memory is kept", .request = write_kept, .flags = ALONE, .boot = boot_kept},
    {.name = "memory kept from within a request", .request = keep_more, .flags = ALONE},
    {.name = "dead pages are left alone, their neighbours are not",
        .request = write_all,
        .flags = ALONE,
        .boot = boot_dead,
        .verify = verify_dead},
};
const struct case_list memory_cases = CASE_LIST(cases);
