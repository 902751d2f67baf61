/* Asks at the same time from everywhere. Each answer must be right; the first wrong one ends the process with 1.

   storm CPUS threads THREADS ROUNDS     in a loop in many threads
   storm CPUS signals SIGNALS            in a signal handler that interrupts the same questions
   storm CPUS forks CHILDREN             in children that are forked and vforked while threads ask
   storm 0 sets THREADS ROUNDS           threads set masks of CPU 0, of CPU 1 and of both, and read them back
   storm 0 breaks                        calls malloc while that is forbidden

   CPUS is the number that each answer must tell. Compiled with -DFORBID, the process aborts where malloc, free, getenv
   or dlsym is called once the questions have begun. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1024, UNTOUCHED = 4242 };

static int cpus, rounds;
static unsigned char expected[BYTES];
static atomic_int is_forbidden, handled;

#ifdef FORBID
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void __libc_free(void *memory);

static void forbidden(const char *name)
{
    if (!is_forbidden)
        return;
    write(2, name, strlen(name));
    write(2, " is forbidden\n", 14);
    abort();
}

void *malloc(size_t size)
{
    forbidden("malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    forbidden("calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    forbidden("realloc");
    return __libc_realloc(memory, size);
}

void free(void *memory)
{
    forbidden("free");
    __libc_free(memory);
}

char *getenv(const char *name)
{
    size_t length = strlen(name);

    forbidden("getenv");
    for (char **variable = environ; variable && *variable; variable++)
        if (!strncmp(*variable, name, length) && (*variable)[length] == '=')
            return *variable + length + 1;
    return NULL;
}

/* RTLD_NEXT is relative to the caller, so this must end in a jump (-O2) to the real function. */
void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);

    forbidden("dlsym");
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    return real(handle, name);
}
#endif

static void fail(const char *what)
{
    write(2, what, strlen(what));
    write(2, " is wrong\n", 10);
    _exit(1);
}

static void check(int is_right, const char *what)
{
    if (!is_right)
        fail(what);
}

static void ask(void)
{
    unsigned char mask[BYTES];
    unsigned cpu, node;

    errno = UNTOUCHED;
    check(!sched_getaffinity(0, BYTES, (cpu_set_t *)mask), "result of sched_getaffinity");
    check(!memcmp(mask, expected, BYTES), "sched_getaffinity");
    check(!sched_getaffinity(gettid(), BYTES, (cpu_set_t *)mask), "result of sched_getaffinity of a thread");
    check(!memcmp(mask, expected, BYTES), "sched_getaffinity of a thread");
    check(!pthread_getaffinity_np(pthread_self(), BYTES, (cpu_set_t *)mask), "result of pthread_getaffinity_np");
    check(!memcmp(mask, expected, BYTES), "pthread_getaffinity_np");
    check(get_nprocs() == cpus, "get_nprocs");
    check(get_nprocs_conf() == cpus, "get_nprocs_conf");
    check(sysconf(_SC_NPROCESSORS_ONLN) == cpus, "_SC_NPROCESSORS_ONLN");
    check(sysconf(_SC_NPROCESSORS_CONF) == cpus, "_SC_NPROCESSORS_CONF");
    check((unsigned)sched_getcpu() < (unsigned)cpus, "sched_getcpu");
    check(!getcpu(&cpu, &node) && cpu < (unsigned)cpus, "getcpu");
    check(errno == UNTOUCHED, "errno");
}

static void *ask_in_loop(void *unused)
{
    for (int round = 0; round < rounds; round++) {
        ask();
#ifndef FORBID
        free(malloc((size_t)round));
#endif
    }
    return unused;
}

