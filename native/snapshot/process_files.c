/* Attributes that a process may write to its own files below /proc: OOM score, core filter, timer slack, autogroup. The name,
 * which has a file too, is in attributes.c.
 *
 * Promises
 * - All but the autogroup are restored. The kernel accepts a new priority of an autogroup only once in 100 ms, so a change
 *   retires the process.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static int own(const char *path, int flags, const char *name, bool optional) {
    long fd = raw_open(path, flags | O_CLOEXEC);
    return fd == -ENOENT && optional ? -1 : descriptors_own(fd, name);
}

void process_files_open(void) {
    struct engine_descriptors *fds = &engine->fds;
    struct stat status;
    fds->kill_score = own("/proc/self/oom_score_adj", O_RDWR, "oom_score_adj", false);
    fds->core_filter = own("/proc/self/coredump_filter", O_RDWR, "coredump_filter", true);
    fds->autogroup = own("/proc/self/autogroup", O_RDONLY, "autogroup", true);
    if (raw(SYS_fstat, fds->kill_score, &status) != 0) {
        retire("/proc/self/oom_score_adj cannot be looked at");
    }
    engine->proc_device = status.st_dev;
}

static void read_one(int fd, char text[PROCESS_FILE], const char *why) {
    memset(text, 0, PROCESS_FILE);
    if (fd >= 0 && raw(SYS_pread64, fd, text, PROCESS_FILE, 0) < 0) {
        retire(why);
    }
}

/* `prefix` is what the kernel wants before the number that it prints. */
static void put_back(int fd, const char *prefix, const char then[PROCESS_FILE], const char *why) {
    char now[PROCESS_FILE];
    read_one(fd, now, why);
    if (memcmp(now, then, PROCESS_FILE) == 0) {
        return;
    }
    struct text text = {0};
    text_add(&text, prefix);
    text_add(&text, then);
    if (raw(SYS_pwrite64, fd, text.data, text.len, 0) != (long)text.len) {
        retire(why);
    }
}

void process_files_take(void) {
    struct attributes *then = &engine->attributes;
    const struct engine_descriptors *fds = &engine->fds;
    read_one(fds->kill_score, then->kill_score, "/proc/self/oom_score_adj cannot be read");
    read_one(fds->core_filter, then->core_filter, "/proc/self/coredump_filter cannot be read");
    read_one(fds->autogroup, then->autogroup, "/proc/self/autogroup cannot be read");
    then->timer_slack = raw(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0);
}

void process_files_put_back(void) {
    const struct attributes *then = &engine->attributes;
    const struct engine_descriptors *fds = &engine->fds;
    put_back(fds->kill_score, "", then->kill_score, "/proc/self/oom_score_adj cannot be put back");
    put_back(
        fds->core_filter, "0x", then->core_filter, "/proc/self/coredump_filter cannot be put back");
    char now[PROCESS_FILE];
    read_one(fds->autogroup, now, "/proc/self/autogroup cannot be read");
    if (memcmp(now, then->autogroup, sizeof now) != 0) {
        retire("the process's autogroup was changed");
    }
    if (raw(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0) != then->timer_slack) {
        raw(SYS_prctl, PR_SET_TIMERSLACK, then->timer_slack, 0, 0, 0);
    }
}

#endif
