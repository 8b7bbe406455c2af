/* What the kernel offers and older headers (bookworm's are those of 6.1) do not name. Include: after <linux/userfaultfd.h>. */
#ifndef HEARTH_SNAPSHOT_KERNEL_H
#define HEARTH_SNAPSHOT_KERNEL_H

#include <stdint.h>
#include <sys/ioctl.h>

/* Documentation/admin-guide/mm/pagemap.rst, Linux 6.7 */
struct pagemap_span {
    uint64_t start, end, categories;
};
struct pagemap_scan {
    uint64_t size, flags, start, end, walk_end, spans, spans_len, max_pages, category_inverted,
        category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_CALL _IOWR('f', 16, struct pagemap_scan)
enum {
    CATEGORY_WPALLOWED = 1,
    CATEGORY_WRITTEN = 2,
    CATEGORY_FILE = 4, /* the file's own page, not a copy that was written to */
    CATEGORY_PRESENT = 8,
    CATEGORY_SWAPPED = 16,
    CATEGORY_PFNZERO = 32, /* present, and nothing but the shared page of zeros */
};
enum { SCAN_WP_MATCHING = 1 };

/* Documentation/admin-guide/mm/userfaultfd.rst */
enum {
    UFFD_WP_UNPOPULATED = 1 << 13,
    UFFD_WP_ASYNC = 1 << 15,
    UFFD_ONLY_USER_MODE = 1, /* UFFD_USER_MODE_ONLY */
};
#define UFFD_DEVICE_NEW _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW of /dev/userfaultfd */

enum {
    ADVICE_POPULATE_WRITE = 23, /* Linux 5.14 */
    DESCRIPTOR_QUERY = 1027,    /* fcntl F_DUPFD_QUERY, Linux 6.10: is it the same open file? */
    SAME_FILE = 0,              /* KCMP_FILE of kcmp(2) */
    SAME_MEMORY = 1,            /* KCMP_VM */
    WAIT_ALL = 0x40000000,      /* __WALL of wait4(2) */
};

#endif
