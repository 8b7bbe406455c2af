/* Which tracker this machine lets this process use: tried on a page of its own, not guessed from versions. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "snapshot/tracker.h"

enum { TRIED_PAGES = 2 };

static char reason[1024];

static void because(const char *tracker, const char *what, long error) {
    size_t len = strlen(reason);
    snprintf(reason + len, sizeof reason - len, "%s%s: %s%s%s", len > 0 ? "; " : "", tracker, what,
        error != 0 ? ": " : "", error != 0 ? strerror((int)-error) : "");
}

long probe_userfaultfd(void) {
    long fd = raw(SYS_userfaultfd, O_CLOEXEC | UFFD_ONLY_USER_MODE);
    if (fd >= 0) {
        return fd;
    }
    /* A seccomp filter on the system call does not concern the device, for whoever may open it. */
    long device = raw(SYS_open, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
    if (device < 0) {
        return fd;
    }
    long other = raw(SYS_ioctl, device, UFFD_DEVICE_NEW, O_CLOEXEC | UFFD_ONLY_USER_MODE);
    raw(SYS_close, device);
    return other < 0 ? fd : other;
}

/* Whether a write to the second of two protected pages shows, and nothing else. */
static bool try_scan(int uffd, int pagemap, char *pages) {
    struct uffdio_register what = {
        {(uint64_t)pages, TRIED_PAGES * PAGE}, UFFDIO_REGISTER_MODE_WP, 0};
    long r = raw(SYS_ioctl, uffd, UFFDIO_REGISTER, &what);
    if (r != 0) {
        because("userfaultfd", "write protection is refused", r);
        return false;
    }
    struct pagemap_span spans[TRIED_PAGES];
    struct pagemap_scan scan = {
        .size = sizeof scan,
        .flags = SCAN_WP_MATCHING,
        .start = (uint64_t)pages,
        .end = (uint64_t)pages + TRIED_PAGES * PAGE,
        .category_mask = CATEGORY_WPALLOWED | CATEGORY_WRITTEN,
        .category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED,
    };
    r = raw(SYS_ioctl, pagemap, PAGEMAP_SCAN_CALL, &scan);
    if (r >= 0) {
        ((volatile char *)pages)[PAGE] = 2;
        scan.flags = 0;
        scan.spans = (uint64_t)spans;
        scan.spans_len = TRIED_PAGES;
        scan.return_mask = CATEGORY_WRITTEN;
        r = raw(SYS_ioctl, pagemap, PAGEMAP_SCAN_CALL, &scan);
    }
    if (r < 0) {
        because("userfaultfd", "PAGEMAP_SCAN is refused", r);
        return false;
    }
    if (r != 1 || spans[0].start != (uint64_t)pages + PAGE ||
        spans[0].end != (uint64_t)pages + 2 * PAGE) {
        because("userfaultfd", "PAGEMAP_SCAN does not show written pages", 0);
        return false;
    }
    return true;
}

static bool try_userfaultfd(int pagemap, char *pages) {
    int uffd = (int)probe_userfaultfd();
    if (uffd < 0) {
        because("userfaultfd",
            uffd == -ENOSYS ? "the kernel has none"
                            : "refused (a container's seccomp profile must allow userfaultfd)",
            uffd);
        return false;
    }
    struct uffdio_api api = {UFFD_API, UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED, 0};
    bool works = raw(SYS_ioctl, uffd, UFFDIO_API, &api) == 0;
    if (!works) {
        struct utsname name;
        char what[128];
        uname(&name);
        snprintf(what, sizeof what, "Linux 6.7 or newer is needed, this is %.40s", name.release);
        because("userfaultfd", what, 0);
    }
    works = works && try_scan(uffd, pagemap, pages);
    close(uffd);
    return works;
}

