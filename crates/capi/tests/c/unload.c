/* Loads and unloads the library several times: dlopen, a request, stop, dlclose. This asserts the current behaviour: the C library keeps
 * it mapped until the thread that started the engine has ended, because Rust's thread::spawn leaves a thread-local destructor in that
 * thread. The next dlclose unloads it. When that is fixed, `left` will show it.
 *
 * With `main` the main thread starts the engine. Then the library stays until the process ends, still works, and none of its threads run
 * any more.
 *
 * Usage: unload LIBRARY URL [main] */
#include <dirent.h>
#include <dlfcn.h>
#include <hearth.h>
#include <pthread.h>

#include "check.h"

static int is_mapped(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1000];
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        found += strstr(line, "libhearth") != NULL;
    }
    fclose(maps);
    return found;
}

static int status;
static void done(void *user, hearth_request *request, const hearth_response *response) {
    int (*get_status)(const hearth_response *);
    (void)request;
    *(void **)&get_status = dlsym(user, "hearth_response_status");
    status = get_status(response);
}

/* Returns the number of threads of this process, once the ending ones are gone. */
static int threads(void) {
    int found = 0;
    for (int turn = 0; turn < 1000; turn++) {
        DIR *tasks = opendir("/proc/self/task");
        found = -2; /* . and .. */
        while (readdir(tasks)) {
            found++;
        }
        closedir(tasks);
        if (found == 1) {
            break;
        }
        rest(2);
    }
    return found;
}

static char **values;
static int left;

static void *use(void *nothing) {
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            failed_here = 1;
            return nothing;
        }
        hearth_status (*engine_new)(hearth_engine **);
        hearth_status (*get)(hearth_engine *, const char *, size_t, hearth_on_done, void *);
        hearth_status (*stop)(hearth_engine *, uint64_t, int *);
        void (*engine_free)(hearth_engine *);
        *(void **)&engine_new = dlsym(library, "hearth_engine_new");
        *(void **)&get = dlsym(library, "hearth_engine_get");
        *(void **)&stop = dlsym(library, "hearth_engine_stop");
        *(void **)&engine_free = dlsym(library, "hearth_engine_free");
        hearth_engine *engine = NULL;
        CHECK(engine_new(&engine) == HEARTH_OK);
        CHECK(get(engine, "http://%", HEARTH_TEXT, done, library) == HEARTH_INVALID);
        status = 0;
        CHECK(get(engine, values[2], HEARTH_TEXT, done, library) == HEARTH_OK);
        CHECK(stop(engine, 10000, NULL) == HEARTH_OK);
        CHECK(status == 200);
        engine_free(engine);
        CHECK(is_mapped());
        CHECK(dlclose(library) == 0);
        left += is_mapped() != 0;
    }
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 3 && count != 4) {
        return 2;
    }
    values = arguments;
    if (count == 4) {
        use(NULL);
        CHECK(left == 3);
        CHECK(threads() == 1);
        printf("%d passed, %d failed\n", !failed_here, failed_here);
        return failed_here;
    }
    CHECK(pthread_create(&thread, NULL, use, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(left == 3);
    void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library && dlclose(library) == 0);
    CHECK(!is_mapped());
    printf("%d passed, %d failed\n", !failed_here, failed_here);
    return failed_here;
}
