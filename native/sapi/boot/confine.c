/* See confine.h. landlock(7): a process can inspect (ptrace(2) access) and signal only processes
 * in its own domain or below it. Each worker enters its own domain below the zygote's. */
#include "sapi/boot/confine.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* include/uapi/linux/landlock.h, of Linux 6.12; headers of the system may be older. */
struct ruleset {
    uint64_t handled_access_fs, handled_access_net, scoped;
};
enum {
    VERSION = 1, /* LANDLOCK_CREATE_RULESET_VERSION */
    MAKE_BLOCK =
        1
        << 11, /* LANDLOCK_ACCESS_FS_MAKE_BLOCK: a domain has to refuse something, and no application needs this */
    SCOPE_SIGNAL = 1 << 1,
    FIRST_WITH_SCOPES = 6,
};

bool confine_worker(void) {
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION);
    if (version < 0 && errno != ENOSYS && errno != EOPNOTSUPP) {
        fprintf(stderr, "hearth-worker: Landlock cannot be asked for: %s\n", strerror(errno));
        return false;
    }
    if (version < 1) {
        return true;
    }
    struct ruleset wanted = {.handled_access_fs = MAKE_BLOCK};
    size_t size = sizeof wanted.handled_access_fs;
    if (version >= FIRST_WITH_SCOPES) {
        wanted.scoped = SCOPE_SIGNAL;
        size = sizeof wanted;
    }
    int rules = (int)syscall(SYS_landlock_create_ruleset, &wanted, size, 0);
    bool confined = rules >= 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    if (!confined) {
        fprintf(stderr, "hearth-worker: cannot be confined: %s\n", strerror(errno));
    }
    if (rules >= 0) {
        close(rules);
    }
    return confined;
}
