/* Drives one worker process in a closed loop over its own frames, without a server in between: what a model costs by itself.
 *
 * usage: loop [-n REQUESTS] [-w WARM] [-g GAP_US] [-c CORE] [-u URL]... [-U WARM_UP_URL]... [-d DOCUMENT_ROOT] [-s FRONT_SCRIPT] -- PROGRAM ARGUMENTS...
 *
 * PROGRAM is hearth-worker-8.x with its arguments (without --warm-up, which is added). Driver, zygote and worker share one core. Prints one
 * line of JSON: requests per second, latency percentiles and CPU per request in microseconds, memory in KB, answers that were not 200.
 * One-shot models get a new worker forked ahead while the last one answers. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire/frame.h"

enum { URLS = 64 };

static const char *urls[URLS], *warm_up_urls[URLS];
static size_t url_count, warm_up_count;
static const char *document_root = "/";
static const char *front_script = "/index.php";
static long requests = 2000, warm = 200, gap;
static int core = -1;
static bool one_shot; /* a worker answers once and ends */

static _Noreturn void die(const char *what) {
    fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* A socket with what has been read of it. */
struct peer {
    int fd;
    uint32_t pid;
    size_t start, end;
    uint8_t in[FRAME_HEADER + FRAME_MAX_PAYLOAD];
};

static struct frame_header header;
static const uint8_t *payload;

/* The next frame; false at the end. */
static bool next(struct peer *peer, enum frame_from from) {
    for (;;) {
        size_t have = peer->end - peer->start;
        if (have >= FRAME_HEADER) {
            if (frame_read_header(from, peer->in + peer->start, have, &header) != FRAME_OK) {
                die("malformed frame");
            }
            if (have >= FRAME_HEADER + header.length) {
                payload = peer->in + peer->start + FRAME_HEADER;
                peer->start += FRAME_HEADER + header.length;
                return true;
            }
        }
        memmove(peer->in, peer->in + peer->start, have);
        peer->start = 0;
        peer->end = have;
        ssize_t got = recv(peer->fd, peer->in + peer->end, sizeof peer->in - peer->end, 0);
        if (got <= 0) {
            return false;
        }
        peer->end += (size_t)got;
    }
}

static void put_pair(struct frame_buffer *out, const char *name, const char *value) {
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    uint8_t *p = frame_buffer_extend(out, 8 + name_len + value_len);
    p[0] = (uint8_t)name_len;
    p[1] = (uint8_t)(name_len >> 8);
    for (int i = 0; i < 4; i++) {
        p[2 + i] = (uint8_t)(value_len >> (8 * i));
    }
    memcpy(p + 6, name, name_len + 1);
    memcpy(p + 7 + name_len, value, value_len + 1);
}

static struct frame_buffer make_request(const char *url, bool synthetic) {
    struct frame_buffer out = {0};
    char script[4096];
    snprintf(script, sizeof script, "%s%s", document_root, front_script);
    const char *question = strchr(url, '?');
    const char *const pairs[][2] = {{"REQUEST_METHOD", "GET"}, {"REQUEST_URI", url},
        {"QUERY_STRING", question != NULL ? question + 1 : ""}, {"SCRIPT_FILENAME", script},
        {"SCRIPT_NAME", front_script}, {"DOCUMENT_ROOT", document_root}, {"CONTENT_TYPE", ""},
        {"CONTENT_LENGTH", ""}, {"SERVER_PROTOCOL", "HTTP/1.1"}, {"GATEWAY_INTERFACE", "CGI/1.1"},
        {"SERVER_SOFTWARE", "hearth"}, {"REMOTE_ADDR", "127.0.0.1"}, {"REMOTE_PORT", "40000"},
        {"SERVER_ADDR", "127.0.0.1"}, {"SERVER_NAME", "localhost"}, {"SERVER_PORT", "8080"},
        {"REQUEST_SCHEME", "http"}, {"HTTP_HOST", "localhost:8080"}, {"HTTP_USER_AGENT", "loop"},
        {"HTTP_ACCEPT", "*/*"}, {"HEARTH_WARM_UP", "1"}};
    size_t count = sizeof pairs / sizeof *pairs - (synthetic ? 0 : 1);
    memset(frame_buffer_extend(&out, FRAME_HEADER + 12), 0, FRAME_HEADER + 12);
    out.data[FRAME_HEADER] = 11;
    out.data[FRAME_HEADER + 2] = (uint8_t)count;
    for (size_t i = 0; i < count; i++) {
        put_pair(&out, pairs[i][0], pairs[i][1]);
    }
    frame_put_header(out.data, FRAME_REQUEST, FRAME_FLAG_LAST, (uint32_t)(out.len - FRAME_HEADER));
    return out;
}

static void send_all(int fd, const struct frame_buffer *buffer) {
    if (send(fd, buffer->data, buffer->len, MSG_NOSIGNAL) != (ssize_t)buffer->len) {
        die("send");
    }
}

static struct peer zygote;

static void start_zygote(char **command, int arguments) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        die("socketpair");
    }
    char count[24];
    char **with = calloc((size_t)arguments + 3, sizeof *with);
    memcpy(with, command, (size_t)arguments * sizeof *with);
    if (warm_up_count > 0) {
        snprintf(count, sizeof count, "%zu", warm_up_count);
        with[arguments] = "--warm-up";
        with[arguments + 1] = count;
    }
    zygote.pid = (uint32_t)fork();
    if (zygote.pid == 0) {
        dup2(pair[1], 3);
        execv(with[0], with);
        _exit(127);
    }
    close(pair[1]);
    zygote.fd = pair[0];
    for (size_t i = 0; i < warm_up_count; i++) {
        struct frame_buffer request = make_request(warm_up_urls[i], true);
        send_all(zygote.fd, &request);
        frame_buffer_free(&request);
    }
    if (!next(&zygote, FRAME_FROM_ZYGOTE) || header.type != FRAME_HELLO) {
        die("the zygote said no HELLO");
    }
    free(with);
}

