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

#include "sapi/boot/boot_descriptors.h"
#include "sapi/boot/engine_program.h"
#include "sapi/boot/info.h"
#include "sapi/boot/ini.h"
#include "sapi/boot/opcache_guard.h"
#include "sapi/boot/randomness.h"
#include "sapi/boot/worker.h"
#include "sapi/boot/zygote.h"
#include "sapi/models/request_model.h"
#include "sapi/models/snapshot_model.h"
#include "sapi/models/worker_run.h"
#include "sapi/options.h"
#include "sapi/sapi_module.h"
#include "snapshot/snapshot.h"

enum action { ACTION_SERVE, ACTION_VERSION, ACTION_INFO, ACTION_PROBE, ACTION_HELP };

static const char *const model_names[] = {
    [MODEL_REQUEST] = "request",
    [MODEL_WORKER] = "worker",
    [MODEL_SPAWN] = "spawn",
    [MODEL_PRESPAWN] = "prespawn",
    [MODEL_FORK] = "fork",
    [MODEL_SNAPSHOT] = "snapshot",
};

static const char usage[] = "usage: hearth-worker-" ZEND_TOSTR(PHP_MAJOR_VERSION) "." ZEND_TOSTR(
    PHP_MINOR_VERSION) " --model NAME [--script FILE] [--ini KEY=VALUE]... [--warm-up N "
                       "[--rehearse]] [--confine] [--verify-restores SHARE] [--trace-boot]\n"
                       "\n"
                       "Started by `hearth serve`, which talks to it on descriptor 3.\n"
                       "\n"
                       "  --model request     PHP starts and shuts down for each request\n"
                       "  --model spawn       the same, each request in a process of its own\n"
                       "  --model worker      FILE boots once and serves requests in a loop\n"
                       "  --model prespawn    FILE boots, serves one request and ends\n"
                       "  --model fork        FILE boots once; each request gets a fork of that\n"
                       "  --model snapshot    FILE boots once; after each request memory is put "
                       "back\n"
                       "  --script FILE       the worker script, an absolute path\n"
                       "  --entry ROOT        FILE is a script of the application, below this "
                       "document root: it waits by hearth_await_request()\n"
                       "  --await-after FILE  that script waits when it has included this file\n"
                       "  --ini KEY=VALUE     a PHP setting, stronger than php.ini\n"
                       "  --ini-stdin         more of them: standard input is a file of KEY=VALUE, "
                       "a null byte after each\n"
                       "  --warm-up N         fork, snapshot: serves N requests first, without a "
                       "client\n"
                       "  --learn-classes     with --entry: FILE's autoloaders load what they have "
                       "loaded, without a request\n"
                       "  --rehearse          those are served by a throwaway fork that tells what "
                       "it loaded\n"
                       "  --report-files      tells the server which files the boot has included\n"
                       "  --confine           workers cannot look into each other, nor signal "
                       "others\n"
                       "  --verify-restores SHARE  snapshot: compares all memory after this share "
                       "of restores\n"
                       "  --trace-boot        tells the server what the boot of FILE reads beside "
                       "code\n"
                       "  --version           print PHP's version\n"
                       "  --info-json         print what this PHP is and has loaded\n"
                       "  --probe-snapshot    print how this machine can find written pages\n";

static _Noreturn void misuse(const char *what, const char *argument) {
    fprintf(stderr, "error: %s%s%s\n%s", what, argument != NULL ? ": " : "",
        argument != NULL ? argument : "", "hint: hearth-worker --help\n");
    exit(EXIT_MISUSE);
}

static enum model parse_model(const char *name) {
    for (size_t i = 0; i < sizeof model_names / sizeof *model_names; i++) {
        if (strcmp(name, model_names[i]) == 0) {
            return (enum model)i;
        }
    }
    misuse("no such model", name);
}

static unsigned parse_count(const char *text) {
    char *end;
    unsigned long count = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || count > 1000) {
        misuse("--warm-up wants a number up to 1000", text);
    }
    return (unsigned)count;
}

/* Returns a share from 0 to 1 in parts of 2^32; the largest number stands for 1. */
static uint32_t parse_share(const char *text) {
    char *end;
    double share = strtod(text, &end);
    if (end == text || *end != '\0' || !(share >= 0 && share <= 1)) {
        misuse("--verify-restores wants a share from 0 to 1", text);
    }
    double parts = share * 4294967296.0;
    if (parts >= UINT32_MAX) {
        return UINT32_MAX;
    }
    return parts > 0 && parts < 1 ? 1 : (uint32_t)parts;
}

/* Kept: `setting`. */
static void add_setting(char *setting, struct options *options) {
    if (strchr(setting, '=') == NULL || setting[0] == '=') {
        misuse("--ini wants KEY=VALUE", setting);
    }
    options->ini = realloc(options->ini, (options->ini_count + 1) * sizeof *options->ini);
    if (options->ini == NULL) {
        abort();
    }
    options->ini[options->ini_count++] = setting;
}

/* `settings`: each ends with a null byte, an empty one ends them. NULL: they could not be read. */
static void add_settings(char *settings, struct options *options) {
    if (settings == NULL) {
        misuse("--ini-stdin wants a file as standard input", NULL);
    }
    for (char *each = settings; *each != '\0'; each += strlen(each) + 1) {
        add_setting(each, options);
    }
}

