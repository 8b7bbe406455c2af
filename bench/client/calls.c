/* 50,000 asynchronous GETs from one thread: through libhearth, (WITH_FLOOR) on bare epoll with a prepared request, or
 * (WITH_CURL) with libcurl's multi interface and reused handles. Each prints `starting_s waiting_s cpu_us_per_call
 * start_us rss_mb ok`.
 *
 *   calls URL COUNT CONNECTIONS [threaded|get|init]      HEARTH: `get` is hearth_engine_get, else a handle per call; `init` (here and in libcurl) makes,
 *   sets up and frees handles, and starts none */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void report(double began, double started, double before, int count, int ok) {
    double ended = seconds(), spent = cpu() - before, memory = 0;
    char line[200];
    /* Not ru_maxrss, which starts with the parent's size at the fork. */
    FILE *facts = fopen("/proc/self/status", "r");
    while (facts && fgets(line, sizeof line, facts)) {
        sscanf(line, "VmHWM: %lf", &memory);
    }
    if (facts) {
        fclose(facts);
    }
    printf("%.4f %.4f %.3f %.3f %.1f %d\n", started - began, ended - started, spent / count * 1e6,
        (started - began) / count * 1e6, memory / 1024, ok);
}

#if defined(WITH_FLOOR)
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int count = atoi(argv[2]), connections = atoi(argv[3]), left = count, done = 0, ok = 0,
        port = 0;
    char host[64], path[200], request[400], buffer[65536];
    (void)argc;
    sscanf(argv[1], "http://%63[^:]:%d%199s", host, &port, path);
    int length = snprintf(
        request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s:%d\r\n\r\n", path, host, port);
    double before = cpu(), began = seconds();
    int poll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
        int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
        inet_pton(AF_INET, host, &to.sin_addr);
        if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
            return 1;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        if (left-- > 0 && write(fd, request, (size_t)length) != length) {
            return 1;
        }
    }
    while (done < count) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            ssize_t got = recv(events[i].data.fd, buffer, sizeof buffer, 0);
            if (got <= 0) {
                return 1;
            }
            done++;
            ok += memcmp(buffer, "HTTP/1.1 200", 12) == 0;
            if (left-- > 0 && write(events[i].data.fd, request, (size_t)length) != length) {
                return 1;
            }
        }
    }
    report(began, began, before, count, ok);
    return 0;
}
#elif defined(WITH_CURL)
#include <curl/curl.h>

static size_t take(char *data, size_t size, size_t many, void *user) {
    (void)data;
    *(size_t *)user += size * many;
    return size * many;
}

int main(int argc, char **argv) {
    int count = atoi(argv[2]), connections = atoi(argv[3]), left = count, done = 0, ok = 0,
        running = 0;
    size_t taken = 0;
    curl_global_init(CURL_GLOBAL_ALL);
    double before = cpu(), began = seconds();
    if (argc > 4 && !strcmp(argv[4], "init")) {
        for (; left > 0; left--, ok++) {
            CURL *easy = curl_easy_init();
            curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
            curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
            curl_easy_setopt(easy, CURLOPT_WRITEDATA, &taken);
            curl_easy_cleanup(easy);
        }
        report(began, seconds(), before, count, ok);
        return 0;
    }
    CURLM *multi = curl_multi_init();
    for (int i = 0; i < connections && left > 0; i++, left--) {
        CURL *easy = curl_easy_init();
        curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &taken);
        curl_multi_add_handle(multi, easy);
    }
    while (done < count) {
        CURLMsg *message;
        int queued;
        curl_multi_perform(multi, &running);
        while ((message = curl_multi_info_read(multi, &queued))) {
            long status = 0;
            CURL *easy = message->easy_handle;
            curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
            done++;
            ok += status == 200;
            curl_multi_remove_handle(multi, easy);
            if (left-- > 0) {
                curl_multi_add_handle(multi, easy);
            } else {
                curl_easy_cleanup(easy);
            }
        }
        if (done < count) {
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
        }
    }
    report(began, began, before, count, ok);
    return 0;
}
#else
#include <hearth.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int done, ok;
static int wanted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;

static void finished(void *user, hearth_request *request, const hearth_response *response) {
    (void)user;
    (void)request;
    ok += hearth_response_status(response) == 200;
    if (++done == wanted) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&over);
        pthread_mutex_unlock(&lock);
    }
}

int main(int argc, char **argv) {
    hearth_engine *engine;
    int handles = argc < 5 || !strstr(argv[4], "get"),
        threaded = argc > 4 && strstr(argv[4], "threaded"),
        init = argc > 4 && strstr(argv[4], "init");
    wanted = atoi(argv[2]);
    if (hearth_engine_new(&engine) ||
        hearth_engine_set_number(engine, HEARTH_CONNECTIONS_PER_HOST, atoi(argv[3])) ||
        hearth_engine_set_number(engine, HEARTH_THREADED_CALLBACK, threaded) ||
        hearth_engine_set_number(engine, HEARTH_FOLLOW_LOCATION, 2)) {
        return 1;
    }
    double before = cpu(), began = seconds();
    hearth_engine_start(engine);
    for (int i = 0; i < wanted; i++) {
        if (!handles) {
            if (hearth_engine_get(engine, argv[1], HEARTH_TEXT, finished, NULL)) {
                return 1;
            }
            continue;
        }
        hearth_request *request;
        if (hearth_request_new(engine, &request) ||
            hearth_request_set_target(request, "GET", 3, argv[1], HEARTH_TEXT) ||
            (!init && hearth_request_start(request, finished, NULL))) {
            return 1;
        }
        hearth_request_free(request);
    }
    double started = seconds();
    if (init) {
        report(began, started, before, wanted, wanted);
        hearth_engine_free(engine);
        return 0;
    }
    pthread_mutex_lock(&lock);
    while (done < wanted) {
        pthread_cond_wait(&over, &lock);
    }
    pthread_mutex_unlock(&lock);
    report(began, started, before, wanted, ok);
    hearth_engine_free(engine);
    return 0;
}
#endif