/* Asks for a worker; SPAWNED and EXITED of the zygote are read and dropped. */
static void spawn(struct peer *worker, int board) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        die("socketpair");
    }
    int fds[4] = {pair[1], 1, 2, board};
    fds[1] = STDERR_FILENO;
    uint8_t bytes[FRAME_HEADER + 4] = {0};
    frame_put_header(bytes, FRAME_SPAWN, 0, 4);
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    if (sendmsg(zygote.fd, &message, 0) != (ssize_t)sizeof bytes) {
        die("SPAWN");
    }
    close(pair[1]);
    worker->fd = pair[0];
    worker->start = worker->end = 0;
    do {
        if (!next(&zygote, FRAME_FROM_ZYGOTE)) {
            die("the zygote is gone");
        }
    } while (header.type != FRAME_SPAWNED);
    worker->pid = u32_at(payload + 4);
}

static bool await(struct peer *worker, uint8_t type) {
    while (next(worker, FRAME_FROM_WORKER)) {
        if (header.type == FRAME_LOG) {
            fprintf(stderr, "%.*s\n", (int)u32_at(payload + 4), (const char *)payload + 8);
        } else if (header.type == type) {
            return true;
        }
    }
    return false;
}

/* One request, to the end of its answer: its status; 0 when the worker ended instead. */
static unsigned ask(struct peer *worker, const struct frame_buffer *request, size_t *bytes) {
    unsigned status = 0;
    *bytes = 0;
    if (send(worker->fd, request->data, request->len, MSG_NOSIGNAL) != (ssize_t)request->len) {
        return 0;
    }
    for (;;) {
        if (!next(worker, FRAME_FROM_WORKER)) {
            return 0;
        }
        if (header.type == FRAME_HEAD) {
            status = payload[0] | (unsigned)payload[1] << 8;
        } else if (header.type == FRAME_BODY) {
            *bytes += header.length;
        } else if (header.type == FRAME_END) {
            if ((header.flags & FRAME_FLAG_BUSY) != 0 && !one_shot && !await(worker, FRAME_READY)) {
                return 0;
            }
            return status;
        } else if (header.type == FRAME_LOG) {
            fprintf(stderr, "%.*s\n", (int)u32_at(payload + 4), (const char *)payload + 8);
        }
    }
}

