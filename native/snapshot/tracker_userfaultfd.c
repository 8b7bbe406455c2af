/* Written pages by userfaultfd's asynchronous write protection and PAGEMAP_SCAN, Linux 6.7.
 * Documentation/admin-guide/mm/userfaultfd.rst, pagemap.rst */
#include "snapshot/tracker.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>

static void retire_with(const char *what, long error) {
    struct text text = {0};
    text_add(&text, what);
    text_add(&text, " failed with error ");
    text_add_number(&text, (uint64_t)-error);
    retire_text(&text);
}

static void open_descriptors(void) {
    struct engine_descriptors *fds = &engine->fds;
    fds->userfaultfd = descriptors_own(probe_userfaultfd(), "userfaultfd");
    fds->pagemap = descriptors_own(
        raw(SYS_open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0), "/proc/self/pagemap");
    struct uffdio_api api = {UFFD_API, UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED, 0};
    long r = raw(SYS_ioctl, fds->userfaultfd, UFFDIO_API, &api);
    if (r != 0) {
        retire_with("UFFDIO_API", r);
    }
}

static bool watch(uint64_t start, uint64_t end) {
    struct uffdio_register what = {{start, end - start}, UFFDIO_REGISTER_MODE_WP, 0};
    return raw(SYS_ioctl, engine->fds.userfaultfd, UFFDIO_REGISTER, &what) == 0;
}

/* Asking for pages that are present or swapped out keeps the kernel off the path that reports holes as written. */
static uint32_t scan(
    uint64_t *from, uint64_t end, bool written, struct pagemap_span *spans, uint32_t max) {
    uint64_t pages = (end - *from) / PAGE;
    struct pagemap_scan scan = {
        .size = sizeof scan,
        .start = *from,
        .end = end,
        .spans = (uint64_t)spans,
        .spans_len = pages < max ? pages : max, /* the kernel allocates as many */
        .category_mask = written ? CATEGORY_WPALLOWED | CATEGORY_WRITTEN : 0,
        .category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED,
        .return_mask = CATEGORY_WRITTEN | CATEGORY_PFNZERO |
                       (written ? 0 : CATEGORY_WPALLOWED | CATEGORY_FILE | CATEGORY_PRESENT),
    };
    long r = raw(SYS_ioctl, engine->fds.pagemap, PAGEMAP_SCAN_CALL, &scan);
    if (r < 0) {
        retire_with("PAGEMAP_SCAN", r);
    }
    *from = scan.walk_end;
    return (uint32_t)r;
}

static void protect(uint64_t start, uint64_t end) {
    struct pagemap_scan scan = {
        .size = sizeof scan,
        .flags = SCAN_WP_MATCHING,
        .start = start,
        .end = end,
        .category_mask = CATEGORY_WPALLOWED | CATEGORY_WRITTEN,
        .category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED,
    };
    long r = raw(SYS_ioctl, engine->fds.pagemap, PAGEMAP_SCAN_CALL, &scan);
    if (r < 0) {
        retire_with("write protection", r);
    }
}

static void protect_all(void) {
    for (uint32_t i = 0; i < engine->region_count; i++) {
        protect(engine->regions[i].start, engine->regions[i].end);
    }
}

const struct tracker tracker_userfaultfd = {open_descriptors, watch, scan, protect, protect_all, false};

#endif
