/* The state at the snapshot, in every case: one of each kind of memory, descriptor and
 * attribute. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapshot.h"

struct scenery boot;
unsigned char boot_data[GLOBAL_PAGES * PAGE_LARGEST]
    __attribute__((aligned(PAGE_LARGEST))) = {1, 2, 3};
unsigned char boot_bss[GLOBAL_PAGES * PAGE_LARGEST] __attribute__((aligned(PAGE_LARGEST)));
__thread unsigned char boot_thread_local[2 * PAGE_LARGEST];

void on_boot_signal(int number) {
    (void)number;
}

/* No page equals its neighbour, none is all zeros. */
static void fill(unsigned char *at, size_t len) {
    for (size_t i = 0; i < len; i++) {
        at[i] = (unsigned char)(i * 31 + i / PAGE * 17 + 1);
    }
}

static void *map(size_t len, int protection, int flags, int fd) {
    void *at = mmap(NULL, len, protection, flags, fd, 0);
    if (at == MAP_FAILED) {
        give_up("mmap");
    }
    return at;
}

static void build_memory(void) {
    fill(boot_data + PAGE, GLOBAL_LEN - PAGE);
    fill(boot_bss, GLOBAL_LEN / 2); /* the rest was never touched */
    fill(boot_thread_local, THREAD_LOCAL_LEN);
    for (size_t i = 0; i < sizeof boot.small / sizeof boot.small[0]; i++) {
        boot.small[i] = malloc(16 + 40 * i);
        fill(boot.small[i], 16 + 40 * i);
    }
    boot.large = malloc(LARGE);
    fill(boot.large, LARGE);

    int private = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    /* With large pages it has the size that the arena serves; the flag keeps it apart. */
    int apart = ANON_PAGES * PAGE < CHUNK / 2 ? 0 : MAP_NORESERVE;
    boot.anon = map(ANON_PAGES * PAGE, both, private | apart, -1);
    for (size_t page = 0; page < ANON_PAGES; page += 2) {
        fill(boot.anon + page * PAGE, PAGE);
    }
    int file = memory_file("file");
    static unsigned char content[PAGE_LARGEST];
    for (size_t page = 0; page < FILE_PAGES; page++) {
        memset(content, 'a' + (int)page, PAGE);
        if (write(file, content, PAGE) != PAGE) {
            give_up("write");
        }
    }
    boot.file = map(FILE_PAGES * PAGE, both, MAP_PRIVATE, file);
    for (size_t page = 0; page < FILE_PAGES; page += 2) {
        fill(boot.file + page * PAGE, PAGE);
    }
    close(file);
    boot.readonly = map(PAGE, both, private, -1);
    fill(boot.readonly, PAGE);
    if (mprotect(boot.readonly, PAGE, PROT_READ) != 0) {
        give_up("mprotect");
    }
    boot.none = map(PAGE, PROT_NONE, private, -1);
    boot.shared = map(PAGE, both, MAP_SHARED | MAP_ANONYMOUS, -1);

    boot.chunk = map(CHUNK, both, private, -1);
    fill(boot.chunk, FILLED);
    boot.huge = map(HUGE, both, private, -1);
    fill(boot.huge, FILLED);
    fill(boot.huge + HUGE - PAGE, PAGE);
    board->arena = boot.chunk;
    board->chunks[0] =
        (struct snapshot_range){(uintptr_t)boot.chunk, (uintptr_t)boot.chunk + CHUNK};
    board->chunks[1] = (struct snapshot_range){(uintptr_t)boot.huge, (uintptr_t)boot.huge + HUGE};
    board->chunk_count = 2;
}

int memory_file(const char *name) {
    enum { NOEXEC_SEAL = 8 /* Linux 6.3 */ };
    int fd = memfd_create(name, 0);
    return fd < 0 ? memfd_create(name, NOEXEC_SEAL) : fd;
}

static int temporary_file(int flags) {
    char name[] = "/tmp/snapshot-test-XXXXXX";
    int fd = mkostemp(name, flags);
    static const char line[64] = "sixty-four bytes of a file that the scenery opened at its boot.";
    for (int i = 0; fd >= 0 && i < PAGE / (int)sizeof line; i++) {
        if (write(fd, line, sizeof line) != sizeof line) {
            give_up("write");
        }
    }
    if (fd < 0 || unlink(name) != 0) {
        give_up("a temporary file");
    }
    return fd;
}

static void build_descriptors(void) {
    boot.regular = temporary_file(0);
    lseek(boot.regular, 100, SEEK_SET);
    boot.append = temporary_file(O_APPEND);
    boot.epoll = epoll_create1(EPOLL_CLOEXEC);
    boot.event = eventfd(0, EFD_NONBLOCK);
    boot.directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int null = open("/dev/null", O_RDWR);
    boot.high = dup2(null, 200);
    close(null);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = boot.event};
    if (pipe(boot.pipe) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, boot.pair) != 0 ||
        boot.epoll < 0 || boot.event < 0 || boot.directory < 0 || boot.high != 200 ||
        epoll_ctl(boot.epoll, EPOLL_CTL_ADD, boot.event, &event) != 0) {
        give_up("the scenery's descriptors");
    }
}

static void build_attributes(void) {
    struct sigaction action = {.sa_handler = on_boot_signal, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGWINCH);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGUSR2, SIG_IGN);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGURG);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    umask(027);
    if (chdir("/usr") != 0) {
        give_up("chdir");
    }
}

void build_scenery(void) {
    snapshot_serve_arena((const void *)(uintptr_t)build_scenery);
    board->kept = snapshot_keep(2 * PAGE);
    build_memory();
    build_descriptors();
    build_attributes();
}

void list_areas(struct area areas[AREAS]) {
    areas[0] = (struct area){".data", boot_data, GLOBAL_LEN};
    areas[1] = (struct area){".bss", boot_bss, GLOBAL_LEN};
    areas[2] = (struct area){"thread-local", boot_thread_local, THREAD_LOCAL_LEN};
    areas[3] = (struct area){"malloc", boot.large, LARGE};
    areas[4] = (struct area){"anonymous", boot.anon, ANON_PAGES * PAGE};
    areas[5] = (struct area){"file", boot.file, FILE_PAGES * PAGE};
    areas[6] = (struct area){"chunk", boot.chunk, CHUNK};
    areas[7] = (struct area){"huge", boot.huge, HUGE};
}

/* FNV-1a of the memory that a request may write to. */
void verify_sum(void) {
    struct area areas[AREAS];
    list_areas(areas);
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < AREAS; i++) {
        for (size_t k = 0; k < areas[i].len; k += i + 1 == AREAS || i + 2 == AREAS ? 64 : 1) {
            sum = (sum ^ areas[i].at[k]) * 0x100000001b3;
        }
    }
    board->sum = board->turn == 0 ? sum : board->sum;
    check(board->sum == sum, "memory is no longer what it was");
}