static bool try_soft_dirty(int pagemap, const char *pages) {
    uint64_t entry = 0;
    ssize_t n =
        pread(pagemap, &entry, sizeof entry, (off_t)((uint64_t)pages / PAGE * sizeof entry));
    if (n != (ssize_t)sizeof entry || !(entry >> 63) || !(entry >> 55 & 1)) {
        because("soft-dirty", "the kernel is built without CONFIG_MEM_SOFT_DIRTY", 0);
        return false;
    }
    int clear = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (clear < 0) {
        because("soft-dirty", "/proc/self/clear_refs", -errno);
        return false;
    }
    close(clear);
    return true;
}

/* Whether a page of a sealed file that was only read shows as the file's own, and one that was written does not. */
static bool try_file(int pagemap) {
    struct memory_file file = {0};
    struct text why = {0};
    uint64_t entries[TRIED_PAGES] = {0};
    char *pages = mmap(NULL, (size_t)TRIED_PAGES * PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool made =
        pages != MAP_FAILED && memory_file_create(&file, TRIED_PAGES * PAGE, &why) &&
        memory_file_write(&file, 0, (uint64_t)pages, (uint64_t)pages + TRIED_PAGES * PAGE, &why) &&
        memory_file_seal(&file, &why) &&
        memory_file_map(&file, 0, (uint64_t)pages, (uint64_t)pages + TRIED_PAGES * PAGE,
            PROT_READ | PROT_WRITE, &why);
    bool works = false;
    if (made) {
        (void)*(volatile const char *)pages;
        ((volatile char *)pages)[PAGE] = 1;
        ssize_t n = pread(
            pagemap, entries, sizeof entries, (off_t)((uint64_t)pages / PAGE * sizeof *entries));
        /* bits 63: present, 62: swapped, 61: a file's */
        works = n == (ssize_t)sizeof entries && entries[0] >> 61 == 5 && entries[1] >> 61 == 4;
    }
    if (!works) {
        because("file", made ? "/proc/self/pagemap does not show written pages"
                : why.len != 0 ? why.data : "no memory", 0);
    }
    memory_file_close(&file);
    munmap(pages, (size_t)TRIED_PAGES * PAGE);
    return works;
}

enum snapshot_tracker snapshot_probe(const char **why) {
    enum snapshot_tracker found = SNAPSHOT_TRACKER_NONE;
    const char *wanted = getenv("HEARTH_SNAPSHOT_TRACKER");
    bool any = wanted == NULL || *wanted == 0;
    reason[0] = 0;
    *why = reason;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) {
        because("snapshots", "/proc/self/pagemap", -errno);
        return found;
    }
    char *pages = mmap(NULL, (size_t)TRIED_PAGES * PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        because("snapshots", "no memory", -errno);
        close(pagemap);
        return found;
    }
    madvise(pages, (size_t)TRIED_PAGES * PAGE, MADV_NOHUGEPAGE);
    ((volatile char *)pages)[0] = 1;
    ((volatile char *)pages)[PAGE] = 1;
    if ((any || strcmp(wanted, "file") == 0) && try_file(pagemap)) {
        found = SNAPSHOT_TRACKER_FILE;
    } else if ((any || strcmp(wanted, "userfaultfd") == 0) && try_userfaultfd(pagemap, pages)) {
        found = SNAPSHOT_TRACKER_USERFAULTFD;
    } else if ((any || strcmp(wanted, "soft-dirty") == 0) && try_soft_dirty(pagemap, pages)) {
        found = SNAPSHOT_TRACKER_SOFT_DIRTY;
    } else if (!any && strcmp(wanted, "none") == 0) {
        because("snapshots", "HEARTH_SNAPSHOT_TRACKER=none", 0);
    } else if (!any && reason[0] == 0) {
        because("snapshots", "HEARTH_SNAPSHOT_TRACKER names no tracker", 0);
    }
    munmap(pages, (size_t)TRIED_PAGES * PAGE);
    close(pagemap);
    return found;
}

#endif