static enum action parse(int argc, char **argv, struct options *options) {
    enum action action = ACTION_SERVE;
    bool has_model = false;
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
        if (strcmp(name, "--confine") == 0) {
            options->confine = true;
            continue;
        }
        if (strcmp(name, "--report-files") == 0) {
            options->report_files = true;
            continue;
        }
        if (strcmp(name, "--trace-boot") == 0) {
            options->trace_boot = true;
            continue;
        }
        if (strcmp(name, "--rehearse") == 0) {
            options->rehearse = true;
            continue;
        }
        if (strcmp(name, "--learn-classes") == 0) {
            options->learn_classes = true;
            continue;
        }
        if (strcmp(name, "--probe-snapshot") == 0) {
            action = ACTION_PROBE;
            continue;
        }
        if (strcmp(name, "--ini-stdin") == 0) {
            add_settings(ini_of_stdin(), options);
            continue;
        }
        bool model = strcmp(name, "--model") == 0;
        bool script = strcmp(name, "--script") == 0;
        bool warm_up = strcmp(name, "--warm-up") == 0;
        bool verify = strcmp(name, "--verify-restores") == 0;
        bool entry = strcmp(name, "--entry") == 0;
        bool await_after = strcmp(name, "--await-after") == 0;
        if (!model && !script && !warm_up && !verify && !entry && !await_after &&
            strcmp(name, "--ini") != 0) {
            misuse("unknown argument", name);
        }
        if (++i == argc) {
            misuse("a value is missing after", name);
        }
        if (script) {
            options->script = argv[i];
        } else if (model) {
            has_model = true;
            options->model = parse_model(argv[i]);
        } else if (entry) {
            options->document_root = argv[i];
        } else if (await_after) {
            options->await_after = argv[i];
        } else if (warm_up) {
            options->warm_up = parse_count(argv[i]);
        } else if (verify) {
            options->verify_restores = parse_share(argv[i]);
        } else {
            add_setting(argv[i], options);
        }
    }
    if (action != ACTION_SERVE) {
        return action;
    }
    if (!has_model) {
        misuse("--model is missing", NULL);
    }
    bool scripted = options->model != MODEL_REQUEST && options->model != MODEL_SPAWN;
    if (scripted && (options->script == NULL || options->script[0] != '/')) {
        misuse("this model wants --script with an absolute path", options->script);
    }
    if (!scripted && options->script != NULL) {
        misuse("--script belongs to a model with a worker script", options->script);
    }
    if (options->document_root != NULL && !scripted) {
        misuse("--entry belongs to a model with a script", options->document_root);
    }
    if (options->await_after != NULL && options->document_root == NULL) {
        misuse("--await-after belongs to --entry", options->await_after);
    }
    if (options->warm_up > 0 && !model_boots_ahead(options->model)) {
        misuse("--warm-up belongs to --model fork and snapshot", NULL);
    }
    int type;
    socklen_t len = sizeof type;
    if (getsockopt(SERVER, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM) {
        misuse("descriptor 3 is not the server's socket; this program is started by `hearth serve`",
            NULL);
    }
    return action;
}

static void overhear(int number) {
    (void)number;
}

/* Standard input is /dev/null, and writing to a closed pipe is an error, as in sapi/cli and sapi/fpm. USR1 is meant for
 * the server, and may be sent to its whole control group. A handler, unlike SIG_IGN, is not inherited by programs that
 * PHP starts. */
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
    signal(SIGUSR1, overhear);
}

/* The engine's module shutdown would tear down what lives in shared memory for the others: php-fpm's children skip it too. */
static _Noreturn void end(int code) {
    fflush(NULL);
    _exit(code);
}

static _Noreturn void serve(const struct options *options) {
    if (model_boots_ahead(options->model)) {
        zygote_begin(SERVER);
        boot_descriptors_mark();
        opcache_guard_refuse_reset();
        opcache_guard_keep_clock();
        end(worker_run_script(options));
    }
    zygote_run(SERVER, options->confine);
    worker_begin();
    bool scripted = options->model == MODEL_WORKER || options->model == MODEL_PRESPAWN;
    if (scripted) {
        opcache_guard_keep_clock();
    }
    end(scripted ? worker_run_script(options) : request_model_run(options->model == MODEL_SPAWN));
}

static int probe(void) {
    const char *why;
    bool works = snapshot_probe(&why);
    printf("{\"tracker\":\"%s\",\"why\":\"%s\"}\n", works ? "file" : "none", why);
    return 0;
}

int main(int argc, char **argv) {
    struct options options = {0};
    enum action action = parse(argc, argv, &options);
    if (action == ACTION_HELP) {
        fputs(usage, stdout);
        return 0;
    }
    if (action == ACTION_PROBE) {
        return probe();
    }
    if (action == ACTION_SERVE) {
        engine_program_enter(argv);
        if (options.model == MODEL_SNAPSHOT) {
            snapshot_arrange(argv);
            snapshot_model_prepare(options.verify_restores);
        }
        engine_program_settle();
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
        serve(&options);
    }
}
