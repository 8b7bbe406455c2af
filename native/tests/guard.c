/* Tests what workers know of their predecessors (sapi/databases/guard.h). A silent server is asked
 * by one worker at a time, after growing pauses, and by all when it answers again. Usage: guard */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sapi/databases/guard.h"

enum { LIMIT = 100, PLACES = 16 };

static void a_silent_server_is_asked_by_one_at_a_time(void) {
    const uint64_t server = 1;
    check(databases_guard_silent_until(server, 0, LIMIT) == 0, "nothing is known of it");
    check(databases_guard_unanswered(server, 1000, LIMIT) == 1100, "a first pause");
    check(databases_guard_silent_until(server, 1000, LIMIT) == 1100, "the others wait");
    check(databases_guard_silent_until(server, 1099, LIMIT) == 1100, "until it is over");
    check(databases_guard_silent_until(2, 1000, LIMIT) == 0, "and only for that server");
    check(databases_guard_silent_until(server, 1100, LIMIT) == 0, "then one may");
    check(databases_guard_silent_until(server, 1101, LIMIT) == 1200, "and no second");
    /* the first has ended without a word */
    check(databases_guard_silent_until(server, 1200, LIMIT) == 0, "one again");
    databases_guard_answered(server);
    check(databases_guard_silent_until(server, 1201, LIMIT) == 0, "it answers");
    check(databases_guard_silent_until(server, 1201, LIMIT) == 0, "so all may");
}

static void pauses_grow_to_eight_times_the_limit(void) {
    const uint64_t server = 3;
    const uint64_t pauses[] = {LIMIT, 2 * LIMIT, 4 * LIMIT, 8 * LIMIT, 8 * LIMIT};
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        check(databases_guard_unanswered(server, 5000, LIMIT) == 5000 + pauses[i], "a pause");
    }
    databases_guard_answered(server);
    check(databases_guard_unanswered(server, 9000, LIMIT) == 9000 + LIMIT, "and start again");
    databases_guard_answered(server);
}

static void a_suspected_server_is_asked_by_one_first(void) {
    const uint64_t server = 4;
    databases_guard_suspected(server);
    check(databases_guard_silent_until(server, 2000, LIMIT) == 0, "the first");
    check(databases_guard_silent_until(server, 2000, LIMIT) == 2100, "the second waits");
    check(databases_guard_is_suspicion(server), "for what the first finds out");
    databases_guard_suspected(server);
    check(databases_guard_silent_until(server, 2000, LIMIT) == 2100,
        "for a worker that suspects it, too");
    databases_guard_answered(server);
    check(databases_guard_silent_until(server, 2000, LIMIT) == 0, "it was wrong");
    databases_guard_suspected(server);
    databases_guard_unanswered(server, 2000, LIMIT);
    check(!databases_guard_is_suspicion(server), "it was right");
    databases_guard_answered(server);
}

static void servers_that_answer_make_room_for_others(void) {
    for (uint64_t server = 100; server < 100 + PLACES; server++) {
        databases_guard_unanswered(server, 1000, LIMIT);
    }
    check(databases_guard_unanswered(200, 1000, LIMIT) == 1100, "one more is told when to ask");
    check(databases_guard_silent_until(200, 1000, LIMIT) == 0, "but not remembered");
    databases_guard_answered(105);
    databases_guard_unanswered(200, 1000, LIMIT);
    check(databases_guard_silent_until(200, 1000, LIMIT) == 1100, "in the place of one");
    check(databases_guard_silent_until(105, 1000, LIMIT) == 0, "which is forgotten");
    check(databases_guard_silent_until(106, 1000, LIMIT) == 1100, "and no other");
}

static void what_a_fork_finds_out_its_zygote_and_the_next_fork_know(void) {
    for (uint64_t server = 100; server < 100 + PLACES; server++) {
        databases_guard_answered(server);
    }
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            bool known = databases_guard_silent_until(300, 1000, LIMIT) != 0;
            databases_guard_unanswered(300, 1000, LIMIT);
            _exit(known == (i == 1) && databases_guard_is_news("a line") == (i == 0) ? 0 : 1);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        check(status == 0, "a fork knows what the one before it knew");
    }
    check(databases_guard_silent_until(300, 1000, LIMIT) != 0, "and so does the zygote");
}

static void short_lived_connections_are_temporarily_not_kept(void) {
    const uint64_t server = 7;
    for (int i = 0; i < 4; i++) {
        databases_guard_failed(server, 1000);
    }
    check(databases_guard_until(server, 1000) == 0, "four are chance");
    databases_guard_failed(server, 1000);
    check(databases_guard_until(server, 1000) == 31000, "five are not");
    check(databases_guard_until(server, 31000) == 0, "it is tried again");
    databases_guard_failed(server, 31000);
    check(databases_guard_until(server, 31000) == 91000, "one more failure is enough then");
    databases_guard_lasted(server);
    databases_guard_failed(server, 100000);
    check(databases_guard_until(server, 100000) == 0, "one that lasted makes all good");
}

static void files_are_not_kept_while_workers_do_not_last(void) {
    check(databases_guard_allows_files(1000), "at first they are");
    for (int i = 0; i < 4; i++) {
        databases_guard_retired(199, 1000);
    }
    check(databases_guard_allows_files(1000), "after four short lives, too");
    databases_guard_retired(200, 1000);
    databases_guard_retired(0, 1000);
    check(databases_guard_allows_files(1000), "a long life makes all good");
    for (int i = 0; i < 4; i++) {
        databases_guard_retired(0, 1000);
    }
    check(!databases_guard_allows_files(30999), "after five in a row they are not");
    check(databases_guard_allows_files(31000), "for half a minute");
}

int main(void) {
    databases_guard_open();
    RUN(a_silent_server_is_asked_by_one_at_a_time);
    RUN(pauses_grow_to_eight_times_the_limit);
    RUN(a_suspected_server_is_asked_by_one_first);
    RUN(servers_that_answer_make_room_for_others);
    RUN(what_a_fork_finds_out_its_zygote_and_the_next_fork_know);
    RUN(short_lived_connections_are_temporarily_not_kept);
    RUN(files_are_not_kept_while_workers_do_not_last);
    printf("guard: %d tests, %d failed\n", checked, failures);
    return failures > 0;
}
