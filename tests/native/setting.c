/* Sets affinity masks, and prints who then sees what: a line "who <tab> CPUs by the C library ... <tab> by the kernel".

   setting show             the masks of this process, as they are
   setting WAY LIST         sets the mask "0,1,5" by sched, thread (sched_setaffinity with an id), pthread or attribute
   setting child LIST       sets that of another process, and shows its own
   setting outside A B ...  others change the mask of this process to A, to B ...; A was an attribute of a thread before
   setting look LIST        looks at each of the CPUs from there, and puts back the mask that it was told, as hwloc does
   setting odd LIST         the mask in odd sizes, and none, as an attribute
   setting small LIST       sets the mask in each way in a thread with the smallest stack
   setting refused N        a sandbox fails (N: EPERM) or ends (N: -1) the process at tgkill

   The kernel's own word is Cpus_allowed_list in /proc/self/task/THREAD/status. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1024, UNTOUCHED = 4242 };

typedef unsigned char mask_t[BYTES] __attribute__((aligned(8)));

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "%s: %s\n", what, strerror(error));
        exit(3);
    }
}

static void parse(char *list, mask_t mask)
{
    memset(mask, 0, BYTES);
    for (char *item = list; *item; item += *item == ',')
        CPU_SET_S(strtol(item, &item, 10), BYTES, (cpu_set_t *)mask);
}

/* Where the thread runs, by the system call that the view does not see. */
static int cpu_of_kernel(void)
{
    unsigned cpu = 0;

    check(syscall(SYS_getcpu, &cpu, NULL, NULL) ? errno : 0, "getcpu");
    return (int)cpu;
}

static void print_mask(const mask_t mask)
{
    const char *comma = "\t";

    for (int cpu = 0; cpu < BYTES * 8; cpu++)
        if (CPU_ISSET_S(cpu, BYTES, (const cpu_set_t *)mask)) {
            printf("%s%d", comma, cpu);
            comma = ",";
        }
}

/* What the calling thread, or another one of this process, sees as its mask in each way of asking. */
static void show_thread(const char *who, pid_t id, pthread_t thread)
{
    mask_t mask;
    char path[100], line[10000];

    fputs(who, stdout);
    if (id == gettid()) {
        check(sched_getaffinity(0, BYTES, (cpu_set_t *)mask) ? errno : 0, "sched_getaffinity 0");
        print_mask(mask);
    }
    check(sched_getaffinity(id, BYTES, (cpu_set_t *)mask) ? errno : 0, "sched_getaffinity");
    print_mask(mask);
    check(pthread_getaffinity_np(thread, BYTES, (cpu_set_t *)mask), "pthread_getaffinity_np");
    print_mask(mask);
    snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "Cpus_allowed_list: %s", line) == 1)
            printf("\t%s\n", line);
    fclose(status);
    fflush(stdout);
}

static void *show(void *who)
{
    show_thread(who, gettid(), pthread_self());
    return NULL;
}

static void in_thread(const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    pthread_t thread;

    check(pthread_create(&thread, attributes, function, argument), "pthread_create");
    check(pthread_join(thread, NULL), "pthread_join");
}

static void wait_for(pid_t child)
{
    int status;

    check(waitpid(child, &status, 0) < 0 ? errno : status, "child");
}

static void show_family(void)
{
    show("self");
    in_thread(NULL, show, "thread");
    pid_t child = fork();
    if (!child) {
        show("fork");
        _exit(0);
    }
    wait_for(child);
    child = vfork();
    if (!child) {
        execl("/proc/self/exe", "setting", "show", "exec", NULL);
        _exit(127);
    }
    wait_for(child);
}

static void *show_family_of_thread(void *unused)
{
    (void)unused;
    show_family();
    return NULL;
}

static int pipes[2];
static _Atomic pid_t waiting;

static void *wait_for_end(void *unused)
{
    char byte;

    (void)unused;
    waiting = gettid();
    while (read(pipes[0], &byte, 1) > 0)
        ;
    return NULL;
}

static void set_other_thread(mask_t mask)
{
    pthread_t thread;

    check(pipe(pipes), "pipe");
    check(pthread_create(&thread, NULL, wait_for_end, NULL), "pthread_create");
    while (!waiting)
        sched_yield();
    show_thread("before", waiting, thread);
    check(sched_setaffinity(waiting, BYTES, (cpu_set_t *)mask) ? errno : 0, "sched_setaffinity");
    show_thread("other", waiting, thread);
    close(pipes[1]);
    pthread_join(thread, NULL);
}

static void set(const char *way, char *list)
{
    pthread_attr_t attributes;
    mask_t mask;

    parse(list, mask);
    if (!strcmp(way, "sched"))
        check(sched_setaffinity(0, BYTES, (cpu_set_t *)mask) ? errno : 0, way);
    else if (!strcmp(way, "pthread"))
        check(pthread_setaffinity_np(pthread_self(), BYTES, (cpu_set_t *)mask), way);
    else if (!strcmp(way, "attribute")) {
        check(pthread_attr_init(&attributes), way);
        check(pthread_attr_setaffinity_np(&attributes, BYTES, (cpu_set_t *)mask), way);
        in_thread(&attributes, show_family_of_thread, NULL);
        check(pthread_attr_destroy(&attributes), way);
        return;
    } else
        set_other_thread(mask);
    show_family();
}

static void set_child(char *list)
{
    mask_t mask;
    char byte;

    parse(list, mask);
    check(pipe(pipes), "pipe");
    pid_t child = fork();
    if (!child) {
        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) != 0);
    }
    errno = UNTOUCHED;
    check(sched_setaffinity(child, BYTES, (cpu_set_t *)mask) ? errno : 0, "child");
    check(errno != UNTOUCHED, "errno");
    show("self");
    errno = UNTOUCHED;
    check(sched_getaffinity(child, BYTES, (cpu_set_t *)mask) ? errno : 0, "child");
    check(errno != UNTOUCHED, "errno");
    printf("child");
    print_mask(mask);
    putchar('\n');
    fflush(stdout);
    close(pipes[1]);
    wait_for(child);
}