static void *set_in_loop(void *number)
{
    int step = 1 + (int)(long)number % 2; /* one half of the threads in the other order */
    pthread_attr_t attributes;

    for (int round = 0; round < rounds; round++) {
        cpu_set_t wanted, mask;

        CPU_ZERO(&wanted);
        for (int cpu = 0; cpu < 2; cpu++)
            if ((1 + round * step % 3) >> cpu & 1)
                CPU_SET(cpu, &wanted);
        if (round % 2)
            check(!sched_setaffinity(0, sizeof wanted, &wanted), "result of sched_setaffinity");
        else
            check(!pthread_setaffinity_np(pthread_self(), sizeof wanted, &wanted), "result of pthread_setaffinity_np");
        check(!sched_getaffinity(0, sizeof mask, &mask) && CPU_EQUAL(&mask, &wanted), "sched_getaffinity");
        /* A mask that no other thread sets; no thread is made with it. */
        CPU_ZERO(&mask);
        CPU_SET(2 + (int)(long)number, &mask);
        CPU_SET(300 + round, &mask);
        check(!pthread_attr_init(&attributes), "pthread_attr_init");
        check(!pthread_attr_setaffinity_np(&attributes, sizeof mask, &mask), "pthread_attr_setaffinity_np");
        check(!pthread_attr_destroy(&attributes), "pthread_attr_destroy");
    }
    return NULL;
}

static void in_threads(int threads, void *(*function)(void *))
{
    pthread_t made[256];

    for (int i = 0; i < threads; i++)
        check(!pthread_create(&made[i], NULL, function, (void *)(long)i), "pthread_create");
    for (int i = 0; i < threads; i++)
        check(!pthread_join(made[i], NULL), "pthread_join");
}

static void handle(int number)
{
    int error = errno;

    (void)number;
    ask();
    handled++;
    errno = error;
}

static void ask_under_signals(int signals)
{
    struct sigaction action = {.sa_handler = handle};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec interval = {.it_interval.tv_nsec = 20000, .it_value.tv_nsec = 20000};
    timer_t timer;

    check(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    check(!timer_create(CLOCK_MONOTONIC, &event, &timer), "timer_create");
    check(!timer_settime(timer, 0, &interval, NULL), "timer_settime");
    is_forbidden = 1;
    while (handled < signals)
        ask();
    is_forbidden = 0;
    check(!timer_delete(timer), "timer_delete");
}

static void *ask_until_end(void *is_over)
{
    while (!*(atomic_int *)is_over)
        ask();
    return NULL;
}

static void ask_in_children(int children)
{
    atomic_int is_over = 0;
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        check(!pthread_create(&threads[i], NULL, ask_until_end, &is_over), "pthread_create");
    for (int i = 0; i < children; i++) {
        int status;
        pid_t child = i % 2 ? fork() : vfork();

        if (!child) {
            ask();
            _exit(0);
        }
        check(waitpid(child, &status, 0) == child && status == 0, "child");
    }
    is_over = 1;
    for (int i = 0; i < 4; i++)
        check(!pthread_join(threads[i], NULL), "pthread_join");
}

int main(int count, char **arguments)
{
    const char *what = arguments[2];
    int number = count > 3 ? atoi(arguments[3]) : 0;

    cpus = atoi(arguments[1]);
    rounds = count > 4 ? atoi(arguments[4]) : 0;
    check(!sched_getaffinity(0, BYTES, (cpu_set_t *)expected), "result of sched_getaffinity");
    if (cpus) {
        check(CPU_COUNT_S(BYTES, (cpu_set_t *)expected) == cpus, "number of CPUs");
        is_forbidden = 1;
        ask();
        is_forbidden = 0;
    }
    if (!strcmp(what, "threads"))
        in_threads(number, ask_in_loop);
    else if (!strcmp(what, "signals"))
        ask_under_signals(number);
    else if (!strcmp(what, "forks"))
        ask_in_children(number);
    else if (!strcmp(what, "sets")) {
        /* So that what was told of both before is not what is asked for. */
        CPU_SET(0, (cpu_set_t *)expected);
        CPU_SET(1, (cpu_set_t *)expected);
        check(!sched_setaffinity(0, BYTES, (cpu_set_t *)expected), "result of sched_setaffinity");
        in_threads(number, set_in_loop);
    }
    else {
        is_forbidden = 1;
        free(malloc(100));
    }
    puts("right");
    return 0;
}
