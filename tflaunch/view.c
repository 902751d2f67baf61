/* The view: a program that asks how many CPUs it has is answered with those it may use.

   Preloaded by the dynamic loader (LD_PRELOAD), this library stands before the C library and answers

       sched_getaffinity, pthread_getaffinity_np              at most TFLAUNCH_VIEW_CPUS CPUs of the thread's true mask
       get_nprocs, get_nprocs_conf, sysconf(_SC_NPROCESSORS_*) at most TFLAUNCH_VIEW_CPUS
       sched_getcpu, getcpu                                    below TFLAUNCH_VIEW_CPUS

   so that every pool that is sized by such a question gets the right size. Only answers change: nothing is pinned, and
   the kernel runs the threads wherever the true mask allows. A mask that a program sets itself is reported truly from
   then on.

   TFLAUNCH_VIEW_CPUS   how many CPUs are seen; without a number above zero in it the library does nothing
   TFLAUNCH_VIEW_FIRST  a list such as "0-31": one CPU of each physical core, seen before their siblings

   Both are read while the library is loaded, and never again. After that no function here allocates, locks, or looks up
   a symbol, so each is as safe in threads and signal handlers as the one it stands for: sched_getaffinity(2),
   pthread_getaffinity_np(3), get_nprocs(3), sysconf(3), sched_getcpu(3). Errors and return values are those of the next function.

   cc -shared -fPIC -O2 -o libtflaunch_view.so view.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/types.h>
#include <unistd.h>

/* Of glibc 2.34 the library would need a dlsym of that release. The oldest one runs everywhere. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

#define EXPORTED __attribute__((visibility("default")))
#define WORD_BITS (8 * sizeof(unsigned long))

/* Linux is built for at most 8192 CPUs; numbers above this bound are not believed (as in cpulist.py). */
enum { MAX_CPU = 65535, KERNEL_CPUS = 8192, REMEMBERED = 64 };

static atomic_int is_loaded;
static atomic_uint cpus_seen; /* 0: all of them */
static atomic_ulong first[(MAX_CPU + 1) / (8 * sizeof(unsigned long))];

/* Masks that the program has set itself, as hashes; the oldest is forgotten. Only masks of more than cpus_seen CPUs
   matter, and a program sets few of those. By mask, not by thread: threads and children inherit a mask. */
static _Atomic uint64_t set_masks[REMEMBERED];
static atomic_uint set_count;

/* Older C libraries have no such functions, and then no declarations either. */
int getcpu(unsigned *cpu, unsigned *node);
int pthread_attr_setaffinity_np(pthread_attr_t *attributes, size_t size, const cpu_set_t *mask);

/* The function behind this one: of the next preloaded library, or of the C library. */
#define NEXT(name) ((__typeof__(&name))next_function(&next_##name, #name))
#define DECLARE_NEXT(name) static void *_Atomic next_##name

DECLARE_NEXT(sched_getaffinity);
DECLARE_NEXT(sched_setaffinity);
DECLARE_NEXT(pthread_getaffinity_np);
DECLARE_NEXT(pthread_setaffinity_np);
DECLARE_NEXT(pthread_attr_setaffinity_np);
DECLARE_NEXT(get_nprocs);
DECLARE_NEXT(get_nprocs_conf);
DECLARE_NEXT(sysconf);
DECLARE_NEXT(sched_getcpu);
DECLARE_NEXT(getcpu);

static void *next_function(void *_Atomic *slot, const char *name)
{
    void *function = atomic_load_explicit(slot, memory_order_relaxed);

    if (!function) {
        function = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(slot, function, memory_order_relaxed);
    }
    return function;
}

/* Digits at *text as a number of at most MAX_CPU + 1; moves *text behind them. -1: no digits, or a larger number. */
static long parse_number(const char **text)
{
    long number = -1;

    for (; **text >= '0' && **text <= '9'; ++*text) {
        number = (number < 0 ? 0 : number) * 10 + (**text - '0');
        if (number > MAX_CPU + 1)
            return -1;
    }
    return number;
}

