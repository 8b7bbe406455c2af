/* Tests of the resident models request and worker, and of the command line. Usage: worker PROGRAM
 * SCRIPTS */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"

static void model_request(void) {
    char *const arguments[] = {program_path, "--model", "request", NULL};
    struct zygote zygote = start_zygote(arguments);
    struct worker worker = spawn(&zygote, 1);
    expect(&worker, FRAME_HELLO);
    expect(&worker, FRAME_READY);
    expect_answer(&worker, "hello.php", "/hello.php?name=C", 200, "hello C\n");
    expect_answer(&worker, "filter.php", "/filter.php?a=<b>", 200,
        "a=<b> GET a=<b> true NULL CHANGED false all");
    expect_answer(&worker, "filter.php", "/filter.php", 200, " GET  true NULL CHANGED false all");
    expect_answer(&worker, "fatal.php", "/fatal.php", 500, "before");
    expect_answer(&worker, "exit.php", "/exit.php", 200, "before shutdown destructor");
    expect_answer(&worker, "none.php", "/none.php", 404, "File not found.\n");
    expect_answer(&worker, "functions.php", "/functions.php", 200, "29 functions compared\n");
    check(taken(&worker) == 7, "the worker counts the requests taken");
    expect_answer(&worker, "hello.php", "/hello.php", 200, "hello world\n");
    check(taken(&worker) == 8, "and each one more");

    struct worker other = spawn(&zygote, 2);
    expect(&other, FRAME_HELLO);
    expect(&other, FRAME_READY);
    send_kill(&zygote, 1, SIGKILL); /* not its child: ignored */
    send_kill(&zygote, other.pid, SIGKILL);
    check(wait_for(&zygote, &other) == SIGKILL, "a killed worker is told with its signal");
    expect_answer(&worker, "hello.php", "/hello.php", 200, "hello world\n");

    struct worker broken = spawn(&zygote, 3);
    expect(&broken, FRAME_HELLO);
    expect(&broken, FRAME_READY);
    send(broken.fd, "\377\377\377\377\377\377\377\377", 8, MSG_NOSIGNAL);
    check(wait_for(&zygote, &broken) == 70 << 8, "a malformed frame ends a worker with 70");

    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "a worker exits with 0 when the server wants no more");
    end_zygote(&zygote);
}

static void model_worker(void) {
    char script[4096];
    snprintf(script, sizeof script, "%s/worker.php", scripts);
    char *const arguments[] = {
        program_path, "--model", "worker", "--script", script, "--ini", "memory_limit=64M", NULL};
    struct zygote zygote = start_zygote(arguments);
    struct worker worker = spawn(&zygote, 1);
    expect(&worker, FRAME_HELLO);
    expect(&worker, FRAME_READY);
    expect_answer(&worker, "worker.php", "/?name=C", 200, "hello C\n");
    for (int i = 0; i < 2; i++) {
        expect_answer(&worker, "worker.php", "/filter?a=<b>", 200,
            "a=<b> GET a=<b> true NULL CHANGED false all");
        expect_answer(&worker, "worker.php", "/filter", 200, " GET  true NULL CHANGED false all");
    }
    expect_answer(&worker, "worker.php", "/exit?text=!", 200, "before!");
    expect_answer(&worker, "worker.php", "/fatal", 500, "before");
    expect_answer(&worker, "worker.php", "/shutdown", 200, "from handler from shutdown");
    expect_answer(&worker, "worker.php", "/", 200, "hello world\n");
    send_request(&worker, "worker.php", "/ini");
    answer(&worker);
    char first[sizeof body];
    strcpy(first, body);
    check(strstr(first, "\"memory_limit\":\"64M\"") != NULL, "--ini counts: %s", first);
    send_request(&worker, "worker.php", "/ini");
    answer(&worker);
    check(strcmp(first, body) == 0, "ini changes of a request are undone: %s", body);
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "the loop ends when the server wants no more");
    end_zygote(&zygote);

    setenv("BOOT_FAILS", "1", 1);
    zygote = start_zygote(arguments);
    worker = spawn(&zygote, 1);
    expect(&worker, FRAME_HELLO);
    check(wait_for(&zygote, &worker) == 255 << 8, "a boot that fails ends the worker with 255");
    unsetenv("BOOT_FAILS");
    end_zygote(&zygote);
}

