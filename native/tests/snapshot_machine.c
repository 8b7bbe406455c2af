/* Cases: the kernel's memory management: merged pages (KSM), swap, huge pages, pages that move.
 * Each restores the machine's settings. A case that this machine cannot run says so. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67 /* Linux 6.4 */
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

/* --- files of the kernel ---------------------------------------------------------------------------------------------------------------- */

bool read_line(const char *path, char *to, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, to, size - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    to[got > 0 ? got : 0] = '\0';
    to[strcspn(to, "\n")] = '\0';
    return got > 0;
}

static bool write_line(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
    if (fd >= 0) {
        close(fd);
    }
    return done;
}

long number_of(const char *path, const char *name) {
    static char text[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got;
    while (fd >= 0 && (got = read(fd, text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)got;
    }
    if (fd < 0) {
        return -1;
    }
    close(fd);
    text[len] = '\0';
    const char *at = strstr(text, name);
    return at != NULL ? strtol(at + strlen(name), NULL, 10) : -1;
}

/* Settings that prepare() changed, for undo(). */
enum { MAX_SETTINGS = 4 };
static struct {
    const char *path;
    char before[64];
} settings[MAX_SETTINGS];
static unsigned setting_count;

static bool set_to(const char *path, const char *value) {
    char *before = settings[setting_count].before;
    if (!read_line(path, before, sizeof settings[0].before) || !write_line(path, value)) {
        return false;
    }
    char *chosen = strchr(before, '['); /* a choice: always [madvise] never */
    if (chosen != NULL) {
        memmove(before, chosen + 1, strlen(chosen));
        before[strcspn(before, "]")] = '\0';
    }
    settings[setting_count++].path = path;
    return true;
}

static void put_back_settings(void) {
    while (setting_count > 0) {
        setting_count--;
        write_line(settings[setting_count].path, settings[setting_count].before);
    }
}

/* --- merged pages ----------------------------------------------------------------------------------------------------------------------- */

enum { MERGED_PAGES = 200 };
static unsigned char *merged;

static const char *switch_merging_on(void) {
    bool on = set_to("/sys/kernel/mm/ksm/sleep_millisecs", "1") &&
              set_to("/sys/kernel/mm/ksm/pages_to_scan", "20000") &&
              set_to("/sys/kernel/mm/ksm/run", "1");
    if (!on) {
        put_back_settings();
        return "KSM cannot be switched on (root, and a writable /sys)";
    }
    return NULL;
}

static const char *switch_merging_all_on(void) {
    if (prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) != 0) {
        return "this kernel has no PR_SET_MEMORY_MERGE";
    }
    prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0);
    return switch_merging_on();
}

static long merged_now(void) {
    char line[64];
    return read_line("/proc/self/ksm_merging_pages", line, sizeof line)
               ? atol(line)
               : number_of("/sys/kernel/mm/ksm/pages_sharing", "");
}

/* The kernel's thread finds equal pages in its second scan or third, in its own time: seconds on a busy machine. */
static void wait_for_merged(void) {
    enum { SCANS = 6, STEP = 5 };
    static const char *const scans = "/sys/kernel/mm/ksm/full_scans";
    long last = number_of(scans, "") + SCANS;
    while (merged_now() <= 0) {
        if (number_of(scans, "") >= last) {
            check(false, "no page was merged in %d scans", SCANS);
            return;
        }
        pause_for(STEP);
    }
}

static void fill_equal(unsigned char *at) {
    for (size_t page = 0; page < MERGED_PAGES; page++) {
        memset(at + page * PAGE, 0x61 + (int)(page % 2), PAGE);
    }
}
static void boot_merged(void) {
    merged = map_anonymous(MERGED_PAGES * PAGE, BOTH, PRIVATE);
    fill_equal(merged);
    if (madvise(merged, MERGED_PAGES * PAGE, MADV_MERGEABLE) != 0) {
        give_up("madvise");
    }
    wait_for_merged();
}
static void boot_all_merged(void) {
    if (raw(SYS_prctl, PR_SET_MEMORY_MERGE, 1, 0, 0, 0, 0) != 0) {
        give_up("prctl");
    }
    merged = map_anonymous(MERGED_PAGES * PAGE, BOTH, PRIVATE);
    fill_equal(merged);
    wait_for_merged();
}
static void write_merged(unsigned n) {
    for (size_t page = n % 3; page < MERGED_PAGES; page += 3) {
        merged[page * PAGE + 8 * n] ^= 0x0f;
    }
    /* equal to others now: these may be merged while the request runs */
    memset(boot_bss + 4 * PAGE, 0x61, 8 * PAGE);
    unsigned char *own = map_anonymous(16 * PAGE, BOTH, PRIVATE);
    memset(own, 0x61, 16 * PAGE);
    madvise(own, 16 * PAGE, MADV_MERGEABLE);
}
static void verify_merged(void) {
    for (size_t page = 0; page < MERGED_PAGES; page++) {
        check(merged[page * PAGE] == 0x61 + page % 2 && merged[page * PAGE + 8] == 0x61 + page % 2,
            "merged page %zu differs", page);
    }
}

