/* A machine with many CPUs for one program: preloaded, it answers every question about the number of CPUs with N.

   cc -shared -fPIC -O2 -DCPUS=64 -o many_cpus.so many_cpus.c -ldl
   LD_PRELOAD=./many_cpus.so python program.py

   Only the answers change. The threads that a program makes for the N CPUs share the CPUs there really are, and the
   kernel's quota is the real one. Files below /proc and /sys keep their text. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/types.h>
#include <unistd.h>

/* The first CPUS bits of a mask of `size` bytes; like the kernel, EINVAL for a mask that cannot hold them. */
static int fill(size_t size, cpu_set_t *mask)
{
    if (size * 8 < CPUS)
        return EINVAL;
    memset(mask, 0, size);
    for (int cpu = 0; cpu < CPUS; cpu++)
        CPU_SET_S(cpu, size, mask);
    return 0;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
    (void)pid;
    int error = fill(size, mask);

    if (error)
        errno = error;
    return error ? -1 : 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
    (void)thread;
    return fill(size, mask);
}

int get_nprocs(void)
{
    return CPUS;
}

int get_nprocs_conf(void)
{
    return CPUS;
}

long sysconf(int name)
{
    static long (*real)(int);

    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return CPUS;
    if (!real)
        real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
