/* See worker.h. */
#include "sapi/boot/worker.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sapi/boot/randomness.h"
#include "sapi/compat.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "sapi/sapi_module.h"

void worker_begin(void) {
    channel_open(SERVER);
    request_prepare();
    response_prepare();
    log_through(channel_send_buffer);
    compat_child_init();
    randomness_renew();
    struct frame_buffer hello = {0};
    const char *version = module_php_version();
    frame_write_hello(&hello, (uint32_t)getpid(), version, strlen(version));
    channel_send_buffer(&hello);
    frame_buffer_free(&hello);
}

bool process_has_one_thread(void) {
    /* the directory's links: `.`, `..` and one for each thread */
    struct stat tasks;
    return stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink <= 3;
}

/* Reads the name that a thread has; false for one that has ended. */
static bool read_thread_name(const char *task, char *name, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(name, (int)size, file) != NULL;
    fclose(file);
    if (read) {
        name[strcspn(name, "\n")] = '\0';
    }
    return read && name[0] != '\0';
}

static bool has_name(const char *names, const char *name) {
    size_t len = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += len) {
        bool begins = at == names || at[-1] == ' ';
        if (begins && (at[len] == ',' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

void process_thread_names(char *names, size_t size) {
    static const char unnamed[] = "unnamed";
    char own[32] = "";
    prctl(PR_GET_NAME, own);
    names[0] = '\0';
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return;
    }
    struct dirent *task;
    while ((task = readdir(tasks)) != NULL) {
        char name[32];
        size_t len = strlen(names);
        if (task->d_name[0] == '.' || atol(task->d_name) == (long)getpid() ||
            !read_thread_name(task->d_name, name, sizeof name)) {
            continue;
        }
        /* a new thread has the process's name */
        const char *known = strcmp(name, own) == 0 ? unnamed : name;
        if (!has_name(names, known) && len + strlen(known) + sizeof ", " <= size) {
            snprintf(names + len, size - len, "%s%s", len > 0 ? ", " : "", known);
        }
    }
    closedir(tasks);
}
