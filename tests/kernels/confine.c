/* Runs a program as a container engine would: under its default seccomp profile, with its default capabilities, or as an unprivileged user.
 * usage: confine [--profile docker|containerd|podman] [--refuse CALL] [--capabilities docker|podman|none] [--user ID] PROGRAM [ARGUMENT...]
 *
 * The filter is built from seccomp.table (seccomp(2)); nothing of a container but what the options name is set up here.
 * The program's own calls after the filter are those that every profile allows. */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum profile { NO_PROFILE = 0, DOCKER = 1, CONTAINERD = 2, PODMAN = 4, PODMAN_EPERM = 8 };

/* Generated from seccomp.table: {number, profiles}, for the calls that this architecture has. */
static const struct {
    int number;
    unsigned profiles;
} table[] = {
#include "seccomp_table.h"
};

static const struct {
    const char *name;
    int number;
} refusable[] = {
    {"close_range", SYS_close_range},
    {"memfd_create", SYS_memfd_create},
    {"userfaultfd", SYS_userfaultfd},
};

/* linux/capability.h; the defaults of Docker (and of containerd), and of Podman 4. */
static const unsigned char docker_capabilities[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FSETID,
    CAP_FOWNER, CAP_MKNOD, CAP_NET_RAW, CAP_SETGID, CAP_SETUID, CAP_SETFCAP, CAP_SETPCAP,
    CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_KILL, CAP_AUDIT_WRITE};
static const unsigned char podman_capabilities[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FSETID,
    CAP_FOWNER, CAP_SETGID, CAP_SETUID, CAP_SETFCAP, CAP_SETPCAP, CAP_NET_BIND_SERVICE,
    CAP_SYS_CHROOT, CAP_KILL};

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* linux/fs.h since 6.7, _IOWR('f', 16, struct pm_scan_arg); linux/userfaultfd.h, of /dev/userfaultfd. */
enum { PAGEMAP_SCAN_REQUEST = (int)0xc0606610, USERFAULTFD_NEW_REQUEST = 0xaa00 };

static struct sock_filter filter[4096];
static unsigned short filter_length;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    exit(126);
}

static void add(uint16_t code, uint8_t when_true, uint8_t when_false, uint32_t value) {
    filter[filter_length++] = (struct sock_filter){code, when_true, when_false, value};
}

static void answer(uint32_t with) {
    add(BPF_RET | BPF_K, 0, 0, with);
}

static void load(size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* The lower half of an argument of the call; both architectures are little-endian. */
static size_t argument(unsigned number) {
    return offsetof(struct seccomp_data, args) + number * sizeof(uint64_t);
}

static uint32_t refuse(int error) {
    return SECCOMP_RET_ERRNO | (uint32_t)error;
}

static void answer_to(int call, uint32_t with) {
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)call);
    answer(with);
}

/* The next `length` instructions belong to this call. */
static void of_call(int call, uint8_t length) {
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, length, (uint32_t)call);
}

/* Calls whose result depends on arguments, as in the profiles for a container without CAP_SYS_ADMIN. */
static void add_conditions(enum profile profile) {
    const uint32_t otherwise = refuse(profile == PODMAN ? ENOSYS : EPERM);
    if (profile == PODMAN) {
        answer_to(SYS_clone, SECCOMP_RET_ALLOW);
        answer_to(SYS_clone3, SECCOMP_RET_ALLOW);
        of_call(SYS_socket, 6); /* NETLINK_AUDIT belongs to CAP_AUDIT_WRITE */
        load(argument(0));
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 16); /* AF_NETLINK */
        load(argument(2));
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 9);
        answer(refuse(EINVAL));
        answer(SECCOMP_RET_ALLOW);
    } else {
        of_call(SYS_clone, 4); /* flags of new namespaces */
        load(argument(0));
        add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, 0x7e020000);
        answer(otherwise);
        answer(SECCOMP_RET_ALLOW);
        answer_to(SYS_clone3, refuse(ENOSYS));
        of_call(SYS_socket, 5);
        load(argument(0));
        add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 38); /* AF_ALG */
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 40); /* AF_VSOCK */
        answer(otherwise);
        answer(SECCOMP_RET_ALLOW);
    }
    static const uint32_t personalities[] = {0, 8, 0x20000, 0x20008, UINT32_MAX};
    const uint8_t count = sizeof personalities / sizeof personalities[0];
    of_call(SYS_personality, (uint8_t)(3 + count));
    load(argument(0));
    for (uint8_t i = 0; i < count; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, personalities[i]);
    }
    answer(otherwise);
    answer(SECCOMP_RET_ALLOW);
}

