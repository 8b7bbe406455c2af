/* Sends requests to a php-fpm child in a closed loop over its unix socket, as loop.c does to a worker: the cost of php-fpm without a server
 * in front.
 *
 * usage: fastcgi SOCKET SCRIPT URL CORE SECONDS WARM EXPECTED [GAP_US]
 *
 * One connection is kept (FCGI_KEEP_CONN). Prints one line of JSON: requests, µs for a whole cycle, p50 and p99, answers without EXPECTED. */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* FastCGI Specification, section 8. */
enum {
    BEGIN_REQUEST = 1,
    END_REQUEST = 3,
    PARAMS = 4,
    STDIN = 5,
    STDOUT = 6,
    HEADER = 8,
    MOST_SAMPLES = 1000000
};

static uint8_t request[8192], answer[1 << 20];
static size_t request_len;
static float samples[MOST_SAMPLES];

static _Noreturn void die(const char *what) {
    fprintf(stderr, "fastcgi: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void put_record(uint8_t type, const void *content, size_t len) {
    uint8_t head[HEADER] = {1, type, 0, 1, (uint8_t)(len >> 8), (uint8_t)len, 0, 0};
    memcpy(request + request_len, head, HEADER);
    if (len > 0) {
        memcpy(request + request_len + HEADER, content, len);
    }
    request_len += HEADER + len;
}

static void make_request(const char *script, const char *url) {
    static const uint8_t begin[8] = {0, 1 /* responder */, 1 /* keep the connection */};
    const char *const pairs[][2] = {{"REQUEST_METHOD", "GET"}, {"REQUEST_URI", url},
        {"QUERY_STRING", ""}, {"SCRIPT_FILENAME", script}, {"SCRIPT_NAME", "/index.php"},
        {"SERVER_PROTOCOL", "HTTP/1.1"}, {"GATEWAY_INTERFACE", "CGI/1.1"},
        {"SERVER_SOFTWARE", "bench"}, {"REMOTE_ADDR", "127.0.0.1"}, {"REMOTE_PORT", "40000"},
        {"SERVER_ADDR", "127.0.0.1"}, {"SERVER_NAME", "localhost"}, {"SERVER_PORT", "8080"},
        {"REQUEST_SCHEME", "http"}, {"HTTP_HOST", "localhost:8080"}, {"HTTP_USER_AGENT", "loop"},
        {"HTTP_ACCEPT", "*/*"}, {"CONTENT_LENGTH", ""}, {"CONTENT_TYPE", ""}};
    uint8_t params[4096];
    size_t len = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t name = strlen(pairs[i][0]), value = strlen(pairs[i][1]);
        if (name > 127 || value > 127 || len + name + value + 2 > sizeof params) {
            errno = E2BIG;
            die("a parameter");
        }
        params[len++] = (uint8_t)name;
        params[len++] = (uint8_t)value;
        memcpy(params + len, pairs[i][0], name);
        memcpy(params + len + name, pairs[i][1], value);
        len += name + value;
    }
    put_record(BEGIN_REQUEST, begin, sizeof begin);
    put_record(PARAMS, params, len);
    put_record(PARAMS, NULL, 0);
    put_record(STDIN, NULL, 0);
}

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || strlen(path) >= sizeof address.sun_path) {
        die("socket");
    }
    strcpy(address.sun_path, path);
    for (int i = 0; connect(fd, (struct sockaddr *)&address, sizeof address) != 0; i++) {
        if (i == 500) {
            die(path);
        }
        usleep(10000);
    }
    return fd;
}

/* One request; how many bytes of standard output came, in `answer`. */
static size_t ask(int fd) {
    static uint8_t in[1 << 20];
    size_t have = 0, out = 0;
    if (send(fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len) {
        die("send");
    }
    for (;;) {
        ssize_t got = recv(fd, in + have, sizeof in - have, 0);
        if (got <= 0) {
            die("php-fpm closed the connection");
        }
        have += (size_t)got;
        size_t at = 0;
        while (have - at >= HEADER) {
            size_t len = (size_t)(in[at + 4] << 8 | in[at + 5]), whole = HEADER + len + in[at + 6];
            if (have - at < whole) {
                break;
            }
            if (in[at + 1] == STDOUT && out + len <= sizeof answer) {
                memcpy(answer + out, in + at + HEADER, len);
                out += len;
            }
            if (in[at + 1] == END_REQUEST) {
                return out;
            }
            at += whole;
        }
        memmove(in, in + at, have - at);
        have -= at;
    }
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: fastcgi SOCKET SCRIPT URL CORE SECONDS WARM EXPECTED [GAP_US]\n");
        return 2;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[4]), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        die("sched_setaffinity");
    }
    double seconds = strtod(argv[5], NULL);
    long warm = atol(argv[6]), bad = 0, done = 0;
    useconds_t gap = argc > 8 ? (useconds_t)atol(argv[8]) : 0;
    make_request(argv[2], argv[3]);
    int fd = connect_to(argv[1]);
    double from = 0, to = 0;
    for (long i = -warm; done < MOST_SAMPLES; i++) {
        double start = now_us();
        if (i == 0) {
            from = start;
        }
        to = start;
        if (i > 0 && to - from >= seconds * 1e6) {
            break;
        }
        size_t len = ask(fd);
        if (i >= 0) {
            samples[done++] = (float)(now_us() - start);
        }
        if (memmem(answer, len, argv[7], strlen(argv[7])) == NULL && bad++ == 0) {
            fprintf(stderr, "fastcgi: wrong answer: %.*s\n", (int)(len < 500 ? len : 500),
                (const char *)answer);
        }
        if (gap > 0 && i >= 0) {
            usleep(gap);
        }
    }
    qsort(samples, (size_t)done, sizeof *samples, by_size);
    printf("{\"requests\":%ld,\"us\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"bad\":%ld}\n", done,
        (to - from) / (double)done, (double)samples[done / 2], (double)samples[done * 99 / 100],
        bad);
    return 0;
}