/* "0-3,8" into `first`, up to what is no such list. */
static void parse_first(const char *text)
{
    while (text) {
        long low = parse_number(&text), high = low;

        if (*text == '-') {
            ++text;
            high = parse_number(&text);
        }
        if (low < 0 || high > MAX_CPU)
            return;
        for (long cpu = low; cpu <= high; cpu++)
            atomic_fetch_or_explicit(&first[cpu / WORD_BITS], 1ul << cpu % WORD_BITS, memory_order_relaxed);
        text = *text == ',' ? text + 1 : NULL;
    }
}

/* Constructors of other libraries may ask before ours has run. Doing this twice at the same time changes nothing. */
static void load(void)
{
    const char *text = getenv("TFLAUNCH_VIEW_CPUS");
    long number = text ? parse_number(&text) : -1;

    if (number > 0 && *text == '\0') {
        parse_first(getenv("TFLAUNCH_VIEW_FIRST"));
        atomic_store(&cpus_seen, (unsigned)number);
    }
    atomic_store(&is_loaded, 1);
}

__attribute__((constructor)) static void on_load(void)
{
    load();
    NEXT(sched_getaffinity);
    NEXT(sched_setaffinity);
    NEXT(pthread_getaffinity_np);
    NEXT(pthread_setaffinity_np);
    NEXT(pthread_attr_setaffinity_np);
    NEXT(get_nprocs);
    NEXT(get_nprocs_conf);
    NEXT(sysconf);
    NEXT(sched_getcpu);
    NEXT(getcpu);
}

static unsigned seen(void)
{
    if (!atomic_load(&is_loaded))
        load();
    return atomic_load_explicit(&cpus_seen, memory_order_relaxed);
}

static long at_most_seen(long cpus)
{
    unsigned limit = seen();

    return limit && cpus > (long)limit ? (long)limit : cpus;
}

/* FNV-1a over the words that are not zero, with their places: the same for buffers of every size. Never 0. */
static uint64_t hash(size_t words, const unsigned long *mask)
{
    uint64_t value = 0xcbf29ce484222325u;

    for (size_t i = 0; i < words; i++)
        if (mask[i])
            value = ((value ^ i) * 0x100000001b3u ^ mask[i]) * 0x100000001b3u;
    return value ? value : 1;
}

static int is_set_by_program(size_t words, const unsigned long *mask)
{
    if (!atomic_load_explicit(&set_count, memory_order_relaxed))
        return 0;
    uint64_t wanted = hash(words, mask);
    for (int i = 0; i < REMEMBERED; i++)
        if (atomic_load_explicit(&set_masks[i], memory_order_relaxed) == wanted)
            return 1;
    return 0;
}

static void remember(size_t words, const unsigned long *mask)
{
    unsigned cpus = 0;

    for (size_t i = 0; i < words; i++)
        cpus += (unsigned)__builtin_popcountl(mask[i]);
    if (!seen() || cpus <= seen() || is_set_by_program(words, mask))
        return;
    unsigned slot = atomic_fetch_add(&set_count, 1) % REMEMBERED;
    atomic_store_explicit(&set_masks[slot], hash(words, mask), memory_order_relaxed);
}

static unsigned long lowest(unsigned long word, unsigned *bits)
{
    unsigned long kept = 0;

    for (; word && *bits; --*bits) {
        kept |= word & -word;
        word &= word - 1;
    }
    return kept;
}

