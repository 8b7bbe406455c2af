/* Drives the worker program as the server does: starts a zygote, makes it fork workers, sends
 * requests, ends them. */
#ifndef HEARTH_TESTS_DRIVE_H
#define HEARTH_TESTS_DRIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/frame.h"

enum { BODY_MAX = 1 << 20 };

struct frame {
    struct frame_header header;
    uint8_t payload[FRAME_MAX_PAYLOAD + 1]; /* ends with a NUL for convenience */
};

struct zygote {
    pid_t pid;
    int fd;
};

struct worker {
    uint32_t pid;
    int fd;
    int counters;
};

extern int failures, checks;
extern const char *scripts;     /* the folder of PHP scripts */
extern off_t counters_size;     /* of the workers spawned next: 8 has the count alone */
extern char program_path[4096]; /* of the worker program */
extern struct frame frame;      /* the frame that was read last */
extern char body[BODY_MAX + 1]; /* the body that was read last */

void check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void give_up(const char *what);
uint32_t u32_at(const uint8_t *p);

/* Waits for the zygote's HELLO. */
struct zygote start_zygote(char *const arguments[]);
/* Starts it with `count` warm-up requests written ahead. */
struct zygote start_warm_zygote(
    char *const arguments[], const char *script, const char *url, unsigned count);
/* Closes its socket and waits until it has ended. */
void end_zygote(struct zygote *zygote);
void send_kill(struct zygote *zygote, uint32_t pid, uint8_t number);

struct worker spawn(struct zygote *zygote, uint32_t slot);
/* How many requests it has taken. */
uint64_t taken(const struct worker *worker);
/* The next frame that is no LOG. */
bool next_of_worker(struct worker *worker);
void expect(struct worker *worker, uint8_t type);
void send_request(struct worker *worker, const char *script, const char *url);
/* Reads a whole answer, and READY after a BUSY end: its status; its body is in `body`. 0: the worker ended instead. */
unsigned answer(struct worker *worker);
void expect_answer(
    struct worker *worker, const char *script, const char *url, unsigned status, const char *text);
/* The wait status of a worker that ends. */
uint32_t wait_for(struct zygote *zygote, const struct worker *worker);

#endif
