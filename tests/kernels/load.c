/* One HTTP client over one kept connection: counts answers, and compares each page with its first answer.
 * usage: load ADDRESS PORT SECONDS PATH...     for so many seconds, after 5 requests that the rate leaves out
 *        load ADDRESS PORT xCOUNT PATH...      so many requests
 * A path that begins with `+` may answer differently each time. Prints `N answers, W wrong, R a second`. Exit status 1: none came, or some were wrong. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 4 << 20, WARM_UP = 5, TIMEOUT_SECONDS = 60 };

static struct sockaddr_in server = {.sin_family = AF_INET};
static int connection = -1;
static char received[LARGEST];
static size_t received_length;

static bool dial(void) {
    int one = 1;
    struct timeval limit = {.tv_sec = TIMEOUT_SECONDS};
    connection = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return connect(connection, (struct sockaddr *)&server, sizeof server) == 0;
}

/* Receives until `needle` stands at or behind `from`; returns where, or NULL. */
static char *receive_until(const char *needle, size_t from) {
    for (;;) {
        received[received_length] = '\0';
        char *found = strstr(received + from, needle);
        if (found != NULL) {
            return found;
        }
        ssize_t n = recv(connection, received + received_length, LARGEST - 1 - received_length, 0);
        if (n <= 0) {
            return NULL;
        }
        received_length += (size_t)n;
    }
}

static bool receive_up_to(size_t length) {
    while (received_length < length) {
        ssize_t n = recv(connection, received + received_length, LARGEST - 1 - received_length, 0);
        if (n <= 0) {
            return false;
        }
        received_length += (size_t)n;
    }
    return true;
}

/* Sends a request and receives the whole answer. Returns its body, with the length in *length; NULL when it is no 200. */
static const char *request(const char *path, size_t *length) {
    char head[1024];
    int n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    received_length = 0;
    if (send(connection, head, (size_t)n, MSG_NOSIGNAL) != n) {
        return NULL;
    }
    char *end = receive_until("\r\n\r\n", 0);
    if (end == NULL) {
        return NULL;
    }
    size_t body = (size_t)(end - received) + 4;
    *end = '\0';
    bool right = strncmp(received, "HTTP/1.1 200", 12) == 0;
    const char *said = strcasestr(received, "\r\ncontent-length:");
    if (said != NULL) {
        *length = strtoul(said + strlen("\r\ncontent-length:"), NULL, 10);
        if (body + *length >= LARGEST || !receive_up_to(body + *length)) {
            return NULL;
        }
    } else { /* chunked */
        end = receive_until("\r\n0\r\n\r\n", body - 2);
        if (end == NULL) {
            return NULL;
        }
        *length = (size_t)(end - received) - body;
    }
    return right ? received + body : NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 5 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
        fprintf(stderr, "usage: load ADDRESS PORT SECONDS|xCOUNT PATH...\n");
        return 2;
    }
    server.sin_port = htons((unsigned short)atoi(argv[2]));
    bool counted = argv[3][0] == 'x';
    double seconds = counted ? 0 : strtod(argv[3], NULL);
    unsigned long count = counted ? strtoul(argv[3] + 1, NULL, 10) : 0;
    int paths = argc - 4;
    struct {
        char *body;
        size_t length;
    } *first = calloc((size_t)paths, sizeof *first);
    unsigned long answers = 0;
    unsigned long wrong = 0;
    unsigned long warm_up = counted ? 0 : WARM_UP;
    double began = now();
    for (unsigned long i = 0; counted ? i < count : i < warm_up || now() < began + seconds; i++) {
        if (i == warm_up) {
            began = now();
        }
        int which = (int)(i % (unsigned long)paths);
        const char *path = argv[4 + which];
        bool varies = *path == '+';
        size_t length = 0;
        const char *body = NULL;
        if (connection >= 0 || dial()) {
            body = request(path + varies, &length);
        }
        answers++;
        if (body == NULL) {
            wrong++;
            if (connection >= 0) {
                close(connection);
            }
            connection = -1;
        } else if (!varies && first[which].body == NULL) {
            first[which].body = memcpy(malloc(length + 1), body, length);
            first[which].length = length;
        } else if (!varies && (first[which].length != length ||
                                  memcmp(first[which].body, body, length) != 0)) {
            wrong++;
        }
    }
    printf("%lu answers, %lu wrong, %.1f a second\n", answers, wrong,
        (double)(answers - (answers > warm_up ? warm_up : 0)) / (now() - began));
    return answers == 0 || wrong > 0;
}
