/* Descriptors: the engine's own, and those of the boot, recognised by duplicates.
 *
 * Promises
 * - After descriptors_put_back() the boot's descriptors are the same open files under the same numbers, with the snapshot's offsets. All others
 *   are closed, except the engine's. A missing or changed one retires the process.
 * - Closing the descriptors of a request must look at few numbers, because the kernel goes through its whole table, and in one call. So the table is
 *   full up to some numbers for the request, which are its last.
 * - Offsets of 0 to 2 are not changed, because they are shared with the process that started the server. Those of files opened for appending
 *   alone are restored at the complete check only, because writing does not use them.
 * - Locks of a request are released. A file that the boot has locked has the same locks as at the snapshot, else the process retires. Record locks, which
 *   no other process can change, are compared only if a call was seen that can change them, and if `thorough`.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "snapshot/text.h"

enum {
    FOR_REQUESTS =
        12, /* numbers at the table's end. A request that needs more makes the table larger */
    FILLERS_MAX = 128,
    HOLES_MAX = 8,
};

/* The engine's next number. */
static int next_own(void) {
    const struct engine *e = engine;
    return e->fds.first != 0 ? e->fds.last + 1 : e->descriptor_max + 1;
}

int descriptors_own(long fd, const char *what) {
    struct engine *e = engine;
    long own = fd;
    int from = next_own();
    if (fd >= 0 && fd != from) { /* moved away from there, it would leave a free number */
        own = raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
    }
    if (own < 0) {
        struct text text = {0};
        text_add(&text, "no descriptor for ");
        text_add(&text, what);
        text_add(&text, ": error ");
        text_add_number(&text, (uint64_t)-own);
        retire_text(&text);
    }
    if (own != fd) {
        raw(SYS_close, fd);
    }
    if (e->fds.first == 0) {
        e->fds.first = (int)own;
    }
    e->fds.last = (int)own;
    return (int)own;
}

struct directory_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t len;
    uint8_t type;
    char name[];
};

/* Fills the numbers of all open descriptors, in order. */
static void list(void) {
    struct engine *e = engine;
    long fd = raw_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        retire("/proc/self/fd cannot be read");
    }
    long n;
    while ((n = raw(SYS_getdents64, fd, e->buffer, sizeof e->buffer)) > 0) {
        for (long at = 0; at < n;) {
            const struct directory_entry *entry = (const struct directory_entry *)(e->buffer + at);
            at += entry->len;
            int number = 0;
            const char *digit = entry->name;
            for (; *digit >= '0' && *digit <= '9'; digit++) {
                number = number * 10 + (*digit - '0');
            }
            if (digit == entry->name || number == fd) {
                continue;
            }
            if (e->descriptor_count == DESCRIPTORS_MAX) {
                retire("the booted application has more than 1024 descriptors open");
            }
            uint32_t to = e->descriptor_count++;
            for (; to > 0 && e->descriptors[to - 1].fd > number; to--) {
                e->descriptors[to] = e->descriptors[to - 1];
            }
            e->descriptors[to].fd = number;
        }
    }
    raw(SYS_close, fd);
}

static void describe(struct descriptor *descriptor) {
    struct stat status;
    int fd = descriptor->fd;
    raw(SYS_fstat, fd, &status);
    descriptor->device = status.st_dev;
    descriptor->inode = status.st_ino;
    descriptor->special = status.st_rdev;
    descriptor->mode = status.st_mode & S_IFMT;
    descriptor->descriptor_flags = (int)raw(SYS_fcntl, fd, F_GETFD, 0);
    descriptor->status_flags = (int)raw(SYS_fcntl, fd, F_GETFL, 0);
    bool seeks = (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) && fd > 2;
    descriptor->appends = (descriptor->status_flags & O_APPEND) != 0 &&
                          (descriptor->status_flags & O_ACCMODE) == O_WRONLY;
    /* an O_PATH descriptor has none either */
    descriptor->offset = seeks ? raw(SYS_lseek, fd, 0, SEEK_CUR) : -1;
}

