/* A machine for one program: preloaded behind the view, it stands for a kernel with other CPUs than there are.

   MACHINE_CPUS   how many numbers of CPUs the kernel knows
   MACHINE_MASK   a list such as "0-3,8": the CPUs that the process may use; what it sets itself is cut to them
   MACHINE_LOG    each mask that is set is told on standard error

   Errors are those of the real kernel, which is asked first. There is one mask for the whole process. Only answers
   change; errno is left alone where nothing fails, as it should be. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { BYTES = 1024 };

static long cpus;
static unsigned char allowed[BYTES], now[BYTES];
static long (*real_sysconf)(int);
static atomic_uint asked;

/* Sanitizers ask before there is an environment, and before they can bear strtol. */
static long number(const char **text)
{
    long value = 0;

    for (; **text >= '0' && **text <= '9'; ++*text)
        value = value * 10 + **text - '0';
    return value;
}

__attribute__((constructor)) static void prepare(void)
{
    if (cpus)
        return;
    const char *list = getenv("MACHINE_MASK"), *count = getenv("MACHINE_CPUS");
    if (!real_sysconf)
        real_sysconf = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    if (!count)
        return;
    while (*list) {
        long low = number(&list), high = *list == '-' ? (list++, number(&list)) : low;

        for (long cpu = low; cpu <= high; cpu++)
            CPU_SET_S(cpu, BYTES, (cpu_set_t *)allowed);
        list += *list == ',';
    }
    memcpy(now, allowed, BYTES);
    cpus = number(&count);
}

/* 0 or the number of an error. */
static int get(pid_t thread, size_t size, void *mask)
{
    unsigned char unused[BYTES];
    int before = errno, error = 0;

    prepare();
    if (size % sizeof(long) || size * 8 < (size_t)cpus)
        return EINVAL;
    if (syscall(SYS_sched_getaffinity, thread, sizeof unused, unused) < 0
        || syscall(SYS_sched_getaffinity, thread, sizeof unused < size ? sizeof unused : size, mask) < 0)
        error = errno;
    errno = before;
    if (!error) {
        memset(mask, 0, size);
        memcpy(mask, now, size < BYTES ? size : BYTES);
    }
    return error;
}

static int set(pid_t thread, size_t size, const void *mask)
{
    unsigned char wanted[BYTES] = {0};
    int before = errno, error = syscall(SYS_sched_getaffinity, thread, sizeof wanted, wanted) < 0 ? errno : 0;

    errno = before;
    prepare();
    memset(wanted, 0, BYTES);
    memcpy(wanted, mask, size < BYTES ? size : BYTES);
    for (int i = 0; i < BYTES; i++)
        wanted[i] &= allowed[i];
    if (error || !CPU_COUNT_S(BYTES, (cpu_set_t *)wanted))
        return error ? error : EINVAL;
    memcpy(now, wanted, BYTES);
    if (getenv("MACHINE_LOG"))
        dprintf(2, "set to %d CPUs\n", CPU_COUNT_S(BYTES, (cpu_set_t *)now));
    return 0;
}

static int with_errno(int error)
{
    if (error)
        errno = error;
    return error ? -1 : 0;
}

int sched_getaffinity(pid_t thread, size_t size, cpu_set_t *mask)
{
    return with_errno(get(thread, size, mask));
}

int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *mask)
{
    return with_errno(set(thread, size, mask));
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
    (void)thread;
    return get(0, size, mask);
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask)
{
    (void)thread;
    return set(0, size, mask);
}

int get_nprocs(void)
{
    prepare();
    return (int)cpus;
}

int get_nprocs_conf(void)
{
    prepare();
    return (int)cpus;
}

long sysconf(int name)
{
    prepare();
    return name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF ? cpus : real_sysconf(name);
}

/* The program runs on another CPU each time it asks. */
static int next_cpu(void)
{
    prepare();
    return (int)(cpus - 1 - atomic_fetch_add(&asked, 1) % cpus);
}

int sched_getcpu(void)
{
    return next_cpu();
}

int getcpu(unsigned *cpu, unsigned *node)
{
    if (cpu)
        *cpu = (unsigned)next_cpu();
    if (node)
        *node = 7;
    return 0;
}
