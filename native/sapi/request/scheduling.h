/* The scheduling policy of workers.
 *
 * Promises
 * - While requests are short, a worker that wakes up does not displace the server: the server finishes its turn first.
 * - A policy that an operator has chosen (SCHED_FIFO, SCHED_IDLE, ...) stays.
 * - When the server says that they take long, the worker runs as any process: it would else lose its turn to other programs each time that it has
 *   waited for a database.
 */
#ifndef HEARTH_SAPI_REQUEST_SCHEDULING_H
#define HEARTH_SAPI_REQUEST_SCHEDULING_H

/* For a new worker, of whose requests nothing is known. Processes that PHP code starts inherit the policy. Where the system refuses it, the worker runs
 * as any process. */
void scheduling_of_new_worker(void);
/* Takes the policy that suits the requests, if it has changed. */
void scheduling_follow(void);

#endif
