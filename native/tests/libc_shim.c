/* Tests libc's socket calls as the program exports them: each works, and reports the bytes of
 * observed descriptors. */
#include "sapi/databases/libc_shim.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct {
    char sent[256], received[256];
    size_t sent_len, received_len;
    unsigned connects, refusals, shares, passes, waits;
    int waited_for; /* milliseconds */
} seen;

static bool on_connecting(int fd, const struct sockaddr **address, socklen_t *len) {
    (void)fd;
    (void)address;
    (void)len;
    seen.connects++;
    return true;
}

static void on_refused(int fd) {
    (void)fd;
    seen.refusals++;
}

static void on_sent(int fd, const void *bytes, size_t len) {
    (void)fd;
    memcpy(seen.sent + seen.sent_len, bytes, len);
    seen.sent_len += len;
    errno = EDOM; /* no caller of send() must see it */
}

static void on_received(int fd, const void *bytes, size_t len) {
    (void)fd;
    memcpy(seen.received + seen.received_len, bytes, len);
    seen.received_len += len;
    errno = EDOM;
}

static void on_shared(int fd, const char *how) {
    (void)fd;
    (void)how;
    seen.shares++;
}

static void on_passed(void) {
    seen.passes++;
}

static int on_waiting(struct pollfd *fds, nfds_t count, int timeout) {
    seen.waits++;
    seen.waited_for = timeout;
    return libc_shim_poll(fds, count, timeout);
}

static struct libc_shim shim = {.connecting = on_connecting,
    .refused = on_refused,
    .sent = on_sent,
    .received = on_received,
    .shared = on_shared,
    .passed = on_passed};

/* A connected pair, whose first end is observed. */
static void make_pair(int pair[2]) {
    memset(&seen, 0, sizeof seen);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair of sockets");
    shim.followed[pair[0]] = true;
}

static void close_pair(const int pair[2]) {
    shim.followed[pair[0]] = false;
    close(pair[0]);
    close(pair[1]);
}

static void what_is_sent_is_told_in_order(void) {
    int pair[2];
    char bytes[32] = "";
    make_pair(pair);
    struct iovec pieces[2] = {{"d", 1}, {"ef", 2}};
    struct iovec last = {"gh", 2};
    const struct msghdr message = {.msg_iov = &last, .msg_iovlen = 1};
    errno = 0;
    bool done = send(pair[0], "a", 1, 0) == 1 && write(pair[0], "b", 1) == 1 &&
                sendto(pair[0], "c", 1, 0, NULL, 0) == 1 && writev(pair[0], pieces, 2) == 3 &&
                sendmsg(pair[0], &message, 0) == 2;
    check(done, "every call sends what it was given");
    check(errno == 0, "errno stays");
    check(seen.sent_len == 8 && memcmp(seen.sent, "abcdefgh", 8) == 0, "all of it is told");
    check(read(pair[1], bytes, sizeof bytes) == 8 && strcmp(bytes, "abcdefgh") == 0,
        "all of it arrives");
    check(seen.received_len == 0, "the other end is not followed");
    close_pair(pair);
}

static void what_is_received_is_told_once(void) {
    int pair[2];
    char a[4] = "", b[4] = "";
    make_pair(pair);
    check(send(pair[1], "0123456789", 10, 0) == 10 && seen.sent_len == 0, "the other end sends");
    struct iovec pieces[2] = {{a, 1}, {b, 2}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    bool done = recv(pair[0], a, 2, MSG_PEEK) == 2 && recv(pair[0], a, 1, 0) == 1 &&
                recvfrom(pair[0], a, 1, 0, NULL, NULL) == 1 && read(pair[0], a, 1) == 1 &&
                readv(pair[0], pieces, 2) == 3 && recvmsg(pair[0], &message, 0) == 3;
    check(done, "every call receives");
    check(seen.received_len == 9 && memcmp(seen.received, "012345678", 9) == 0,
        "all but what was only peeked at is told");
    close_pair(pair);
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void poll_waits_as_long_as_it_is_told(void) {
    int pair[2];
    make_pair(pair);
    struct pollfd one = {.fd = pair[0], .events = POLLIN};
    long began = milliseconds();
    check(poll(&one, 1, 0) == 0 && poll(&one, 1, 1050) == 0, "nothing is there");
    check(milliseconds() - began >= 1050, "it waits, seconds and their parts");
    send(pair[1], "x", 1, 0);
    check(poll(&one, 1, -1) == 1 && one.revents == POLLIN, "without an end until something is");
    check(seen.waits == 0, "no one waits in its place");
    shim.waiting = on_waiting;
    check(poll(&one, 1, 77) == 1 && seen.waits == 1 && seen.waited_for == 77,
        "another may wait in its place");
    shim.waiting = NULL;
    one.fd = -1;
    check(poll(&one, 1, 1) == 0, "a negative descriptor is none");
    close_pair(pair);
}

static void connections_are_told_before_they_are_made(void) {
    memset(&seen, 0, sizeof seen);
    struct sockaddr_un nowhere = {.sun_family = AF_UNIX, .sun_path = "/nowhere/at/all"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    check(connect(fd, (const struct sockaddr *)&nowhere, sizeof nowhere) == -1 && errno == ENOENT,
        "libc's own error");
    check(seen.connects == 1 && seen.refusals == 1, "told, and that it was refused");
    close(fd);
}

static void second_owners_are_told(void) {
    int pair[2];
    int on = 1;
    make_pair(pair);
    int copy = dup(pair[0]);
    check(copy >= 0 && setsockopt(pair[0], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0,
        "both calls work");
    check(seen.shares == 2, "both are told");
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof control.room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof copy), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &copy, sizeof copy);
    check(sendmsg(pair[1], &message, 0) == 1 && seen.passes == 1,
        "so is a descriptor in a message, by whichever socket");
    close(copy);
    close_pair(pair);
}

int main(void) {
    if (!libc_shim_works()) {
        printf("libc_shim: 0 tests, 0 failed\n");
        return 0;
    }
    libc_shim_open(&shim);
    RUN(what_is_sent_is_told_in_order);
    RUN(what_is_received_is_told_once);
    RUN(poll_waits_as_long_as_it_is_told);
    RUN(connections_are_told_before_they_are_made);
    RUN(second_owners_are_told);
    printf("libc_shim: %d tests, %d failed\n", checked, failures);
    return failures == 0 ? 0 : 1;
}