static void add_profile(enum profile profile) {
    add_conditions(profile);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if ((table[i].profiles & profile) != 0) {
            answer_to(table[i].number, SECCOMP_RET_ALLOW);
        } else if (profile == PODMAN && (table[i].profiles & PODMAN_EPERM) != 0) {
            answer_to(table[i].number, refuse(EPERM));
        }
    }
    /* runc and crun answer ENOSYS to calls that are newer than the profile */
    int newest = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        newest = table[i].number > newest ? table[i].number : newest;
    }
    add(BPF_JMP | BPF_JGT | BPF_K, 0, 1, (uint32_t)newest);
    answer(refuse(ENOSYS));
    answer(refuse(profile == PODMAN ? ENOSYS : EPERM));
}

static void install_filter(void) {
    struct sock_fprog program = {.len = filter_length, .filter = filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
        die("seccomp");
    }
}

static void set_capabilities(uint64_t wanted) {
    for (unsigned number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++) {
        if ((wanted >> number & 1) == 0 && prctl(PR_CAPBSET_DROP, number) != 0) {
            die("capability bounding set");
        }
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        uint32_t half = (uint32_t)(wanted >> 32 * i);
        data[i] = (struct __user_cap_data_struct){.effective = half, .permitted = half};
    }
    if (syscall(SYS_capset, &header, data) != 0) {
        die("capset");
    }
}

static uint64_t mask_of(const unsigned char *numbers, size_t count) {
    uint64_t mask = 0;
    for (size_t i = 0; i < count; i++) {
        mask |= (uint64_t)1 << numbers[i];
    }
    return mask;
}

static uint64_t capabilities_named(const char *name) {
    if (strcmp(name, "docker") == 0) {
        return mask_of(docker_capabilities, sizeof docker_capabilities);
    }
    if (strcmp(name, "podman") == 0) {
        return mask_of(podman_capabilities, sizeof podman_capabilities);
    }
    if (strcmp(name, "none") == 0) {
        return 0;
    }
    errno = EINVAL;
    die(name);
}

static enum profile profile_named(const char *name) {
    static const struct {
        const char *name;
        enum profile profile;
    } profiles[] = {{"docker", DOCKER}, {"containerd", CONTAINERD}, {"podman", PODMAN}};
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            return profiles[i].profile;
        }
    }
    errno = EINVAL;
    die(name);
}

static int call_named(const char *name) {
    for (size_t i = 0; i < sizeof refusable / sizeof refusable[0]; i++) {
        if (strcmp(refusable[i].name, name) == 0) {
            return refusable[i].number;
        }
    }
    errno = EINVAL;
    die(name);
}

int main(int argc, char **argv) {
    enum profile profile = NO_PROFILE;
    const char *capabilities = NULL;
    long user = -1;
    load(offsetof(struct seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCHITECTURE);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
    unsigned short nothing = filter_length;
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--profile") == 0) {
            profile = profile_named(argv[i + 1]);
        } else if (strcmp(argv[i], "--refuse") == 0 && strcmp(argv[i + 1], "pagemap_scan") == 0) {
            of_call(SYS_ioctl, 5);
            load(argument(1));
            add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, (uint32_t)PAGEMAP_SCAN_REQUEST);
            add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, USERFAULTFD_NEW_REQUEST);
            answer(refuse(ENOTTY));
            answer(SECCOMP_RET_ALLOW);
        } else if (strcmp(argv[i], "--refuse") == 0) {
            answer_to(call_named(argv[i + 1]), refuse(ENOSYS));
        } else if (strcmp(argv[i], "--capabilities") == 0) {
            capabilities = argv[i + 1];
        } else if (strcmp(argv[i], "--user") == 0) {
            user = strtol(argv[i + 1], NULL, 10);
        } else {
            errno = EINVAL;
            die(argv[i]);
        }
    }
    if (i >= argc) {
        errno = EINVAL;
        die("no program");
    }
    if (profile != NO_PROFILE) {
        add_profile(profile);
    } else {
        answer(SECCOMP_RET_ALLOW);
    }
    if (user >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        die("no_new_privs");
    }
    if (filter_length > nothing + 1) {
        install_filter();
    }
    if (user >= 0 && (setgroups(0, NULL) != 0 || setgid((gid_t)user) != 0)) {
        die("group");
    }
    if (capabilities != NULL && user < 0) {
        set_capabilities(capabilities_named(capabilities));
    }
    if (user >= 0 && setuid((uid_t)user) != 0) { /* takes all capabilities along */
        die("user");
    }
    execvp(argv[i], argv + i);
    die(argv[i]);
}
