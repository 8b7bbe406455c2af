/* Drives one worker process in a closed loop over its own frames, without a server: the cost of a model alone.
 *
 * usage: loop [options] -- PROGRAM ARGUMENTS...
 *
 *   -n REQUESTS | -t SECONDS   how long; 2000 requests by themselves
 *   -w REQUESTS                not measured, before (200)
 *   -g MICROSECONDS            sleep between two requests
 *   -c CORE                    driver, zygote and worker all run on it
 *   -u REQUEST                 asked for in turn; `[STATUS ][METHOD ]URL[ TYPE BODY]`, e.g. `201 POST /items application/json {"a":1}`
 *   -U URL                     a warm-up request of the zygote
 *   -r                         the requests come in random order, the same each run
 *   -k                         the cookies of the first answer that sets some are sent from then on
 *   -e TEXT                    stands in each answer to the first request
 *   -x WORKERS                 in the end that many more are forked and serve 100 requests each: what memory does another one take?
 *   -m                         prints what memory all take together, also without -x
 *   -d DOCUMENT_ROOT, -s FRONT_SCRIPT
 *
 * PROGRAM is hearth-worker-8.x with its arguments (without --warm-up, which is added). Prints one line of JSON: requests per second,
 * latencies and CPU per request in microseconds, memory in KB, answers other than expected, workers that ended. One-shot models get a
 * new worker forked ahead while the last one answers. A worker that retires is replaced, and its request asked again. */
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

enum {
    REQUESTS = 64,
    MOST_SAMPLES = 4000000,
    MOST_EXTRA = 64,
    EXTRA_REQUESTS = 100,
    EXTRA_PAUSE = 3000, /* microseconds */
    MOST_BODY = 65536,
};

/* One request that is asked for again and again. */
struct wanted {
    const char *text; /* as on the command line */
    unsigned status;
    char method[16];
    char *url, *type, *body;
    struct frame_buffer frames;
};

static struct wanted wanted[REQUESTS];
static const char *warm_up_urls[REQUESTS];
static size_t wanted_count, warm_up_count;
static const char *document_root = "/";
static const char *front_script = "/index.php";
static const char *expected;
static char cookies[8192];
static long requests = 2000, warm = 200, gap, extra;
static double seconds;
static int core = -1;
static bool one_shot; /* a worker answers once and ends */
static bool random_order, keep_cookies, weighs;

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

/* A socket with the bytes read from it. */
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

static void put_u64(uint8_t *out, uint64_t value) {
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

/* The REQUEST frame, and one with the body if there is one. */
static struct frame_buffer make_request(const struct wanted *what, bool synthetic) {
    struct frame_buffer out = {0};
    char script[4096], length[24] = "";
    snprintf(script, sizeof script, "%s%s", document_root, front_script);
    size_t body_len = what->body != NULL ? strlen(what->body) : 0;
    if (body_len > 0) {
        snprintf(length, sizeof length, "%zu", body_len);
    }
    const char *question = strchr(what->url, '?');
    const char *const pairs[][2] = {{"REQUEST_METHOD", what->method}, {"REQUEST_URI", what->url},
        {"QUERY_STRING", question != NULL ? question + 1 : ""}, {"SCRIPT_FILENAME", script},
        {"SCRIPT_NAME", front_script}, {"DOCUMENT_ROOT", document_root},
        {"CONTENT_TYPE", body_len > 0 ? what->type : ""}, {"CONTENT_LENGTH", length},
        {"SERVER_PROTOCOL", "HTTP/1.1"}, {"GATEWAY_INTERFACE", "CGI/1.1"},
        {"SERVER_SOFTWARE", "hearth"}, {"REMOTE_ADDR", "127.0.0.1"}, {"REMOTE_PORT", "40000"},
        {"SERVER_ADDR", "127.0.0.1"}, {"SERVER_NAME", "localhost"}, {"SERVER_PORT", "8080"},
        {"REQUEST_SCHEME", "http"}, {"HTTP_HOST", "localhost:8080"}, {"HTTP_USER_AGENT", "loop"},
        {"HTTP_ACCEPT", "*/*"}, {"HTTP_COOKIE", cookies}, {"HEARTH_WARM_UP", synthetic ? "1" : ""}};
    memset(frame_buffer_extend(&out, FRAME_HEADER + 12), 0, FRAME_HEADER + 12);
    unsigned count = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool optional = i + 2 >= sizeof pairs / sizeof *pairs;
        if (!optional || pairs[i][1][0] != '\0') {
            put_pair(&out, pairs[i][0], pairs[i][1]);
            count++;
        }
    }
    out.data[FRAME_HEADER] = 11;
    out.data[FRAME_HEADER + 2] = (uint8_t)count;
    put_u64(out.data + FRAME_HEADER + 4, body_len);
    uint8_t flags = body_len > 0 ? 0 : FRAME_FLAG_LAST;
    frame_put_header(out.data, FRAME_REQUEST, flags, (uint32_t)(out.len - FRAME_HEADER));
    if (body_len > 0) {
        uint8_t *p = frame_buffer_extend(&out, FRAME_HEADER + body_len);
        frame_put_header(p, FRAME_REQUEST_BODY, FRAME_FLAG_LAST, (uint32_t)body_len);
        memcpy(p + FRAME_HEADER, what->body, body_len);
    }
    return out;
}

