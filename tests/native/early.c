/* Asks before main. As a library: in its constructor, and prints the answers. With -DPROGRAM: a program linked with
   that library, which asks before any constructor has run, even that of the C library, as the runtimes of sanitizers
   do. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static cpu_set_t mask;
static long online, configured;

static void ask(void)
{
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    online = sysconf(_SC_NPROCESSORS_ONLN);
    configured = get_nprocs_conf();
}

#ifdef PROGRAM
void early(void);

__attribute__((section(".preinit_array"), used)) static void (*before_all)(void) = ask;

int main(void)
{
    early();
    ask();
    printf("main %d %ld %ld\n", CPU_COUNT(&mask), online, configured);
    return 0;
}
#else
__attribute__((constructor)) static void construct(void)
{
    ask();
}

void early(void)
{
    printf("constructor %d %ld %ld\n", CPU_COUNT(&mask), online, configured);
}
#endif
