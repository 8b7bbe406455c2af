/* The kernel's attributes of a process, as they were at the snapshot: attributes.c puts back the first structure, compared_attributes.c compares
 * the second. */
#ifndef HEARTH_SNAPSHOT_ATTRIBUTES_H
#define HEARTH_SNAPSHOT_ATTRIBUTES_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/time.h>

struct kernel_action {
    uint64_t handler, flags, restorer, mask;
};

enum {
    PROCESS_FILE = 48,     /* bytes of a file of /proc/self, at most */
    PROCESSORS_MAX = 1024, /* with more, affinity is not compared */
};

struct attributes {
    uint64_t mask;    /* of blocked signals */
    uint64_t pending; /* signals */
    char kill_score[PROCESS_FILE], core_filter[PROCESS_FILE], autogroup[PROCESS_FILE];
    long timer_slack;
    long io_priority;
    struct kernel_action actions[65];
    stack_t stack;
    struct itimerval timers[3];
    uint8_t timers_run; /* those that ran at the snapshot, a bit each */
    uint64_t
        limit_slack;     /* microseconds of the time limit that a restore may leave used; 0: none */
    uint32_t next_timer; /* the id that the next POSIX timer would get */
    bool posix_timers;
    uint32_t umask;
    char name[16];
};

/* What is compared and not put back: see compared_attributes.c. Without padding that memcmp() would read. */
struct compared_attributes {
    struct rlimit limits[RLIM_NLIMITS];
    uint64_t processors[PROCESSORS_MAX / 64];
    long priority, process_group, session, policy;
    long secure_bits, no_new_rights, keeps_rights, dumpable;
    long filter_mode;
    uint64_t filters;     /* of system calls: how many */
    uint64_t more_groups; /* a hash of them */
    uint32_t users[3], groups[3];
    uint32_t capabilities[6];
    int death_signal, subreaper;
};

#endif
