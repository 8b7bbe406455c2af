/* Kernel constants that older headers (bookworm's are those of 6.1) lack. */
#ifndef HEARTH_SNAPSHOT_KERNEL_H
#define HEARTH_SNAPSHOT_KERNEL_H

enum {
    ADVICE_POPULATE_READ = 22,  /* Linux 5.14 */
    ADVICE_POPULATE_WRITE = 23, /* the same */
    DESCRIPTOR_QUERY = 1027,    /* fcntl F_DUPFD_QUERY, Linux 6.10: is it the same open file? */
    SAME_FILE = 0,              /* KCMP_FILE of kcmp(2) */
    SAME_MEMORY = 1,            /* KCMP_VM */
    WAIT_ALL = 0x40000000,      /* __WALL of wait4(2) */
};

#endif