/* Opens what the kernel tells of a descriptor (proc_pid_fdinfo(5)). Negative: a /proc that hides it. */
static long open_information(int fd) {
    struct text path = {0};
    text_add(&path, "/proc/self/fdinfo/");
    text_add_number(&path, (uint64_t)fd);
    return raw_open(path.data, O_RDONLY | O_CLOEXEC);
}

/* Returns the locks that are held through this open file: record locks by this process, those of flock() and F_OFD_SETLK by the open file itself. NULL:
 * none. There is a line for each, in the engine's buffer; /proc/locks names no process for those of open files. */
static const char *read_locks(long information) {
    struct engine *e = engine;
    if (information == -ENOENT || information == -EACCES) {
        return NULL;
    }
    long len = information < 0 ? information
                               : raw(SYS_pread64, information, e->buffer, sizeof e->buffer - 1, 0);
    if (len < 0) { /* no memory, or no descriptor: restores would release a lock of the boot */
        retire("/proc/self/fdinfo cannot be read, which tells of the boot's locks");
    }
    e->buffer[len] = 0;
    return strstr(e->buffer, "\nlock:");
}

static uint64_t hash_locks(const char *locks) {
    return locks == NULL ? 0 : hash_bytes(locks, strlen(locks));
}

/* Returns whether they are all this process's own. Those of an open file can be changed by any process that has it, and a lease ends when another process
 * opens the file. A line: `lock: 1: POSIX  ADVISORY  WRITE ...`. */
static bool are_record_locks(const char *locks) {
    for (const char *lock = locks; lock != NULL; lock = strstr(lock + 1, "\nlock:")) {
        const char *kind = strstr(lock, ": ");
        if (kind == NULL || strncmp(kind, ": POSIX ", 8) != 0) {
            return false;
        }
    }
    return locks != NULL;
}

/* Locks that the boot holds do not belong to a request. Record locks belong to the file, whatever the descriptor, so all locks of such a file
 * are kept. */
static void find_locks(void) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        struct descriptor *of = &e->descriptors[i];
        if (of->mode != S_IFREG) {
            continue;
        }
        long information = open_information(of->fd);
        const char *locks = read_locks(information);
        of->locks = hash_locks(locks);
        of->record_locks = are_record_locks(locks);
        raw(SYS_close, information);
        if (of->locks == 0) {
            continue;
        }
        for (uint32_t j = 0; j < e->descriptor_count; j++) {
            struct descriptor *same = &e->descriptors[j];
            if (same->device == of->device && same->inode == of->inode) {
                same->locked = true;
            }
        }
    }
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        if (e->descriptors[i].locked) {
            e->has_locks = true;
            e->descriptors[i].information =
                descriptors_own(open_information(e->descriptors[i].fd), "the boot's locks");
        }
    }
}

static enum identity choose_identity(void) {
    struct engine *e = engine;
    int fd = e->fds.maps;
    if (raw(SYS_fcntl, fd, DESCRIPTOR_QUERY, fd) == 1) {
        return IDENTITY_QUERY;
    }
    long pid = raw(SYS_getpid);
    return raw(SYS_kcmp, pid, pid, SAME_FILE, fd, fd) == 0 ? IDENTITY_KCMP : IDENTITY_STAT;
}

/* Takes the places of the kernel's table behind the engine's descriptors, up to the last ones. If these are too few the table is made larger
 * now. A table with many free places is left as it is. */
static void fill_table(void) {
    struct engine *e = engine;
    uint64_t size = status_number("\nFDSize:");
    for (int taken = 0; taken < FILLERS_MAX; taken++) {
        uint64_t used = (uint64_t)e->fds.last + 1;
        if (used + FOR_REQUESTS == size || size > used + FILLERS_MAX) {
            return;
        }
        long fd = raw(SYS_fcntl, e->fds.tasks, F_DUPFD_CLOEXEC, used);
        if (fd != (long)used) {
            raw(SYS_close, fd);
            return;
        }
        e->fds.last = (int)fd;
        if (used >= size) {
            size = status_number("\nFDSize:");
        }
    }
}

