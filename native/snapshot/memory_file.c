/* Files in memory that hold pages of a snapshot: memfd_create(2), sealed, so that no process can change what others share.
 *
 * Promises
 * - A failure changes only `why`: memory that was not mapped yet is unchanged.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

bool text_add_failure(struct text *why, const char *what, long error) {
    text_add(why, what);
    text_add(why, ": ");
    switch (-error) {
    case EPERM:
        text_add(why, "operation not permitted");
        break;
    case EACCES:
        text_add(why, "permission denied");
        break;
    case ENOSYS:
        text_add(why, "the kernel does not have this call, or a seccomp filter hides it");
        break;
    case ENOMEM:
        text_add(why, "out of memory or of mappings (vm.max_map_count)");
        break;
    case ENOSPC:
        text_add(why, "no space left");
        break;
    default:
        text_add(why, "error ");
        text_add_number(why, (uint64_t)-error);
    }
    return false;
}

/* The limit counts for files in memory, too, and exceeding it sends SIGXFSZ: setrlimit(2). */
static bool raise_size_limit(struct memory_file *file, struct text *why) {
    raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &file->limit);
    if (file->size <= file->limit.rlim_cur) {
        return true;
    }
    struct rlimit raised = {file->limit.rlim_max, file->limit.rlim_max};
    if (file->size > file->limit.rlim_max ||
        raw(SYS_prlimit64, 0, RLIMIT_FSIZE, &raised, NULL) != 0) {
        text_add(why, "the limit on file sizes (RLIMIT_FSIZE) is ");
        text_add_number(why, file->limit.rlim_max);
        text_add(why, " bytes, and the snapshot needs ");
        text_add_number(why, file->size);
        return false;
    }
    return true;
}

static long create(void) {
    enum { NOEXEC_SEAL = 8 /* Linux 6.3; up to 6.5 vm.memfd_noexec=2 demands it */ };
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    long fd = raw(SYS_memfd_create, "hearth-snapshot", flags | NOEXEC_SEAL);
    return fd == -EINVAL ? raw(SYS_memfd_create, "hearth-snapshot", flags) : fd;
}

bool memory_file_create(struct memory_file *file, uint64_t size, struct text *why) {
    memset(file, 0, sizeof *file);
    long fd = create();
    if (fd < 0) {
        return text_add_failure(why, "memfd_create", fd);
    }
    file->fd = (int)fd;
    file->size = size;
    if (!raise_size_limit(file, why)) {
        return false;
    }
    long r = raw(SYS_ftruncate, fd, size);
    return r == 0 || text_add_failure(why, "a memfd cannot grow", r);
}

void memory_file_close(struct memory_file *file) {
    if (file->fd > 0) {
        raw(SYS_prlimit64, 0, RLIMIT_FSIZE, &file->limit, NULL);
        raw(SYS_close, file->fd);
        file->fd = 0;
    }
}

bool memory_file_write(const struct memory_file *file, uint64_t offset, uint64_t start,
    uint64_t end, struct text *why) {
    while (start < end) {
        long n = raw(SYS_pwrite64, file->fd, start, end - start, offset);
        if (n <= 0) {
            return text_add_failure(why, "a memfd cannot be written", n);
        }
        start += (uint64_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

bool memory_file_seal(struct memory_file *file, struct text *why) {
    const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    enum { ATTEMPTS = 8 };
    long r;
    /* The kernel refuses while anything else refers to one of the pages: a processor's list of new pages, or memory
     * that is being compacted. Each attempt empties those lists and then waits for 0.15 s: mm/memfd.c, memfd_wait_for_pins(). */
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        r = raw(SYS_fcntl, file->fd, F_ADD_SEALS, seals);
        if (r != -EBUSY) {
            break;
        }
    }
    return r == 0 || text_add_failure(why, "a memfd cannot be sealed", r);
}

bool memory_file_view(struct memory_file *file, struct text *why) {
    /* Not MAP_SHARED: before Linux 6.7 a file sealed against writing refuses that. */
    long view =
        raw(SYS_mmap, NULL, file->size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file->fd, 0);
    if (raw_failed(view)) {
        return text_add_failure(why, "a memfd cannot be mapped", view);
    }
    file->view = (const char *)view;
    return true;
}

bool memory_file_map(const struct memory_file *file, uint64_t offset, uint64_t start, uint64_t end,
    int protection, struct text *why) {
    long r = raw(SYS_mmap, start, end - start, protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
        file->fd, offset);
    return !raw_failed(r) || text_add_failure(why, "memory cannot be mapped from a memfd", r);
}

#endif
