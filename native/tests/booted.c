/* Tests of the models spawn, prespawn, fork and snapshot. Usage: booted PROGRAM SCRIPTS */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"

static char folder[] = "/tmp/hearth-booted-XXXXXX";
static char script[4096];

/* Returns the text that a script has written into the folder, and deletes the file. Static: the
 * result. */
static const char *take_file(const char *name) {
    static char text[4096];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    size_t len = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    text[len] = '\0';
    if (file != NULL) {
        fclose(file);
        unlink(path);
    }
    return text;
}

static struct worker ready_worker(struct zygote *zygote, uint32_t slot) {
    struct worker worker = spawn(zygote, slot);
    expect(&worker, FRAME_HELLO);
    expect(&worker, FRAME_READY);
    return worker;
}

/* One request to a one-shot worker, which ends with 0. */
static void expect_once(
    struct zygote *zygote, const char *file, const char *url, unsigned status, const char *text) {
    static uint32_t slot;
    struct worker worker = ready_worker(zygote, ++slot);
    expect_answer(&worker, file, url, status, text);
    check(wait_for(zygote, &worker) == 0, "%s: a one-shot worker exits with 0", url);
}

static void model_spawn(void) {
    char *const arguments[] = {program_path, "--model", "spawn", NULL};
    struct zygote zygote = start_zygote(arguments);
    expect_once(&zygote, "hello.php", "/hello.php?name=C", 200, "hello C\n");
    expect_once(&zygote, "fatal.php", "/fatal.php", 500, "before");
    expect_once(&zygote, "exit.php", "/exit.php", 200, "before shutdown destructor");
    end_zygote(&zygote);
}

static void model_prespawn(void) {
    char *const arguments[] = {program_path, "--model", "prespawn", "--script", script, NULL};
    struct zygote zygote = start_zygote(arguments);
    for (int i = 0; i < 2; i++) {
        expect_once(&zygote, "booted.php", "/state", 200, "static 1, boot 101, warm no");
        check(strcmp(take_file("behind"), "behind ") == 0, "the loop's own code runs");
        check(strcmp(take_file("goodbye"), "boot ") == 0, "the script ends in order");
    }
    expect_once(&zygote, "booted.php", "/fatal", 500, "before");
    expect_once(&zygote, "booted.php", "/exit", 200, "before");
    end_zygote(&zygote);
}

