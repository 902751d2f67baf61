/* Asks the C library about CPUs, and prints each answer: what was asked, the result, errno, the bytes of the buffer.

   counts         the functions that give a number
   N              the functions that give a mask, in a buffer of N bytes, aligned and not
   errors         what must fail
   setenv=VALUE   sets TFLAUNCH_VIEW_CPUS, which must change nothing

   errno is UNTOUCHED before each question; the buffer has guards of as many bytes on both sides. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { UNTOUCHED = 4242, GUARD = 16, LARGEST = 1 << 16, FILL = 0xa5 };

static unsigned char buffer[GUARD + LARGEST + GUARD + 1];

static void print(const char *question, long result, size_t length)
{
    int error = errno;

    printf("%s\t%ld\t%d\t", question, result, error);
    for (size_t i = 0; i < length; i++)
        printf("%02x", buffer[i]);
    putchar('\n');
}

/* The mask in the middle of a fresh buffer. */
static cpu_set_t *fresh(int offset)
{
    memset(buffer, FILL, sizeof buffer);
    errno = UNTOUCHED;
    return (cpu_set_t *)(buffer + GUARD + offset);
}

static void ask_masks(size_t size)
{
    pid_t threads[] = {0, getpid(), gettid()};
    char question[100];

    for (int offset = 0; offset < 2; offset++) {
        size_t length = GUARD + offset + size + GUARD;

        for (int i = 0; i < 3; i++) {
            snprintf(question, sizeof question, "sched_getaffinity %d %zu %d", i, size, offset);
            print(question, sched_getaffinity(threads[i], size, fresh(offset)), length);
        }
        snprintf(question, sizeof question, "pthread_getaffinity_np 0 %zu %d", size, offset);
        print(question, pthread_getaffinity_np(pthread_self(), size, fresh(offset)), length);
    }
}

static void ask_counts(void)
{
    unsigned cpu = 0, node = 0;

    fresh(0);
    print("get_nprocs", get_nprocs(), 0);
    print("get_nprocs_conf", get_nprocs_conf(), 0);
    print("_SC_NPROCESSORS_ONLN", sysconf(_SC_NPROCESSORS_ONLN), 0);
    print("_SC_NPROCESSORS_CONF", sysconf(_SC_NPROCESSORS_CONF), 0);
    print("_SC_PAGESIZE", sysconf(_SC_PAGESIZE), 0);
    print("sched_getcpu", sched_getcpu(), 0);
    print("getcpu", getcpu(&cpu, &node), 0);
    print("getcpu cpu", cpu, 0);
    print("getcpu node", node, 0);
    print("getcpu none", getcpu(NULL, NULL), 0);
    print("unknown sysconf", sysconf(-1), 0);
}

static void ask_errors(void)
{
    static const size_t sizes[] = {0, 1, 4, 12, 1001, (size_t)-1, (size_t)-8};
    cpu_set_t *nowhere = (cpu_set_t *)8, empty;
    char question[100];
    int error;

    CPU_ZERO(&empty);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(question, sizeof question, "size %zu", sizes[i]);
        print(question, sched_getaffinity(0, sizes[i], fresh(0)), GUARD + 128);
        snprintf(question, sizeof question, "pthread size %zu", sizes[i]);
        error = pthread_getaffinity_np(pthread_self(), sizes[i], fresh(0));
        print(question, error, GUARD + 128);
    }
    print("no such thread", sched_getaffinity(0x3fffffff, 1024, fresh(0)), GUARD + 128);
    print("negative thread", sched_getaffinity(-1, 1024, fresh(0)), GUARD + 128);
    fresh(0);
    print("nowhere", sched_getaffinity(0, 1024, nowhere), 0);
    fresh(0);
    print("pthread nowhere", pthread_getaffinity_np(pthread_self(), 1024, nowhere), 0);
    fresh(0);
    print("set nowhere", sched_setaffinity(0, 1024, nowhere), 0);
    fresh(0);
    print("pthread set nowhere", pthread_setaffinity_np(pthread_self(), 1024, nowhere), 0);
    fresh(0);
    print("set none", sched_setaffinity(0, sizeof empty, &empty), 0);
    fresh(0);
    print("pthread set none", pthread_setaffinity_np(pthread_self(), sizeof empty, &empty), 0);
    fresh(0);
    print("set no such thread", sched_setaffinity(0x3fffffff, sizeof empty, &empty), 0);
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "counts"))
            ask_counts();
        else if (!strcmp(arguments[i], "errors"))
            ask_errors();
        else if (!strncmp(arguments[i], "setenv=", 7))
            setenv("TFLAUNCH_VIEW_CPUS", arguments[i] + 7, 1);
        else
            ask_masks((size_t)atol(arguments[i]));
    }
    return 0;
}