/* --- swap ------------------------------------------------------------------------------------------------------------------------------- */

enum { SWAPPED_PAGES = 300, SWAP_BYTES = 64 << 20 };
static unsigned char *swapped;
static char swap_file[64];

/* What mkswap(8) writes: linux/swap.h, union swap_header. */
static bool make_swap_file(void) {
    strcpy(swap_file, "/var/tmp/hearth-swap-XXXXXX");
    int fd = mkostemp(swap_file, O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    static unsigned char zeros[1 << 20];
    bool done = fchmod(fd, 0600) == 0;
    for (int i = 0; done && i < SWAP_BYTES >> 20; i++) {
        done = write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros;
    }
    const uint32_t facts[] = {1, (uint32_t)(SWAP_BYTES / PAGE - 1), 0};
    done = done && pwrite(fd, facts, sizeof facts, 1024) == (ssize_t)sizeof facts &&
           pwrite(fd, "SWAPSPACE2", 10, PAGE - 10) == 10 && fsync(fd) == 0 &&
           swapon(swap_file, 0) == 0;
    close(fd);
    if (!done) {
        unlink(swap_file);
    }
    return done;
}

static const char *switch_swap_on(void) {
    swap_file[0] = '\0';
    return number_of("/proc/meminfo", "SwapFree:") > 0 || make_swap_file()
               ? NULL
               : "no swap, and none can be switched on (root, and a file system that takes it)";
}
static void switch_swap_off(void) {
    if (swap_file[0] != '\0') {
        swapoff(swap_file);
        unlink(swap_file);
    }
}

/* Round libc: an engine that saw the call would look at everything. */
static void page_out(void *start, size_t len) {
    uint64_t from = ((uint64_t)start + (uint64_t)PAGE - 1) / (uint64_t)PAGE * (uint64_t)PAGE;
    raw(SYS_madvise, (long)from, (long)((uint64_t)start + len - from) / PAGE * PAGE, MADV_PAGEOUT,
        0, 0, 0);
}
static uint32_t *swapped_turns(void) {
    return (uint32_t *)(void *)board->scratch;
}
static void boot_swapped(void) {
    swapped = map_anonymous(SWAPPED_PAGES * PAGE, BOTH, PRIVATE);
    for (size_t i = 0; i < (size_t)SWAPPED_PAGES * PAGE; i++) {
        swapped[i] = (unsigned char)(i * 13 + i / PAGE);
    }
    page_out(swapped, SWAPPED_PAGES * PAGE);
    check(number_of("/proc/self/status", "VmSwap:") > 0, "the boot is not swapped out");
}
static void write_and_page_out(unsigned n) {
    struct area areas[AREAS];
    list_areas(areas);
    for (size_t page = n % 2; page < SWAPPED_PAGES; page += 2) {
        swapped[page * PAGE + n] ^= 0x77;
    }
    for (size_t i = 0; i < AREAS; i++) {
        for (size_t at = n; at < areas[i].len; at += 3 * PAGE) {
            areas[i].at[at] ^= 0x77;
        }
        page_out(areas[i].at, areas[i].len);
    }
    page_out(swapped, SWAPPED_PAGES * PAGE);
    *swapped_turns() += number_of("/proc/self/status", "VmSwap:") > 0;
    if (n % 2 == 1) {
        swapped[5 * PAGE]++; /* comes back for this one */
    }
}
static void verify_swapped(void) {
    check(board->turn != DEFAULT_TURNS || *swapped_turns() == board->damaged,
        "pages were swapped out in %u of %u turns", *swapped_turns(), board->damaged);
}

/* --- huge pages ------------------------------------------------------------------------------------------------------------------------- */

enum { HUGE_PAGE = 2 << 20, HUGE_BYTES = 4 * HUGE_PAGE };
static unsigned char *huge;
static bool huge_pages_wanted;

static const char *switch_huge_pages_on(void) {
    static const char *const file = "/sys/kernel/mm/transparent_hugepage/enabled";
    char line[64];
    if (!read_line(file, line, sizeof line)) {
        return "the kernel has no huge pages";
    }
    return strstr(line, "[never]") == NULL || set_to(file, "madvise")
               ? NULL
               : "huge pages are off, and cannot be switched on";
}

static void map_huge(int advice) {
    unsigned char *at = map_anonymous(HUGE_BYTES + HUGE_PAGE, BOTH, PRIVATE | MAP_NORESERVE);
    huge = (unsigned char *)(((uintptr_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(huge, HUGE_BYTES, advice);
    for (size_t i = 0; i < HUGE_BYTES / 2; i += 8) { /* the rest was never touched */
        huge[i] = (unsigned char)(i / 8 + i / PAGE);
    }
    long size = number_of("/proc/self/smaps_rollup", "AnonHugePages:");
    check(size < 0 || (size > 0) == huge_pages_wanted, "%ld kB in huge pages", size);
}
static void boot_huge_pages(void) {
    huge_pages_wanted = true;
    raw(SYS_prctl, PR_SET_THP_DISABLE, 0, 0, 0, 0, 0);
    map_huge(MADV_HUGEPAGE);
}
static void boot_no_huge_pages(void) {
    huge_pages_wanted = false;
    map_huge(MADV_HUGEPAGE); /* snapshot_arrange() has switched them off for the process */
}
static void boot_small_pages(void) {
    huge_pages_wanted = false;
    raw(SYS_prctl, PR_SET_THP_DISABLE, 0, 0, 0, 0, 0);
    map_huge(MADV_NOHUGEPAGE);
}
/* One fault may bring 512 pages. */
static void write_huge(unsigned n) {
    huge[n * 3 * PAGE + 5] ^= 0x33;
    huge[HUGE_PAGE + n * PAGE] ^= 0x33;
    huge[HUGE_BYTES - HUGE_PAGE + n] = 1;
    if (n % 2 == 1) {
        boot_bss[n * PAGE] ^= 1;
        memset(huge + HUGE_BYTES / 2 + 3 * PAGE, 0x44, 3 * PAGE);
    }
    unsigned char *own = map_anonymous(2 * HUGE_PAGE, BOTH, PRIVATE);
    madvise(own, 2 * HUGE_PAGE, MADV_HUGEPAGE);
    own[HUGE_PAGE] = own[2 * HUGE_PAGE - 1] = 1;
}

/* --- pages that move -------------------------------------------------------------------------------------------------------------------- */

/* NUMA balancing takes the page tables' entries away, and moves pages to the processor that touches them. On one node pages are moved by compaction. */
static const char *switch_balancing_on(void) {
    bool nodes = access("/sys/devices/system/node/node1", F_OK) == 0;
    if (nodes && set_to("/proc/sys/kernel/numa_balancing", "1")) {
        return NULL;
    }
    return access("/proc/sys/vm/compact_memory", W_OK) == 0
               ? NULL
               : "one node, and memory cannot be compacted (root)";
}
static void write_and_move(unsigned n) {
    struct area areas[AREAS];
    list_areas(areas);
    int other = access("/sys/devices/system/node/node1", F_OK) == 0 ? (int)(n % 2) : 0;
    for (size_t i = 0; i < AREAS; i++) {
        for (size_t at = n; at < areas[i].len; at += 2 * PAGE) {
            areas[i].at[at] ^= 0x19;
            void *page = areas[i].at + at;
            int status = 0;
            raw(SYS_move_pages, 0, 1, (long)&page, (long)&other, (long)&status, 2 /* MOVE */);
        }
    }
    pid_t pid = raw(SYS_getpid, 0, 0, 0, 0, 0, 0) == board->pid ? fork() : -1;
    if (pid == 0) {
        write_line("/proc/sys/vm/compact_memory", "1");
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static const struct test_case cases[] = {
    {.name = "merged pages are written",
        .request = write_merged,
        .flags = ALONE | STEADY,
        .boot = boot_merged,
        .verify = verify_merged,
        .prepare = switch_merging_on,
        .undo = put_back_settings},
    {.name = "merged pages of a process whose memory is all merged",
        .request = write_merged,
        .flags = ALONE | STEADY,
        .boot = boot_all_merged,
        .verify = verify_merged,
        .prepare = switch_merging_all_on,
        .undo = put_back_settings},
    {.name = "pages are swapped out",
        .request = write_and_page_out,
        .flags = ALONE,
        .boot = boot_swapped,
        .verify = verify_swapped,
        .prepare = switch_swap_on,
        .undo = switch_swap_off},
    {.name = "huge pages are written",
        .request = write_huge,
        .flags = ALONE,
        .boot = boot_huge_pages,
        .prepare = switch_huge_pages_on,
        .undo = put_back_settings},
    {.name = "huge pages that the process has switched off",
        .request = write_huge,
        .flags = ALONE,
        .boot = boot_no_huge_pages,
        .prepare = switch_huge_pages_on,
        .undo = put_back_settings},
    {.name = "memory that must not be in huge pages",
        .request = write_huge,
        .flags = ALONE,
        .boot = boot_small_pages},
    {.name = "pages move",
        .request = write_and_move,
        .flags = ALONE,
        .prepare = switch_balancing_on,
        .undo = put_back_settings},
};
const struct case_list machine_cases = CASE_LIST(cases);