/* Keeps cpus_seen of the CPUs in the mask, those of `first` before others, each in the order of their numbers. */
static void clip(size_t size, cpu_set_t *set)
{
    unsigned long *mask = (unsigned long *)set;
    size_t words = size / sizeof *mask;
    unsigned limit = seen(), cpus = 0, firsts = 0;

    if (!limit)
        return;
    for (size_t i = 0; i < words; i++) {
        unsigned long wanted = i < sizeof first / sizeof *first ? first[i] : 0;

        cpus += (unsigned)__builtin_popcountl(mask[i]);
        firsts += (unsigned)__builtin_popcountl(mask[i] & wanted);
    }
    if (cpus <= limit || is_set_by_program(words, mask))
        return;
    if (firsts > limit)
        firsts = limit;
    unsigned others = limit - firsts;
    for (size_t i = 0; i < words; i++) {
        unsigned long wanted = i < sizeof first / sizeof *first ? first[i] : 0;

        mask[i] = lowest(mask[i] & wanted, &firsts) | lowest(mask[i] & ~wanted, &others);
    }
}

/* Whether the thread is one of this process: of other processes the truth is told, as to taskset -p. */
static int is_of_this_process(pid_t thread)
{
    int error = errno;
    int is_own = thread == 0 || syscall(SYS_tgkill, getpid(), thread, 0) == 0;

    errno = error;
    return is_own;
}

EXPORTED int sched_getaffinity(pid_t thread, size_t size, cpu_set_t *mask)
{
    int result = NEXT(sched_getaffinity)(thread, size, mask);

    if (result >= 0 && is_of_this_process(thread))
        clip(size, mask);
    return result;
}

EXPORTED int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
    int error = NEXT(pthread_getaffinity_np)(thread, size, mask);

    if (!error)
        clip(size, mask);
    return error;
}

/* What the kernel made of a mask that was set (it leaves out CPUs that are not allowed) is what will be asked for. */
EXPORTED int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *mask)
{
    int result = NEXT(sched_setaffinity)(thread, size, mask);
    unsigned long now[KERNEL_CPUS / (8 * sizeof(unsigned long))] = {0};

    if (result == 0 && NEXT(sched_getaffinity)(thread, sizeof now, (cpu_set_t *)now) >= 0)
        remember(sizeof now / sizeof *now, now);
    return result;
}

EXPORTED int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask)
{
    int error = NEXT(pthread_setaffinity_np)(thread, size, mask);
    unsigned long now[KERNEL_CPUS / (8 * sizeof(unsigned long))] = {0};

    if (!error && !NEXT(pthread_getaffinity_np)(thread, sizeof now, (cpu_set_t *)now))
        remember(sizeof now / sizeof *now, now);
    return error;
}

EXPORTED int pthread_attr_setaffinity_np(pthread_attr_t *attributes, size_t size, const cpu_set_t *mask)
{
    int error = NEXT(pthread_attr_setaffinity_np) ? NEXT(pthread_attr_setaffinity_np)(attributes, size, mask) : ENOSYS;

    if (!error)
        remember(size / sizeof(unsigned long), (const unsigned long *)mask);
    return error;
}

EXPORTED int get_nprocs(void)
{
    return (int)at_most_seen(NEXT(get_nprocs)());
}

EXPORTED int get_nprocs_conf(void)
{
    return (int)at_most_seen(NEXT(get_nprocs_conf)());
}

EXPORTED long sysconf(int name)
{
    long value = NEXT(sysconf)(name);

    return name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF ? at_most_seen(value) : value;
}

/* Programs make an array of so many entries as there are CPUs and take the entry of the one they run on: TensorFlow
   Serving's tensorflow_serving/util/fast_read_dynamic_ptr.h does. The number must then be below the count. */
EXPORTED int sched_getcpu(void)
{
    int cpu = NEXT(sched_getcpu)();
    unsigned limit = seen();

    return limit && cpu >= 0 ? (int)((unsigned)cpu % limit) : cpu;
}

EXPORTED int getcpu(unsigned *cpu, unsigned *node)
{
    unsigned limit = seen();

    if (!NEXT(getcpu)) {
        errno = ENOSYS;
        return -1;
    }
    int result = NEXT(getcpu)(cpu, node);
    if (limit && result == 0 && cpu)
        *cpu %= limit;
    return result;
}