/* `[STATUS ][METHOD ]URL[ TYPE BODY]` */
static void parse_wanted(struct wanted *what, const char *text) {
    char *rest = strdup(text);
    *what = (struct wanted){.text = text, .status = 200, .method = "GET"};
    if (rest[0] >= '0' && rest[0] <= '9') {
        what->status = (unsigned)strtoul(rest, &rest, 10);
        rest += *rest == ' ';
    }
    if (rest[0] != '/') {
        snprintf(what->method, sizeof what->method, "%s", strsep(&rest, " "));
    }
    what->url = strsep(&rest, " ");
    what->type = strsep(&rest, " ");
    what->body = rest;
    if (what->url == NULL || what->url[0] != '/' ||
        (what->body != NULL && strlen(what->body) > FRAME_MAX_BODY)) {
        fprintf(stderr, "loop: no request: %s\n", text);
        exit(2);
    }
}

static void make_requests(void) {
    for (size_t i = 0; i < wanted_count; i++) {
        frame_buffer_free(&wanted[i].frames);
        wanted[i].frames = make_request(&wanted[i], false);
    }
}

/* Adds what the response head in `payload` sets to `cookies`. */
static void take_cookies(void) {
    const uint8_t *p = payload + 6 + (payload[4] | payload[5] << 8);
    for (unsigned count = payload[2] | (unsigned)payload[3] << 8; count > 0; count--) {
        size_t name_len = p[0] | (size_t)p[1] << 8;
        size_t value_len = u32_at(p + 2);
        const char *name = (const char *)p + 6;
        const char *value = name + name_len;
        if (name_len == 10 && strncasecmp(name, "Set-Cookie", 10) == 0) {
            const char *end = memchr(value, ';', value_len);
            size_t len = end != NULL ? (size_t)(end - value) : value_len;
            size_t have = strlen(cookies);
            if (have + len + 3 < sizeof cookies) {
                snprintf(cookies + have, sizeof cookies - have, "%s%.*s", have > 0 ? "; " : "",
                    (int)len, value);
            }
        }
        p += 6 + name_len + value_len;
    }
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
        struct wanted what;
        parse_wanted(&what, warm_up_urls[i]);
        struct frame_buffer request = make_request(&what, true);
        send_all(zygote.fd, &request);
        frame_buffer_free(&request);
    }
    do {
        if (!next(&zygote, FRAME_FROM_ZYGOTE)) {
            die("the zygote said no HELLO");
        }
    } while (header.type != FRAME_HELLO);
    free(with);
}

/* Asks for a worker; SPAWNED and EXITED of the zygote are read and dropped. */
static void spawn(struct peer *worker, int counters) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        die("socketpair");
    }
    int fds[4] = {pair[1], STDERR_FILENO, STDERR_FILENO, counters};
    uint8_t bytes[FRAME_HEADER + 4] = {0};
    frame_put_header(bytes, FRAME_SPAWN, 0, 4);
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof control.space};
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

static void say_log(void) {
    fprintf(stderr, "%.*s\n", (int)u32_at(payload + 4), (const char *)payload + 8);
}

static bool await(struct peer *worker, uint8_t type) {
    while (next(worker, FRAME_FROM_WORKER)) {
        if (header.type == FRAME_LOG) {
            say_log();
        } else if (header.type == type) {
            return true;
        }
    }
    return false;
}

static char answer[MOST_BODY];
static size_t answer_len;
/* The worker's last END said that it is not ready yet. */
static bool is_busy;

