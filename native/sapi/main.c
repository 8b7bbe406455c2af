/* hearth-worker-8.x: PHP as a process that a server feeds with requests.
 *
 * Promises
 * - One thread, no Rust, no knowledge of HTTP.
 * - Started by the server as a zygote with its socket as descriptor 3; every worker is a fork of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <php.h>
#include <php_main.h>

#include "channel.h"
#include "compat.h"
#include "info.h"
#include "log.h"
#include "options.h"
#include "randomness.h"
#include "request_model.h"
#include "sapi_module.h"
#include "worker_model.h"
#include "zygote.h"

enum { SERVER = 3 };

enum action { ACTION_SERVE, ACTION_VERSION, ACTION_INFO, ACTION_HELP };

static const char usage[] = "usage: hearth-worker-" ZEND_TOSTR(PHP_MAJOR_VERSION) "." ZEND_TOSTR(
    PHP_MINOR_VERSION) " --model request|worker [--script FILE] [--ini KEY=VALUE]...\n"
                       "\n"
                       "Started by `hearth serve`, which talks to it on descriptor 3.\n"
                       "\n"
                       "  --model request     PHP starts and shuts down for each request\n"
                       "  --model worker      FILE boots once and serves requests in a loop\n"
                       "  --script FILE       the worker script, an absolute path\n"
                       "  --ini KEY=VALUE     a PHP setting, stronger than php.ini\n"
                       "  --version           print PHP's version\n"
                       "  --info-json         print what this PHP is and has loaded\n";

static _Noreturn void misuse(const char *what, const char *argument) {
    fprintf(stderr, "error: %s%s%s\n%s", what, argument != NULL ? ": " : "",
        argument != NULL ? argument : "", "hint: hearth-worker --help\n");
    exit(EXIT_MISUSE);
}

static enum action parse(int argc, char **argv, struct options *options) {
    enum action action = ACTION_SERVE;
    bool has_model = false;
    options->ini = calloc((size_t)argc, sizeof *options->ini);
    if (options->ini == NULL) {
        abort();
    }
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--version") == 0) {
            action = ACTION_VERSION;
            continue;
        }
        if (strcmp(name, "--info-json") == 0) {
            action = ACTION_INFO;
            continue;
        }
        if (strcmp(name, "--help") == 0) {
            action = ACTION_HELP;
            continue;
        }
        bool model = strcmp(name, "--model") == 0;
        bool script = strcmp(name, "--script") == 0;
        if (!model && !script && strcmp(name, "--ini") != 0) {
            misuse("unknown argument", name);
        }
        if (++i == argc) {
            misuse("a value is missing after", name);
        }
        if (script) {
            options->script = argv[i];
        } else if (!model) {
            if (strchr(argv[i], '=') == NULL || argv[i][0] == '=') {
                misuse("--ini wants KEY=VALUE", argv[i]);
            }
            options->ini[options->ini_count++] = argv[i];
        } else if (strcmp(argv[i], "request") == 0) {
            has_model = true;
            options->model = MODEL_REQUEST;
        } else if (strcmp(argv[i], "worker") == 0) {
            has_model = true;
            options->model = MODEL_WORKER;
        } else {
            misuse("no such model", argv[i]);
        }
    }
    if (action != ACTION_SERVE) {
        return action;
    }
    if (!has_model) {
        misuse("--model is missing", NULL);
    }
    if (options->model == MODEL_WORKER && (options->script == NULL || options->script[0] != '/')) {
        misuse("--model worker wants --script with an absolute path", options->script);
    }
    if (options->model == MODEL_REQUEST && options->script != NULL) {
        misuse("--script belongs to --model worker", options->script);
    }
    int type;
    socklen_t len = sizeof type;
    if (getsockopt(SERVER, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM) {
        misuse("descriptor 3 is not the server's socket; this program is started by `hearth serve`",
            NULL);
    }
    return action;
}

/* Standard input is /dev/null; writing to a closed pipe is an error, not a death. sapi/cli and sapi/fpm do the same. */
static void prepare_process(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) {
        fprintf(stderr, "error: cannot open /dev/null: %s\n", strerror(errno));
        exit(1);
    }
    dup2(null, STDIN_FILENO);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            dup2(null, fd);
        }
    }
    if (null > STDERR_FILENO) {
        close(null);
    }
    signal(SIGPIPE, SIG_IGN);
}

static void serve_as_worker(const struct options *options) {
    channel_open(SERVER);
    log_through(channel_send_buffer);
    compat_child_init();
    struct frame_buffer hello = {0};
    const char *version = module_php_version();
    frame_write_hello(&hello, (uint32_t)getpid(), version, strlen(version));
    channel_send_buffer(&hello);
    frame_buffer_free(&hello);
    int code =
        options->model == MODEL_WORKER ? worker_model_run(options->script) : request_model_run();
    /* The engine's module shutdown would tear down what lives in shared memory for the others: php-fpm's children skip it too. */
    fflush(NULL);
    _exit(code);
}

int main(int argc, char **argv) {
    struct options options = {0};
    enum action action = parse(argc, argv, &options);
    if (action == ACTION_HELP) {
        fputs(usage, stdout);
        return 0;
    }
    if (action == ACTION_SERVE) {
        prepare_process();
        fcntl(SERVER, F_SETFD, FD_CLOEXEC);
        /* the terminal's Ctrl-C is for the server, which then drains */
        setpgid(0, 0);
    }
    module_start(&options);
    switch (action) {
    case ACTION_VERSION:
        printf("PHP %s (hearth-worker %s, NTS, API %d)\n", module_php_version(), HEARTH_VERSION,
            ZEND_MODULE_API_NO);
        return 0;
    case ACTION_INFO:
        return info_print();
    default:
        randomness_prepare();
        zygote_run(SERVER);
        serve_as_worker(&options);
    }
}
