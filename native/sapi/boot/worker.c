/* See worker.h. */
#include "sapi/boot/worker.h"

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