/* Fills single numbers that the boot has closed again, so that all free numbers are side by side. From then on they count as the boot's. */
static void fill_holes(void) {
    struct engine *e = engine;
    int holes = (int)e->descriptor_count == 0
                    ? 0
                    : e->descriptors[e->descriptor_count - 1].fd + 1 - (int)e->descriptor_count;
    if (holes == 0 || holes > HOLES_MAX) {
        return;
    }
    for (int i = 0; i < holes; i++) {
        raw_open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    e->descriptor_count = 0;
    list();
}

/* The numbers between and around the boot's and the engine's. */
static void find_gaps(void) {
    struct engine *e = engine;
    uint64_t next = 0;
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        uint64_t fd = (uint64_t)e->descriptors[i].fd;
        if (fd > next) {
            e->gaps[e->gap_count++] = (struct range){next, fd - 1};
        }
        next = fd + 1;
    }
    if ((uint64_t)e->fds.first > next) {
        e->gaps[e->gap_count++] = (struct range){next, (uint64_t)e->fds.first - 1};
    }
    e->gaps[e->gap_count++] = (struct range){(uint64_t)e->fds.last + 1, UINT32_MAX};
}

void descriptors_take(void) {
    struct engine *e = engine;
    struct engine_descriptors *fds = &e->fds;
    memset(fds, 0, sizeof *fds);
    e->descriptor_count = e->gap_count = 0;
    e->has_locks = false;
    list();
    fill_holes();
    e->descriptor_max = e->descriptor_count > 0 ? e->descriptors[e->descriptor_count - 1].fd : -1;
    fds->maps = descriptors_own(raw_open("/proc/self/maps", O_RDONLY | O_CLOEXEC), "maps");
    fds->statm = descriptors_own(raw_open("/proc/self/statm", O_RDONLY | O_CLOEXEC), "statm");
    fds->status = descriptors_own(raw_open("/proc/self/status", O_RDONLY | O_CLOEXEC), "status");
    fds->tasks =
        descriptors_own(raw_open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "task");
    fds->directory =
        descriptors_own(raw_open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), "the current directory");
    process_files_open();
    pagemap_open();
    e->identity = choose_identity();
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        struct descriptor *descriptor = &e->descriptors[i];
        describe(descriptor);
        /* At its number at once: closing a duplicate would release the record locks of the boot. */
        descriptor->twin =
            descriptors_own(raw(SYS_fcntl, descriptor->fd, F_DUPFD_CLOEXEC, next_own()),
                "a duplicate of the boot's");
    }
    find_locks();
    fill_table();
    find_gaps();
}

/* Returns whether `fd` is still the same open file. */
static bool is_same(const struct descriptor *descriptor) {
    struct stat status;
    long pid;
    switch (engine->identity) {
    case IDENTITY_QUERY:
        return raw(SYS_fcntl, descriptor->fd, DESCRIPTOR_QUERY, descriptor->twin) == 1;
    case IDENTITY_KCMP:
        pid = raw(SYS_getpid);
        return raw(SYS_kcmp, pid, pid, SAME_FILE, descriptor->fd, descriptor->twin) == 0;
    case IDENTITY_STAT:
        break;
    }
    return raw(SYS_fstat, descriptor->fd, &status) == 0 && status.st_dev == descriptor->device &&
           status.st_ino == descriptor->inode && status.st_rdev == descriptor->special &&
           (status.st_mode & S_IFMT) == descriptor->mode;
}

static _Noreturn void retire_for(const struct descriptor *descriptor) {
    struct text text = {0};
    text_add(&text, "the request closed or replaced descriptor ");
    text_add_number(&text, (uint64_t)descriptor->fd);
    text_add(&text, ", which the boot had opened");
    retire_text(&text);
}

