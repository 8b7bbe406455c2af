/* What waiting costs, through libhearth or (WITH_CURL) libcurl:
 *
 *   waits one URL COUNT                        GETs one after another: prints the median and the 99th percentile, µs
 *   waits idle URL SECONDS                     one request that nobody answers: prints processor time, ms for each second
 *   waits late URL CONNECT_MS IDLE_MS WHOLE_MS TIMES MS    as many at once to one who is silent: prints by how many ms the earliest and the latest end
 *                                              differ from MS, and the error's number. 0: that time-out is off
 *   waits many URL COUNT CONNECTIONS VERSION CA            COUNT GETs at once, cold: prints ms until the last, and how many were right */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static int print_one(double *took, int count) {
    qsort(took, (size_t)count, sizeof *took, by_size);
    printf("%.2f %.2f\n", took[count / 2] * 1e6, took[count * 99 / 100] * 1e6);
    return 0;
}

#if defined(WITH_CURL)
#include <curl/curl.h>

static size_t take(char *data, size_t size, size_t many, void *user) {
    (void)data;
    (void)user;
    return size * many;
}

int main(int argc, char **argv) {
    if (argc < 4 || strcmp(argv[1], "one")) {
        return 2;
    }
    int count = atoi(argv[3]);
    double *took = calloc((size_t)count, sizeof *took);
    CURL *easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, argv[2]);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    for (int i = -100; i < count; i++) {
        double began = seconds();
        if (curl_easy_perform(easy)) {
            return 1;
        }
        if (i >= 0) {
            took[i] = seconds() - began;
        }
    }
    curl_easy_cleanup(easy);
    return print_one(took, count);
}
#else
#include <hearth.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int done, right, last_error;
static double ends[10000];

static void finished(void *user, hearth_request *request, const hearth_response *response) {
    (void)user;
    (void)request;
    right += hearth_response_status(response) == 200;
    last_error = (int)hearth_response_error(response);
    int at = done;
    ends[at % 10000] = seconds();
    done = at + 1;
}

static int wait_for(int wanted) {
    while (done < wanted) {
        usleep(200);
    }
    return 0;
}

static int one(hearth_engine *engine, const char *url, int count) {
    double *took = calloc((size_t)count, sizeof *took);
    hearth_request *request;
    hearth_response *response;
    if (hearth_request_new(engine, &request)) {
        return 1;
    }
    for (int i = -100; i < count; i++) {
        double began = seconds();
        if (hearth_request_set_target(request, "GET", 3, url, HEARTH_TEXT) ||
            hearth_request_perform(request, &response) || hearth_response_status(response) != 200) {
            return 1;
        }
        if (i >= 0) {
            took[i] = seconds() - began;
        }
        hearth_response_free(response);
    }
    hearth_request_free(request);
    return print_one(took, count);
}

static int idle(hearth_engine *engine, const char *url, double long_s) {
    struct rusage before, after;
    if (hearth_engine_get(engine, url, HEARTH_TEXT, finished, NULL)) {
        return 1;
    }
    usleep(200000);
    getrusage(RUSAGE_SELF, &before);
    usleep((useconds_t)(long_s * 1e6));
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
                           before.ru_stime.tv_sec) *
                      1e3 +
                  (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                           after.ru_stime.tv_usec - before.ru_stime.tv_usec) /
                      1e3;
    printf("%.4f\n", used / long_s);
    return 0;
}

static int late(hearth_engine *engine, char **argv) {
    int times = atoi(argv[6]);
    double wanted = atof(argv[7]), earliest = 1e9, latest = -1e9;
    if (hearth_engine_set_number(engine, HEARTH_CONNECT_TIMEOUT, atoi(argv[3])) ||
        hearth_engine_set_number(engine, HEARTH_IDLE_TIMEOUT, atoi(argv[4])) ||
        hearth_engine_set_number(engine, HEARTH_TIMEOUT, atoi(argv[5])) || times > 10000 ||
        /* None waits for its turn, from which an idle time-out counts. */
        hearth_engine_set_number(engine, HEARTH_CONNECTIONS_PER_HOST, times)) {
        return 1;
    }
    hearth_engine_start(engine);
    /* One at a time begins, so that each has its own beginning; none has ended before the last has begun. */
    double *began = calloc((size_t)times, sizeof *began);
    for (int i = 0; i < times; i++) {
        began[i] = seconds();
        if (hearth_engine_get(engine, argv[2], HEARTH_TEXT, finished, NULL)) {
            return 1;
        }
        usleep(500);
    }
    wait_for(times);
    for (int i = 0; i < times; i++) {
        double off = (ends[i] - began[i]) * 1e3 - wanted;
        earliest = off < earliest ? off : earliest;
        latest = off > latest ? off : latest;
    }
    printf("%.2f %.2f %d\n", earliest, latest, last_error);
    return 0;
}

static int many(hearth_engine *engine, char **argv) {
    int count = atoi(argv[3]);
    if (hearth_engine_set_number(engine, HEARTH_CONNECTIONS_PER_HOST, atoi(argv[4])) ||
        hearth_engine_set_number(engine, HEARTH_HTTP_VERSION, atoi(argv[5])) ||
        hearth_engine_set_text(engine, HEARTH_CAINFO, argv[6], HEARTH_TEXT)) {
        return 1;
    }
    double began = seconds();
    for (int i = 0; i < count; i++) {
        if (hearth_engine_get(engine, argv[2], HEARTH_TEXT, finished, NULL)) {
            return 1;
        }
    }
    wait_for(count);
    printf("%.1f %d\n", (ends[count - 1] - began) * 1e3, (int)right);
    return 0;
}

int main(int argc, char **argv) {
    hearth_engine *engine;
    if (argc < 4 || hearth_engine_new(&engine) ||
        hearth_engine_set_number(engine, HEARTH_THREADED_CALLBACK, 0)) {
        return 2;
    }
    int failed = 2;
    if (!strcmp(argv[1], "one")) {
        failed = one(engine, argv[2], atoi(argv[3]));
    } else if (!strcmp(argv[1], "idle")) {
        failed = idle(engine, argv[2], atof(argv[3]));
    } else if (!strcmp(argv[1], "late") && argc == 8) {
        failed = late(engine, argv);
    } else if (!strcmp(argv[1], "many") && argc == 7) {
        failed = many(engine, argv);
    }
    if (failed) {
        fprintf(stderr, "waits: %s failed: %s\n", argv[1], hearth_last_error());
    }
    hearth_engine_free(engine);
    return failed;
}
#endif