/* Answers that every request finds unchanged after the boot. */
static void each_from_boot(struct zygote *zygote, struct worker *kept) {
    const struct {
        const char *url;
        unsigned status;
        const char *text, *behind, *goodbye;
    } cases[] = {
        {"/state", 200, "static 1, boot 101, warm no", "behind ", ""},
        {"/state", 200, "static 1, boot 101, warm no", "behind ", ""},
        {"/file", 200, "<?php", "behind ", ""},
        {"/file", 200, "<?php", "behind ", ""},
        {"/leave?name=one", 200, "left", "behind ", "one "},
        {"/leave?name=two", 200, "left", "behind ", "two "},
        {"/exit", 200, "before", "behind ", ""},
        {"/finish", 200, "whole", "behind ", ""},
        {"/fatal", 500, "before", "", ""},
        {"/throw", 500, "", "", ""},
        {"/forked", 200, "child 7", "behind behind ", ""},
        {"/state", 200, "static 1, boot 101, warm no", "behind ", ""},
        {"/connection", 200, "none", "behind ", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (kept == NULL) {
            expect_once(zygote, "booted.php", cases[i].url, cases[i].status, cases[i].text);
        } else {
            expect_answer(kept, "booted.php", cases[i].url, cases[i].status, cases[i].text);
            /* the previous request's work after its answer is done when the next one begins */
            expect_answer(kept, "booted.php", "/connection", 200, "none");
        }
        char behind[64];
        snprintf(behind, sizeof behind, "%s", take_file("behind"));
        check(strncmp(behind, cases[i].behind, strlen(cases[i].behind)) == 0,
            "%s: the loop's own code ran: \"%s\"", cases[i].url, behind);
        const char *goodbye = take_file("goodbye");
        check(strcmp(goodbye, cases[i].goodbye) == 0, "%s: destructors ran: \"%s\"", cases[i].url,
            goodbye);
    }
}

static void model_fork(void) {
    take_file("goodbye");
    char *const arguments[] = {program_path, "--model", "fork", "--script", script, NULL};
    struct zygote zygote = start_zygote(arguments);
    each_from_boot(&zygote, NULL);
    for (int i = 0; i < 10; i++) { /* with the pages that were learned */
        expect_once(&zygote, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    }
    end_zygote(&zygote);
}

static void model_snapshot(void) {
    char *const arguments[] = {program_path, "--model", "snapshot", "--script", script, NULL};
    struct zygote zygote = start_zygote(arguments);
    struct worker one = ready_worker(&zygote, 1);
    struct worker two = ready_worker(&zygote, 2);
    each_from_boot(&zygote, &one);
    each_from_boot(&zygote, &two);
    for (int i = 0; i < 2000; i++) {
        expect_answer(&one, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    }
    /* free slots: few, then more than are linked ahead, then few again, until their number is learned, and behind that */
    static const unsigned slots[] = {1, 50, 3000, 2};
    for (unsigned i = 0; i < 80; i++) {
        char url[64];
        snprintf(url, sizeof url, "/slots?n=%u", slots[i % 4] + i);
        expect_answer(&one, "booted.php", url, 200, "0 wrong");
    }
    for (int i = 0; i < 2; i++) {
        expect_answer(&one, "booted.php", "/cycles", 200, "2 collected, 0 more roots");
        expect_answer(&one, "booted.php", "/patterns", 200, "0 wrong");
        expect_answer(&one, "booted.php", "/descriptors", 200, "side by side");
    }
    expect_answer(&one, "booted.php", "/spin", 500, "");
    expect_answer(&one, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    check(taken(&one) > 2000, "the shared counters are no part of what is put back");
    shutdown(one.fd, SHUT_WR);
    check(wait_for(&zygote, &one) == 0, "a worker exits with 0 when the server wants no more");
    shutdown(two.fd, SHUT_WR);
    check(wait_for(&zygote, &two) == 0, "and so does the other");
    end_zygote(&zygote);
}

static void read_directory(const struct worker *worker, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%u/cwd", worker->pid);
    ssize_t len = readlink(link, path, size - 1);
    path[len > 0 ? len : 0] = '\0';
}

/* On Lambda a worker with one processor restores when the next request comes, or shortly after. */
static void late_restores(void) {
    enum { MOST_WAITS = 5000 }; /* of a millisecond */
    char *const arguments[] = {program_path, "--model", "snapshot", "--script", script, NULL};
    char directory[4096];
    char now[4096];
    cpu_set_t all;
    cpu_set_t one_of_them;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one_of_them);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one_of_them) == 0; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one_of_them);
        }
    }
    sched_setaffinity(0, sizeof one_of_them, &one_of_them);
    setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1", 1);
    struct zygote zygote = start_zygote(arguments);
    struct worker worker = ready_worker(&zygote, 1);
    for (int i = 0; i < 200; i++) {
        expect_answer(&worker, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    }
    read_directory(&worker, directory, sizeof directory);
    check(strlen(directory) > 1, "the worker is in a folder: %s", directory);
    expect_answer(&worker, "booted.php", "/directory", 200, "changed");
    int waits = 0;
    do {
        usleep(1000);
        read_directory(&worker, now, sizeof now);
        waits++;
    } while (strcmp(now, directory) != 0 && waits < MOST_WAITS);
    check(waits < MOST_WAITS, "a restore comes without another request");
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "a worker that restores late ends with 0");
    end_zygote(&zygote);
    unsetenv("AWS_LAMBDA_RUNTIME_API");
    sched_setaffinity(0, sizeof all, &all);
}

