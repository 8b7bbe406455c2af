/* What the kernel knows of the process that a restore can read and not put back: limits, users and groups, rights, processors, filters of
 * system calls.
 *
 * Promises
 * - compared_attributes_check() retires the process if any of it is not the snapshot's.
 * - The policies that the server itself changes (sapi/request/scheduling.c) count as one.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* A hash of the supplementary groups, which are in the kernel's order. */
static uint64_t hash_groups(void) {
    struct engine *e = engine;
    long count = raw(SYS_getgroups, sizeof e->buffer / sizeof(uint32_t), e->buffer);
    return hash_bytes(e->buffer, count > 0 ? (size_t)count * sizeof(uint32_t) : 0);
}

static void read_rights(struct compared_attributes *now) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    _Static_assert(sizeof now->capabilities == 2 * sizeof(struct __user_cap_data_struct), "");
    raw(SYS_capget, &header, now->capabilities);
    now->secure_bits = raw(SYS_prctl, PR_GET_SECUREBITS, 0, 0, 0, 0);
    now->no_new_rights = raw(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    now->keeps_rights = raw(SYS_prctl, PR_GET_KEEPCAPS, 0, 0, 0, 0);
    now->dumpable = raw(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
    raw(SYS_prctl, PR_GET_PDEATHSIG, &now->death_signal, 0, 0, 0);
    raw(SYS_prctl, PR_GET_CHILD_SUBREAPER, &now->subreaper, 0, 0, 0);
    now->filter_mode = raw(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0);
    now->filters = status_number("\nSeccomp_filters:"); /* since Linux 5.9 */
}

static void read_all(struct compared_attributes *now) {
    memset(now, 0, sizeof *now);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        raw(SYS_prlimit64, 0, i, NULL, &now->limits[i]);
    }
    raw(SYS_getresuid, &now->users[0], &now->users[1], &now->users[2]);
    raw(SYS_getresgid, &now->groups[0], &now->groups[1], &now->groups[2]);
    now->more_groups = hash_groups();
    now->priority = raw(SYS_getpriority, PRIO_PROCESS, 0);
    now->process_group = raw(SYS_getpgid, 0);
    now->session = raw(SYS_getsid, 0);
    /* fails, and leaves zeros, where the kernel may have more processors */
    raw(SYS_sched_getaffinity, 0, sizeof now->processors, now->processors);
    long policy = raw(SYS_sched_getscheduler, 0);
    now->policy = policy == SCHED_BATCH ? SCHED_OTHER : policy;
    read_rights(now);
}

void compared_attributes_take(void) {
    read_all(&engine->compared);
}

void compared_attributes_check(void) {
    const struct compared_attributes *then = &engine->compared;
    struct compared_attributes now;
    read_all(&now);
    if (memcmp(then->limits, now.limits, sizeof then->limits) != 0) {
        retire("a resource limit was changed");
    }
    if (memcmp(then->users, now.users, sizeof then->users) != 0 ||
        memcmp(then->groups, now.groups, sizeof then->groups) != 0 ||
        then->more_groups != now.more_groups) {
        retire("the process's user or groups were changed");
    }
    if (then->priority != now.priority || then->process_group != now.process_group ||
        then->session != now.session) {
        retire("the process's priority, group or session was changed");
    }
    if (memcmp(then->processors, now.processors, sizeof then->processors) != 0 ||
        then->policy != now.policy) {
        retire("the process's processors or scheduling policy were changed");
    }
    if (memcmp(then, &now, sizeof now) != 0) {
        retire("the process's capabilities or filters of system calls were changed");
    }
}

#endif