/* The emulated machine's own function: the view does not see that it is called. */
static void change_from_outside(int count, char **lists)
{
    void *machine = dlopen(getenv("MACHINE_LIBRARY"), RTLD_LAZY | RTLD_NOLOAD);
    int (*set_mask)(pid_t, size_t, const cpu_set_t *)
        = (int (*)(pid_t, size_t, const cpu_set_t *))dlsym(machine, "sched_setaffinity");
    pthread_attr_t attributes;
    mask_t mask;

    check(pthread_attr_init(&attributes), "attribute");
    parse(lists[0], mask);
    check(pthread_attr_setaffinity_np(&attributes, BYTES, (cpu_set_t *)mask), "attribute");
    for (int i = 0; i < count; i++) {
        parse(lists[i], mask);
        check(set_mask(0, BYTES, (cpu_set_t *)mask) ? errno : 0, "outside");
        show("self");
    }
}

/* The masks are set for this thread by sched_setaffinity, and the second time by pthread_setaffinity_np. */
static void look_at_each(char *list)
{
    mask_t told, one;

    for (int way = 0; way < 2; way++) {
        check(sched_getaffinity(0, BYTES, (cpu_set_t *)told) ? errno : 0, "sched_getaffinity");
        for (char *item = list; *item; item += *item == ',') {
            long cpu = strtol(item, &item, 10);

            memset(one, 0, BYTES);
            CPU_SET_S(cpu, BYTES, (cpu_set_t *)one);
            if (way)
                check(pthread_setaffinity_np(pthread_self(), BYTES, (cpu_set_t *)one), "pthread_setaffinity_np");
            else
                check(sched_setaffinity(0, BYTES, (cpu_set_t *)one) ? errno : 0, "sched_setaffinity");
            printf("at %ld\t%d\n", cpu, cpu_of_kernel());
        }
        if (way)
            check(pthread_setaffinity_np(pthread_self(), BYTES, (cpu_set_t *)told), "pthread_setaffinity_np");
        else
            check(sched_setaffinity(0, BYTES, (cpu_set_t *)told) ? errno : 0, "sched_setaffinity");
        show_family();
    }
}

static void set_odd_attributes(char *list)
{
    pthread_attr_t attributes;
    mask_t mask;
    size_t bytes = BYTES;

    parse(list, mask);
    while (!mask[bytes - 1])
        bytes--;
    size_t sizes[] = {0, bytes, bytes + 1, bytes + 2, bytes + 7, bytes + 100, BYTES};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        /* Just as long as it says, where a sanitizer sees a read behind it. */
        void *exact = malloc(sizes[i]);

        memcpy(exact, mask, sizes[i]);
        check(pthread_attr_init(&attributes), "attribute");
        check(pthread_attr_setaffinity_np(&attributes, sizes[i], exact), "attribute");
        free(exact);
        in_thread(&attributes, show, sizes[i] ? "mask" : "nothing");
        /* The header says that the mask must not be NULL; the C library takes it. */
        void *volatile none = NULL;
        check(pthread_attr_setaffinity_np(&attributes, sizes[i], none), "no attribute");
        check(pthread_attr_destroy(&attributes), "attribute");
    }
}

static void *set_in_each_way(void *mask)
{
    static mask_t now;
    pthread_attr_t attributes;

    check(sched_setaffinity(0, BYTES, mask) ? errno : 0, "sched_setaffinity");
    check(sched_setaffinity(gettid(), BYTES, mask) ? errno : 0, "sched_setaffinity");
    check(pthread_setaffinity_np(pthread_self(), BYTES, mask), "pthread_setaffinity_np");
    check(pthread_attr_init(&attributes), "attribute");
    check(pthread_attr_setaffinity_np(&attributes, BYTES, mask), "attribute");
    check(pthread_attr_destroy(&attributes), "attribute");
    check(sched_getaffinity(gettid(), BYTES, (cpu_set_t *)now) ? errno : 0, "sched_getaffinity");
    return now;
}

static void set_in_small_thread(char *list)
{
    pthread_attr_t attributes;
    pthread_t thread;
    mask_t mask;
    void *now;

    parse(list, mask);
    check(pthread_attr_init(&attributes), "attribute");
    check(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN), "stack");
    check(pthread_create(&thread, &attributes, set_in_each_way, mask), "pthread_create");
    check(pthread_join(thread, &now), "pthread_join");
    fputs("thread", stdout);
    print_mask(now);
    putchar('\n');
}

static void refuse_tgkill(int error)
{
    unsigned action = error < 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (unsigned)error;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? errno : 0, "no_new_privs");
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? errno : 0, "seccomp");
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "show";

    if (!strcmp(way, "show"))
        show(count > 2 ? arguments[2] : "self");
    else if (!strcmp(way, "outside"))
        change_from_outside(count - 2, arguments + 2);
    else if (!strcmp(way, "odd"))
        set_odd_attributes(arguments[2]);
    else if (!strcmp(way, "look"))
        look_at_each(arguments[2]);
    else if (!strcmp(way, "small"))
        set_in_small_thread(arguments[2]);
    else if (!strcmp(way, "child"))
        set_child(arguments[2]);
    else if (!strcmp(way, "refused")) {
        refuse_tgkill(atoi(arguments[2]));
        show("self");
        in_thread(NULL, show, "thread");
    } else
        set(way, arguments[2]);
    return 0;
}