/* The state of a request that was written ahead: docs/internals/frames.md, "Requests written ahead". */
static uint32_t state_of(struct worker *worker, uint32_t number) {
    uint32_t state = 0;
    check(pread(worker->counters, &state, sizeof state, 32 + 4 * (number % 32)) == sizeof state,
        "states can be read");
    return state;
}

static void set_state(struct worker *worker, uint32_t number, uint32_t state) {
    state |= number << 2;
    check(pwrite(worker->counters, &state, sizeof state, 32 + 4 * (number % 32)) == sizeof state,
        "states can be written");
}

/* Not in an emulator, whose own threads would count. */
static bool snapshots_work(void) {
    char command[4200];
    char said[256] = "";
    snprintf(command, sizeof command, "'%s' --probe-snapshot", program_path);
    FILE *probe = popen(command, "r");
    check(probe != NULL, "the probe runs");
    size_t len = fread(said, 1, sizeof said - 1, probe);
    pclose(probe);
    said[len] = 0;
    return strstr(said, "\"file\"") != NULL;
}

enum { ABORTED, OFFERED, BEGUN, WITHDRAWN };

/* Requests 5 and 6: the client of the first leaves while its script prints, which it would do for a quarter of an hour. */
static void abandoned_ahead(struct worker *worker, const char *model) {
    set_state(worker, 5, OFFERED);
    set_state(worker, 6, OFFERED);
    bool is_request = strcmp(model, "request") == 0;
    send_request(worker, is_request ? "aborted.php" : "worker.php", "/endless?times=100000");
    send_request(worker, "hello.php", "/?name=6");
    expect(worker, FRAME_HEAD);
    expect(worker, FRAME_BODY);
    check(state_of(worker, 5) == (5 << 2 | BEGUN), "%s: it was begun", model);
    set_state(worker, 5, ABORTED);
    while (next_of_worker(worker) && frame.header.type == FRAME_BODY) {
    }
    check(frame.header.type == FRAME_END, "%s: a script without a client ends", model);
    if ((frame.header.flags & FRAME_FLAG_BUSY) != 0) {
        expect(worker, FRAME_READY);
    }
    check(answer(worker) == 200 && strcmp(body, "hello 6\n") == 0,
        "%s: the one behind it is answered: %s", model, body);
    check(state_of(worker, 6) == (6 << 2 | BEGUN), "%s: as its client is there", model);
}

static void written_ahead(const char *model) {
    char script[4096];
    snprintf(script, sizeof script, "%s/worker.php", scripts);
    bool has_script = strcmp(model, "request") != 0;
    char *const arguments[] = {
        program_path, "--model", (char *)model, has_script ? "--script" : NULL, script, NULL};
    struct zygote zygote = start_zygote(arguments);
    counters_size = 160 + 16 * 608 + 24;
    struct worker worker = spawn(&zygote, 1);
    counters_size = 8;
    expect(&worker, FRAME_HELLO);
    expect(&worker, FRAME_READY);
    kill((pid_t)worker.pid, SIGSTOP);
    set_state(&worker, 2, OFFERED);
    set_state(&worker, 3, WITHDRAWN);
    set_state(&worker, 4, OFFERED);
    for (int i = 1; i <= 4; i++) {
        char url[64];
        snprintf(url, sizeof url, "/?name=%d", i);
        send_request(&worker, "hello.php", url);
    }
    kill((pid_t)worker.pid, SIGCONT);
    static const char *const expected[] = {"hello 1\n", "hello 2\n", "hello 4\n"};
    for (size_t i = 0; i < 3; i++) {
        check(answer(&worker) == 200, "%s: it is answered", model);
        check(strcmp(body, expected[i]) == 0, "%s: in order, without what was withdrawn: %s", model,
            body);
    }
    check(taken(&worker) == 4, "%s: what was withdrawn counts", model);
    check(state_of(&worker, 2) == (2 << 2 | BEGUN), "%s: what is answered was begun", model);
    check(state_of(&worker, 3) == (3 << 2 | WITHDRAWN), "%s: what was withdrawn was not", model);
    abandoned_ahead(&worker, model);
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "%s: the worker exits with 0", model);
    end_zygote(&zygote);
}