static void warming_up(char *model) {
    char *const arguments[] = {
        program_path, "--model", model, "--script", script, "--warm-up", "3", NULL};
    take_file("behind");
    struct zygote zygote = start_warm_zygote(arguments, "booted.php", "/state", 3);
    check(strcmp(take_file("behind"), "behind behind behind ") == 0, "warm-ups are served");
    struct worker worker = ready_worker(&zygote, 1);
    expect_answer(&worker, "booted.php", "/state", 200, "static 4, boot 104, warm no");
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "%s: a warmed worker ends with 0", model);
    end_zygote(&zygote);

    zygote = start_warm_zygote(arguments, "booted.php", "/throw", 3);
    take_file("behind");
    worker = ready_worker(&zygote, 1);
    expect_answer(&worker, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "%s: a failed warm-up is left out", model);
    end_zygote(&zygote);
}

static void connections_of_the_boot(char *model) {
    char *const arguments[] = {program_path, "--model", model, "--script", script, NULL};
    char path[4096];
    snprintf(path, sizeof path, "%s/socket", folder);
    setenv("BOOTED_CONNECTS", "1", 1);
    struct zygote zygote = start_zygote(arguments);
    struct worker worker = ready_worker(&zygote, 1);
    expect_answer(&worker, "booted.php", "/connection", 200, "closed");
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "%s: ends with 0", model);
    end_zygote(&zygote);
    unsetenv("BOOTED_CONNECTS");
    unlink(path);
}

static double processor_time(pid_t pid) {
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
        give_up("no clock of the process");
    }
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The time limit of the boot, a second of processor time, ends with the boot: the zygote may use more. */
static void time_of_the_zygote(char *model) {
    char *const arguments[] = {program_path, "--model", model, "--script", script, NULL};
    setenv("BOOTED_LIMITED", "1", 1);
    struct zygote zygote = start_zygote(arguments);
    double begin = processor_time(zygote.pid);
    while (processor_time(zygote.pid) < begin + 1.2) {
        for (int i = 0; i < 1000; i++) {
            send_kill(&zygote, 0, 0); /* no worker, so nothing but work for the zygote */
        }
    }
    struct worker worker = ready_worker(&zygote, 1);
    expect_answer(&worker, "booted.php", "/state", 200, "static 1, boot 101, warm no");
    shutdown(worker.fd, SHUT_WR);
    check(wait_for(&zygote, &worker) == 0, "%s: a worker of an old zygote ends with 0", model);
    end_zygote(&zygote);
    unsetenv("BOOTED_LIMITED");
}

/* Returns the exit code of a zygote that sends no HELLO. */
static void failing_boot(char *model) {
    char *const arguments[] = {program_path, "--model", model, "--script", script, NULL};
    int pair[2];
    setenv("BOOTED_FAILS", "1", 1);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        give_up("socketpair");
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        dup2(pair[1], 3);
        execv(program_path, arguments);
        _exit(127);
    }
    close(pair[1]);
    int status = 0;
    waitpid(pid, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 255,
        "%s: a boot that fails ends the zygote with 255", model);
    close(pair[0]);
    unsetenv("BOOTED_FAILS");
    take_file("goodbye");
}

int main(int argc, char **argv) {
    if (argc != 3 || realpath(argv[1], program_path) == NULL) {
        fprintf(stderr, "usage: %s PROGRAM SCRIPTS\n", argv[0]);
        return 2;
    }
    scripts = realpath(argv[2], NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (mkdtemp(folder) == NULL) {
        give_up("mkdtemp");
    }
    setenv("BOOTED_DIR", folder, 1);
    snprintf(script, sizeof script, "%s/booted.php", scripts);
    model_spawn();
    model_prespawn();
    model_fork();
    warming_up("fork");
    connections_of_the_boot("fork");
    time_of_the_zygote("fork");
    failing_boot("fork");
    model_snapshot();
    late_restores();
    warming_up("snapshot");
    connections_of_the_boot("snapshot");
    time_of_the_zygote("snapshot");
    failing_boot("snapshot");
    take_file("behind");
    take_file("goodbye");
    rmdir(folder);
    printf("booted: %d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