/* User and system time of a process in microseconds, its ended children's included. */
static double cpu_us(uint32_t pid) {
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *after = strrchr(text, ')');
    unsigned long own[2] = {0};
    long ended[2] = {0};
    if (after != NULL) {
        sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &own[0], &own[1],
            &ended[0], &ended[1]);
    }
    return (double)(own[0] + own[1] + (unsigned long)(ended[0] + ended[1])) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static long smaps_kb(uint32_t pid, const char *key) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%u/smaps_rollup", pid);
    FILE *file = fopen(path, "re");
    long kb = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kb = atol(line + strlen(key));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kb;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a - *(const double *)b;
    return x < 0 ? -1 : x > 0;
}

static int run(char **command, int arguments) {
    static struct peer workers[2];
    struct frame_buffer out[URLS];
    int board = memfd_create("board", MFD_CLOEXEC);
    if (board < 0 || ftruncate(board, 8) != 0) {
        die("memfd_create");
    }
    for (size_t i = 0; i < url_count; i++) {
        out[i] = make_request(urls[i], false);
    }
    start_zygote(command, arguments);
    spawn(&workers[0], board);
    double *latency = calloc((size_t)requests, sizeof *latency);
    double cpu = 0, from = 0, to = 0;
    size_t bytes = 0;
    long bad = 0;
    for (long i = -warm; i < requests; i++) {
        struct peer *worker = &workers[one_shot ? (i + warm) & 1 : 0];
        if ((one_shot || i == -warm) && !await(worker, FRAME_READY)) {
            die("the worker is not ready");
        }
        if (i == 0) {
            cpu = one_shot ? cpu_us(zygote.pid) : cpu_us(worker->pid);
            from = now_us();
        }
        if (one_shot) {
            spawn(&workers[(i + warm + 1) & 1], board);
        }
        double start = now_us();
        unsigned status = ask(worker, &out[(size_t)(i + warm) % url_count], &bytes);
        if (i >= 0) {
            latency[i] = now_us() - start;
            bad += status != 200;
        }
        if (status == 0 && !one_shot) {
            die("the worker ended");
        }
        if (one_shot) {
            close(worker->fd);
        }
        if (gap > 0) {
            usleep((useconds_t)gap);
        }
    }
    to = now_us();
    cpu = (one_shot ? cpu_us(zygote.pid) : cpu_us(workers[0].pid)) - cpu;
    qsort(latency, (size_t)requests, sizeof *latency, by_size);
    uint32_t looked_at = one_shot ? workers[(requests + warm) & 1].pid : workers[0].pid;
    printf("{\"rps\":%.0f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f,\"cpu\":%.1f,\"bytes\":%zu,\"not_200\":%ld,"
           "\"rss_kb\":%ld,\"pss_kb\":%ld}\n",
        (double)requests / (to - from) * 1e6, latency[requests / 2], latency[requests * 9 / 10],
        latency[requests * 99 / 100], latency[requests - 1], cpu / (double)requests, bytes, bad,
        smaps_kb(looked_at, "Rss:"), smaps_kb(looked_at, "Pss:"));
    shutdown(workers[0].fd, SHUT_WR);
    shutdown(workers[1].fd, SHUT_WR);
    usleep(100000);
    close(zygote.fd);
    waitpid((pid_t)zygote.pid, NULL, 0);
    return bad > 0;
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "+n:w:g:c:u:U:d:s:")) != -1) {
        switch (option) {
        case 'n': requests = atol(optarg); break;
        case 'w': warm = atol(optarg); break;
        case 'g': gap = atol(optarg); break;
        case 'c': core = atoi(optarg); break;
        case 'd': document_root = optarg; break;
        case 's': front_script = optarg; break;
        case 'u':
            if (url_count < URLS) {
                urls[url_count++] = optarg;
            }
            break;
        case 'U':
            if (warm_up_count < URLS) {
                warm_up_urls[warm_up_count++] = optarg;
            }
            break;
        default: return 2;
        }
    }
    if (optind == argc || requests < 1) {
        fprintf(stderr, "usage: loop [options] -- PROGRAM ARGUMENTS...\n");
        return 2;
    }
    if (url_count == 0) {
        urls[url_count++] = "/";
    }
    if (core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    for (int i = optind; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--model") == 0) {
            one_shot = strcmp(argv[i + 1], "fork") == 0 || strstr(argv[i + 1], "spawn") != NULL;
        }
    }
    return run(argv + optind, argc - optind);
}