/* One request, to the end of its answer: its status; 0 when the worker ended instead. */
static unsigned ask(struct peer *worker, const struct wanted *what) {
    unsigned status = 0;
    answer_len = 0;
    if (send(worker->fd, what->frames.data, what->frames.len, MSG_NOSIGNAL) !=
        (ssize_t)what->frames.len) {
        return 0;
    }
    for (;;) {
        if (!next(worker, FRAME_FROM_WORKER)) {
            return 0;
        }
        switch (header.type) {
        case FRAME_HEAD:
            status = payload[0] | (unsigned)payload[1] << 8;
            if (keep_cookies) {
                take_cookies();
            }
            break;
        case FRAME_BODY: {
            size_t room = sizeof answer - answer_len;
            size_t len = header.length < room ? header.length : room;
            memcpy(answer + answer_len, payload, len);
            answer_len += len;
            break;
        }
        case FRAME_END:
            is_busy = (header.flags & FRAME_FLAG_BUSY) != 0 && !one_shot;
            return status;
        case FRAME_LOG:
            say_log();
            break;
        }
    }
}

static bool is_as_expected(const struct wanted *what, unsigned status) {
    return status == what->status &&
           (what != wanted || expected == NULL ||
               memmem(answer, answer_len, expected, strlen(expected)) != NULL);
}