static void put_back_flags(const struct descriptor *descriptor) {
    if (raw(SYS_fcntl, descriptor->fd, F_GETFD, 0) != descriptor->descriptor_flags) {
        raw(SYS_fcntl, descriptor->fd, F_SETFD, descriptor->descriptor_flags);
    }
    if (raw(SYS_fcntl, descriptor->fd, F_GETFL, 0) != descriptor->status_flags) {
        raw(SYS_fcntl, descriptor->fd, F_SETFL, descriptor->status_flags);
    }
}

/* Calls that need them fail anyway when one is closed; this finds one that is another file now. */
static void check_own(void) {
    struct engine *e = engine;
    struct stat status;
    for (int fd = e->fds.first; fd <= e->fds.last; fd++) {
        if (raw(SYS_fcntl, fd, F_GETFD, 0) != FD_CLOEXEC) {
            retire("the request closed a descriptor of the engine");
        }
    }
    if (raw(SYS_fstat, e->fds.tasks, &status) != 0 || !S_ISDIR(status.st_mode)) {
        retire("the request replaced a descriptor of the engine");
    }
}

/* Record locks belong to the process, and those of flock() to the open file: neither ends with the request. */
static void unlock(const struct descriptor *descriptor) {
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    raw(SYS_fcntl, descriptor->fd, F_SETLK, &whole);
    raw(SYS_fcntl, descriptor->fd, F_OFD_SETLK, &whole);
    raw(SYS_flock, descriptor->fd, LOCK_UN);
}

/* Locks that the boot holds are lost when the request, or this restore, closes any descriptor of the file (fcntl(2)). Taking them again would not
 * help: another process may have changed what they protected. */
static void compare_locks(const struct descriptor *descriptor) {
    if (hash_locks(read_locks(descriptor->information)) != descriptor->locks) {
        retire("the request changed or lost a lock on a file that the boot had locked");
    }
}

void descriptors_put_back(bool thorough, bool had_children) {
    struct engine *e = engine;
    /* Locks of flock() and status flags belong to the open file, which a child has, too. */
    bool children = thorough || had_children || (e->touched & TOUCHED_CHILDREN) != 0;
    bool locks = children || (e->touched & TOUCHED_LOCKS) != 0;
    bool identity = thorough || (e->touched & TOUCHED_IDENTITY) != 0;
    bool flags = children || (e->touched & TOUCHED_FLAGS) != 0;
    /* Threads have the same descriptors, and a child may have them, too (CLONE_FILES). */
    bool record_locks = locks || identity || (e->touched & (TOUCHED_OPENED | TOUCHED_THREADS)) != 0;
    if (identity) {
        check_own();
    }
    for (uint32_t i = 0; i < e->gap_count; i++) {
        raw(SYS_close_range, e->gaps[i].start, e->gaps[i].end, 0);
    }
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        const struct descriptor *descriptor = &e->descriptors[i];
        /* No call was seen that could have closed one: a position that can be put back is proof enough. */
        bool there = !identity || is_same(descriptor);
        if (!there || (descriptor->offset >= 0 && (identity || !descriptor->appends) &&
                          raw(SYS_lseek, descriptor->fd, descriptor->offset, SEEK_SET) < 0)) {
            retire_for(descriptor);
        }
        if (flags) {
            put_back_flags(descriptor);
        }
        if (descriptor->locked) {
            if (record_locks || !descriptor->record_locks) {
                compare_locks(descriptor);
            }
        } else if (locks && descriptor->mode == S_IFREG) {
            unlock(descriptor);
        }
    }
}

void snapshot_leave_to_parent(void) {
    struct engine *e = engine;
    if (e != NULL && e->taken && e->fds.first > 0) {
        raw(SYS_close_range, e->fds.first, e->fds.last, 0);
    }
}

#endif