/* ext/filter may change what $_SERVER holds, and may have to know it at once. */
static void filter_settings(void) {
    static const char *const settings[][2] = {
        {"filter.default=special_chars", "a=&#60;b&#62; GET a=<b> true NULL CHANGED false all"},
        {"filter.default=unsafe_raw", "a=<b> GET a=<b> true NULL CHANGED false all"},
        {"auto_globals_jit=0", "a=<b> GET a=<b> true NULL CHANGED false all"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char *const arguments[] = {
            program_path, "--model", "request", "--ini", (char *)settings[i][0], NULL};
        struct zygote zygote = start_zygote(arguments);
        struct worker worker = spawn(&zygote, 1);
        expect(&worker, FRAME_HELLO);
        expect(&worker, FRAME_READY);
        expect_answer(&worker, "filter.php", "/filter.php?a=<b>", 200, settings[i][1]);
        shutdown(worker.fd, SHUT_WR);
        check(wait_for(&zygote, &worker) == 0, "the worker exits with 0");
        end_zygote(&zygote);
    }
}

/* Other users can read a command line. */
static void settings_on_standard_input(void) {
    static const char settings[] = "filter.default=special_chars\0auto_globals_jit=0";
    FILE *file = tmpfile();
    check(file != NULL && fwrite(settings, sizeof settings, 1, file) == 1 && fflush(file) == 0,
        "a file has the settings");
    int before = dup(STDIN_FILENO);
    dup2(fileno(file), STDIN_FILENO);
    char *const arguments[] = {program_path, "--model", "request", "--ini-stdin", NULL};
    struct zygote zygote = start_zygote(arguments);
    dup2(before, STDIN_FILENO);
    close(before);
    fclose(file);
    struct worker worker = spawn(&zygote, 1);
    expect(&worker, FRAME_HELLO);
    expect(&worker, FRAME_READY);
    expect_answer(&worker, "filter.php", "/filter.php?a=<b>", 200,
        "a=&#60;b&#62; GET a=<b> true NULL CHANGED false all");
    char link[64];
    char target[64] = "";
    snprintf(link, sizeof link, "/proc/%d/fd/0", (int)worker.pid);
    check(readlink(link, target, sizeof target - 1) > 0 && strcmp(target, "/dev/null") == 0,
        "standard input of a worker is /dev/null: %s", target);
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "the worker exits with 0");
    end_zygote(&zygote);
}

/* The program's exit code for a command line that is none. Its words go nowhere. */
static int exit_code_of(const char *argument) {
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl(program_path, program_path, argument, NULL);
        _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void command_line(void) {
    check(exit_code_of("--version") == 0, "--version exits with 0");
    check(exit_code_of("--info-json") == 0, "--info-json exits with 0");
    check(exit_code_of("--nonsense") == 2, "an unknown argument is misuse");
    check(exit_code_of("--model") == 2, "a missing value is misuse");
    check(exit_code_of("--ini-stdin") == 2,
        "settings on a standard input that is no file are misuse");
}

int main(int argc, char **argv) {
    if (argc != 3 || realpath(argv[1], program_path) == NULL) {
        fprintf(stderr, "usage: %s PROGRAM SCRIPTS\n", argv[0]);
        return 2;
    }
    scripts = realpath(argv[2], NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    command_line();
    model_request();
    model_worker();
    written_ahead("request");
    written_ahead("worker");
    if (snapshots_work()) {
        written_ahead("snapshot");
    } else {
        puts("left out: requests written ahead in `snapshot`, which cannot run here");
    }
    filter_settings();
    settings_on_standard_input();
    printf("worker: %d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