/* Reads a whole file of /proc. False when the process is gone. */
static bool read_proc(uint32_t pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Time on the processor of a process in microseconds; of its ended children instead if asked. */
static double cpu_us(uint32_t pid, bool children) {
    char text[1024];
    /* schedstat counts nanoseconds; without CONFIG_SCHED_INFO it says 0. */
    if (!children && read_proc(pid, "schedstat", text, sizeof text)) {
        double ns = strtod(text, NULL);
        if (ns > 0) {
            return ns / 1e3;
        }
    }
    unsigned long own[2] = {0};
    long ended[2] = {0};
    if (read_proc(pid, "stat", text, sizeof text)) {
        const char *after = strrchr(text, ')');
        sscanf(after != NULL ? after + 2 : "",
            "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &own[0], &own[1],
            &ended[0], &ended[1]);
    }
    double ticks = children ? (double)(ended[0] + ended[1]) : (double)(own[0] + own[1]);
    return ticks * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static long smaps_kb(uint32_t pid, const char *key) {
    char text[4096];
    const char *at = read_proc(pid, "smaps_rollup", text, sizeof text) ? strstr(text, key) : NULL;
    return at != NULL ? atol(at + strlen(key)) : 0;
}

struct sample {
    float us;
    uint32_t which;
};

static int by_size(const void *a, const void *b) {
    float x = ((const struct sample *)a)->us;
    float y = ((const struct sample *)b)->us;
    return (x > y) - (x < y);
}

static int by_request(const void *a, const void *b) {
    const struct sample *x = a;
    const struct sample *y = b;
    return x->which != y->which ? (x->which > y->which) - (x->which < y->which) : by_size(a, b);
}

/* In turn, or a repeatable draw (Knuth's MMIX generator). */
static size_t choose(long i) {
    static uint64_t state = 1;
    if (!random_order) {
        return (size_t)i % wanted_count;
    }
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (size_t)(state >> 33) % wanted_count;
}

static int make_counters(void) {
    enum { NOEXEC_SEAL = 8 /* Linux 6.3; up to 6.5 vm.memfd_noexec=2 demands it */ };
    int counters = memfd_create("counters", MFD_CLOEXEC | NOEXEC_SEAL);
    if (counters < 0 && errno == EINVAL) {
        counters = memfd_create("counters", MFD_CLOEXEC);
    }
    if (counters < 0 || ftruncate(counters, 8) != 0) {
        die("memfd_create");
    }
    return counters;
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *times, long count) {
    qsort(times, (size_t)count, sizeof *times, by_time);
    return count > 0 ? times[count / 2] : 0;
}

/* How long a request takes to a worker that has not been asked since another one was started; 0 when it has ended. */
static double time_old_worker(struct peer *worker) {
    usleep(EXTRA_PAUSE);
    double start = now_us();
    return ask(worker, &wanted[0]) != 0 ? now_us() - start : 0;
}

/* Forks `extra` workers more, lets each serve some requests (one that answers once waits for its request), prints what memory they take on average, what
 * all workers and the zygote take together, and how long their first requests, their second and the median of the last ones take. Each request
 * comes when the worker has done with the last one.
 *
 * A first request finds the processor's caches as the fork has left them. So do the next ones of the workers that serve already: after each second
 * fork the worker before it is asked in place of the new one, whose first request then is not counted. */
static void print_extra(uint32_t worker) {
    static struct peer more[MOST_EXTRA];
    static double first[MOST_EXTRA], second[MOST_EXTRA], steady[MOST_EXTRA], old[MOST_EXTRA];
    double times[EXTRA_REQUESTS];
    long pss = 0, files = 0, dirty = 0, firsts = 0, olds = 0;
    for (long i = 0; i < extra; i++) {
        int counters = make_counters();
        spawn(&more[i], counters);
        close(counters);
        bool lives = await(&more[i], FRAME_READY);
        bool asks_old = i % 2 == 1 && !one_shot;
        if (asks_old) {
            old[olds] = time_old_worker(&more[i - 1]);
            lives = lives && old[olds++] > 0;
        }
        for (long n = 0; lives && n < EXTRA_REQUESTS && !one_shot; n++) {
            usleep(EXTRA_PAUSE);
            double start = now_us();
            lives = ask(&more[i], &wanted[(size_t)n % wanted_count]) != 0;
            times[n] = now_us() - start;
        }
        if (!lives) {
            errno = 0;
            die("one of the extra workers ended");
        }
        if (!one_shot && !asks_old) {
            first[firsts] = times[0];
            second[firsts++] = times[1];
        }
        if (!one_shot) {
            steady[i] = median_of(times + EXTRA_REQUESTS / 2, EXTRA_REQUESTS / 2);
        }
    }
    usleep(100000); /* the last restore is over */
    for (long i = 0; i < extra; i++) {
        pss += smaps_kb(more[i].pid, "Pss:");
        files += smaps_kb(more[i].pid, "Pss_File:");
        dirty += smaps_kb(more[i].pid, "Private_Dirty:");
    }
    long zygote_pss = smaps_kb(zygote.pid, "Pss:");
    long own = smaps_kb(worker, "Pss:");
    files += smaps_kb(zygote.pid, "Pss_File:") + smaps_kb(worker, "Pss_File:");
    long count = extra > 0 ? extra : 1;
    printf(",\"extra\":{\"workers\":%ld,\"pss_kb\":%ld,\"private_dirty_kb\":%ld,"
           "\"zygote_pss_kb\":%ld,\"all_workers_pss_kb\":%ld,\"files_pss_kb\":%ld",
        extra, pss / count, dirty / count, zygote_pss, pss + own, files);
    if (extra > 0 && !one_shot) {
        printf(",\"first_us\":%.1f,\"second_us\":%.1f,\"steady_us\":%.1f", median_of(first, firsts),
            median_of(second, firsts), median_of(steady, extra));
    }
    if (olds > 0) {
        printf(",\"old_us\":%.1f", median_of(old, olds));
    }
    putchar('}');
    for (long i = 0; i < extra; i++) {
        close(more[i].fd);
    }
}

static void print_string(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    putchar('"');
}

static void print_each_request(struct sample *samples, long count) {
    qsort(samples, (size_t)count, sizeof *samples, by_request);
    printf(",\"each\":[");
    for (long from = 0, to; from < count; from = to) {
        uint32_t which = samples[from].which;
        for (to = from; to < count && samples[to].which == which; to++) {
        }
        printf("%s{\"request\":", from > 0 ? "," : "");
        print_string(wanted[which].text);
        printf(",\"count\":%ld,\"p50\":%.1f}", to - from, (double)samples[(from + to) / 2].us);
    }
    putchar(']');
}

static int run(char **command, int arguments) {
    static struct peer workers[2];
    int counters = make_counters();
    make_requests();
    start_zygote(command, arguments);
    spawn(&workers[0], counters);
    struct sample *samples = calloc(MOST_SAMPLES, sizeof *samples);
    if (samples == NULL) {
        die("calloc");
    }
    double cpu = 0, from = 0, to = 0;
    long bad = 0, ended = 0, done = 0;
    struct peer *worker = &workers[0];
    for (long i = -warm;; i++) {
        if (one_shot) {
            worker = &workers[(i + warm) & 1];
        }
        if ((one_shot || i == -warm) && !await(worker, FRAME_READY)) {
            errno = 0;
            die("the worker ended before its first request");
        }
        double start = now_us();
        if (i == 0) {
            cpu = cpu_us(zygote.pid, false) + cpu_us(zygote.pid, true) +
                  (one_shot ? 0 : cpu_us(worker->pid, false));
            from = start = now_us();
        }
        to = start;
        bool enough = seconds > 0 ? to - from >= seconds * 1e6 : i >= requests;
        if (i > 0 && (enough || i == MOST_SAMPLES)) {
            break;
        }
        if (one_shot) {
            spawn(&workers[(i + warm + 1) & 1], counters);
        }
        size_t which = choose(i + warm);
        /* Who asks is not kept waiting by the worker's own work, as long as another one is free. */
        bool waited = !is_busy || await(worker, FRAME_READY);
        is_busy = false;
        start = now_us();
        unsigned status = waited ? ask(worker, &wanted[which]) : 0;
        if (status == 0 && !one_shot) {
            /* Retired, or died: another one takes its place and gets the request. */
            if (++ended > 100 && ended * 2 > i + warm) {
                errno = 0;
                die("workers end all the time");
            }
            close(worker->fd);
            spawn(worker, counters);
            status = await(worker, FRAME_READY) ? ask(worker, &wanted[which]) : 0;
        }
        if (i >= 0) {
            samples[i] = (struct sample){(float)(now_us() - start), (uint32_t)which};
            done = i + 1;
        }
        if (!is_as_expected(&wanted[which], status) && bad++ == 0) {
            fprintf(stderr, "loop: %s: status %u, %.*s\n", wanted[which].text, status,
                (int)(answer_len < 500 ? answer_len : 500), answer);
        }
        if (keep_cookies && cookies[0] != '\0') {
            keep_cookies = false;
            make_requests();
        }
        if (one_shot) {
            close(worker->fd);
        }
        if (gap > 0 && i >= 0) {
            usleep((useconds_t)gap);
        }
    }
    cpu = cpu_us(zygote.pid, false) + cpu_us(zygote.pid, true) +
          (one_shot ? 0 : cpu_us(worker->pid, false)) - cpu;
    qsort(samples, (size_t)done, sizeof *samples, by_size);
    printf("{\"rps\":%.0f,\"us\":%.2f,\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"max\":%.2f,\"cpu\":%"
           ".2f,"
           "\"requests\":%ld,\"bytes\":%zu,\"bad\":%ld,\"ended\":%ld,\"rss_kb\":%ld,\"pss_kb\":%ld",
        (double)done / (to - from) * 1e6, (to - from) / (double)done, (double)samples[done / 2].us,
        (double)samples[done * 9 / 10].us, (double)samples[done * 99 / 100].us,
        (double)samples[done - 1].us, cpu / (double)done, done, answer_len, bad, ended,
        smaps_kb(worker->pid, "Rss:"), smaps_kb(worker->pid, "Pss:"));
    if (wanted_count > 1) {
        print_each_request(samples, done);
    }
    if (extra > 0 || weighs) {
        print_extra(worker->pid);
    }
    printf("}\n");
    shutdown(worker->fd, SHUT_WR);
    while (next(worker, FRAME_FROM_WORKER)) {
        /* Its socket closes when its last words have been said. */
    }
    close(zygote.fd);
    waitpid((pid_t)zygote.pid, NULL, 0);
    return bad > 0;
}

static void misuse(void) {
    fprintf(stderr, "usage: loop [options] -- PROGRAM ARGUMENTS...\n");
    exit(2);
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "+n:t:w:g:c:u:U:rkme:x:d:s:")) != -1) {
        switch (option) {
        case 'n':
            requests = atol(optarg);
            break;
        case 't':
            seconds = strtod(optarg, NULL);
            break;
        case 'w':
            warm = atol(optarg);
            break;
        case 'g':
            gap = atol(optarg);
            break;
        case 'c':
            core = atoi(optarg);
            break;
        case 'r':
            random_order = true;
            break;
        case 'k':
            keep_cookies = true;
            break;
        case 'm':
            weighs = true;
            break;
        case 'e':
            expected = optarg;
            break;
        case 'x':
            extra = atol(optarg);
            break;
        case 'd':
            document_root = optarg;
            break;
        case 's':
            front_script = optarg;
            break;
        case 'u':
            if (wanted_count < REQUESTS) {
                parse_wanted(&wanted[wanted_count++], optarg);
            }
            break;
        case 'U':
            if (warm_up_count < REQUESTS) {
                warm_up_urls[warm_up_count++] = optarg;
            }
            break;
        default:
            misuse();
        }
    }
    if (optind == argc || requests < 1 || warm < 0 || extra < 0 || extra > MOST_EXTRA) {
        misuse();
    }
    if (wanted_count == 0) {
        parse_wanted(&wanted[wanted_count++], "/");
    }
    if (core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0) {
            die("sched_setaffinity");
        }
    }
    for (int i = optind; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--model") == 0) {
            one_shot = strcmp(argv[i + 1], "fork") == 0 || strstr(argv[i + 1], "spawn") != NULL;
        }
    }
    /* Descriptors inherited by this program do not belong to the application, and a snapshot would keep them. */
    close_range(3, ~0U, 0);
    return run(argv + optind, argc - optind);
}
