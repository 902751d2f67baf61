/* The view: a program that asks how many CPUs it has is answered with those it may use.

   Preloaded by the dynamic loader (LD_PRELOAD), this library stands before the C library and answers

       sched_getaffinity, pthread_getaffinity_np              at most TFLAUNCH_VIEW_CPUS CPUs of the thread's true mask
       get_nprocs, get_nprocs_conf, sysconf(_SC_NPROCESSORS_*) at most TFLAUNCH_VIEW_CPUS
       sched_getcpu, getcpu                                    below TFLAUNCH_VIEW_CPUS

   so that every pool that is sized by such a question gets the right size. Only answers change: nothing is pinned, and
   the kernel runs the threads wherever the true mask allows. A mask that a program sets itself is reported truly from
   then on. A thread that sets the mask it is told gets its true mask.

   TFLAUNCH_VIEW_CPUS   how many CPUs are seen; without a number above zero in it the library does nothing
   TFLAUNCH_VIEW_FIRST  a list such as "0-31": one CPU of each physical core, seen before their siblings

   Both are read while the library is loaded, and never again. After that no function here allocates, locks, or looks up
   a symbol (but for one that the C library did not have then), so each is as safe in threads and signal handlers as the
   one it stands for: sched_getaffinity(2), pthread_getaffinity_np(3), get_nprocs(3), sysconf(3), sched_getcpu(3).
   Errors and return values are those of the next function.

   cc -shared -fPIC -O2 -o libtflaunch_view.so view.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/types.h>
#include <unistd.h>

/* Of glibc 2.34 the library would need functions of that release. The oldest ones run everywhere. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLDEST(name) __asm__(".symver " #name ", " #name "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLDEST(name) __asm__(".symver " #name ", " #name "@GLIBC_2.17")
#endif
#ifdef OLDEST
OLDEST(dlopen);
OLDEST(dlsym);
OLDEST(dlerror);
#endif

#define EXPORTED __attribute__((visibility("default")))
#define WORD_BITS (8 * sizeof(unsigned long))

/* Linux is built for at most 8192 CPUs; numbers above MAX_CPU are not believed (as in cpulist.py). */
enum { MAX_CPU = 65535, KERNEL_WORDS = 8192 / WORD_BITS, REMEMBERED = 1024 };

/* A part of a mask. The kernel takes masks of callers that are not aligned. */
typedef unsigned long __attribute__((may_alias, aligned(1))) word;

static atomic_int is_loaded;
static atomic_uint cpus_seen; /* 0: all of them */
static atomic_ulong first[(MAX_CPU + 1) / WORD_BITS];

/* The true mask of the process when the library was loaded, and what is told of it. Empty for constructors of other
   libraries that run before ours. */
static unsigned long whole[KERNEL_WORDS], told[KERNEL_WORDS];

/* Masks that the program has set itself, as hashes; the oldest is forgotten. Only masks of more than cpus_seen CPUs
   matter, and a program sets few of those. By mask, not by thread: threads and children inherit a mask. */
static atomic_ulong set_masks[REMEMBERED];
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

    if (function)
        return function;
    function = dlsym(RTLD_NEXT, name);
    if (!function) {
        /* Before glibc 2.34 some functions are in libpthread, which may come with a library that is loaded later. */
        void *threads = dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD);

        function = threads ? dlsym(threads, name) : NULL;
        dlerror(); /* that there is no such function is no error of the program */
    }
    atomic_store_explicit(slot, function, memory_order_relaxed);
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
        if (low < 0 || high < low || high > MAX_CPU)
            return;
        for (long cpu = low; cpu <= high; cpu++)
            atomic_fetch_or_explicit(&first[cpu / WORD_BITS], 1ul << cpu % WORD_BITS, memory_order_relaxed);
        text = *text == ',' ? text + 1 : NULL;
    }
}

/* Constructors of other libraries may ask before ours has run. Doing this twice at the same time changes nothing.
   Allocators may ask even before the C library knows the environment. */
static void load(void)
{
    if (!environ)
        return;
    const char *text = getenv("TFLAUNCH_VIEW_CPUS");
    long number = text ? parse_number(&text) : -1;

    if (number > 0 && *text == '\0') {
        parse_first(getenv("TFLAUNCH_VIEW_FIRST"));
        atomic_store(&cpus_seen, (unsigned)number);
    }
    atomic_store(&is_loaded, 1);
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
static unsigned long hash(size_t words, const word *mask)
{
    const unsigned long prime = (unsigned long)0x100000001b3u;
    unsigned long value = (unsigned long)0xcbf29ce484222325u;

    for (size_t i = 0; i < words; i++)
        if (mask[i])
            value = ((value ^ i) * prime ^ mask[i]) * prime;
    return value ? value : 1;
}

static int is_set_by_program(size_t words, const word *mask)
{
    if (!atomic_load_explicit(&set_count, memory_order_relaxed))
        return 0;
    unsigned long wanted = hash(words, mask);
    for (int i = 0; i < REMEMBERED; i++)
        if (atomic_load_explicit(&set_masks[i], memory_order_relaxed) == wanted)
            return 1;
    return 0;
}

static int is_same(const unsigned long one[KERNEL_WORDS], const unsigned long other[KERNEL_WORDS])
{
    return memcmp(one, other, KERNEL_WORDS * sizeof *one) == 0;
}

static void remember(const unsigned long mask[KERNEL_WORDS])
{
    unsigned cpus = 0;

    for (size_t i = 0; i < KERNEL_WORDS; i++)
        cpus += (unsigned)__builtin_popcountl(mask[i]);
    if (cpus <= seen() || is_set_by_program(KERNEL_WORDS, mask))
        return;
    unsigned slot = atomic_fetch_add(&set_count, 1) % REMEMBERED;
    atomic_store_explicit(&set_masks[slot], hash(KERNEL_WORDS, mask), memory_order_relaxed);
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
    word *mask = (word *)set;
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

    int error = errno;
    if (seen() && NEXT(sched_getaffinity)(0, sizeof told, (cpu_set_t *)told) >= 0) {
        memcpy(whole, told, sizeof whole);
        clip(sizeof told, (cpu_set_t *)told);
    }
    errno = error;
}

/* Whether the thread is one of this process: of other processes the truth is told, as to taskset -p. A sandbox may
   refuse the last question, so it comes last. */
static int is_of_this_process(pid_t thread)
{
    int error = errno;
    int is_own = thread == 0 || thread == getpid() || thread == syscall(SYS_gettid)
                 || syscall(SYS_tgkill, getpid(), thread, 0) == 0;

    errno = error;
    return is_own;
}

EXPORTED int sched_getaffinity(pid_t thread, size_t size, cpu_set_t *mask)
{
    int result = NEXT(sched_getaffinity)(thread, size, mask);

    if (result >= 0 && seen() && is_of_this_process(thread))
        clip(size, mask);
    return result;
}

EXPORTED int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
    int error = NEXT(pthread_getaffinity_np) ? NEXT(pthread_getaffinity_np)(thread, size, mask) : ENOSYS;

    if (!error)
        clip(size, mask);
    return error;
}

/* A thread that sets what it is told of the whole mask means all CPUs that it may use, and gets the whole mask: for it
   both are the same. hwloc asks for the mask, goes to one CPU after the other to look at it, and puts back what it was
   told; other libraries free their threads with what they were told. Taken by the letter, this would pin the process to
   these CPUs for good, and so all those beside it. It is set where it asks to be before that: it may be the one CPU that
   is to be looked at. */
static int means_all(const unsigned long now[KERNEL_WORDS])
{
    return is_same(now, told) && !is_set_by_program(KERNEL_WORDS, whole);
}

/* What the kernel made of a mask that was set (it leaves out CPUs that are not allowed) is what will be asked for. */
EXPORTED int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *mask)
{
    int result = NEXT(sched_setaffinity)(thread, size, mask), error = errno;
    unsigned long now[KERNEL_WORDS] = {0};

    if (result == 0 && seen() && is_of_this_process(thread)
        && NEXT(sched_getaffinity)(thread, sizeof now, (cpu_set_t *)now) >= 0) {
        if (means_all(now))
            NEXT(sched_setaffinity)(thread, sizeof whole, (cpu_set_t *)whole);
        else
            remember(now);
    }
    errno = error;
    return result;
}

EXPORTED int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask)
{
    if (!NEXT(pthread_setaffinity_np) || !NEXT(pthread_getaffinity_np))
        return ENOSYS;
    int error = NEXT(pthread_setaffinity_np)(thread, size, mask);
    unsigned long now[KERNEL_WORDS] = {0};

    if (!error && seen() && !NEXT(pthread_getaffinity_np)(thread, sizeof now, (cpu_set_t *)now)) {
        if (means_all(now))
            NEXT(pthread_setaffinity_np)(thread, sizeof whole, (cpu_set_t *)whole);
        else
            remember(now);
    }
    return error;
}

/* A mask of any size is taken, and none, which ends an earlier one: the C library takes what its header forbids. */
EXPORTED int pthread_attr_setaffinity_np(pthread_attr_t *attributes, size_t size, const cpu_set_t *mask)
{
    const void *volatile given = mask;
    unsigned long asked[KERNEL_WORDS] = {0};

    if (!NEXT(pthread_attr_setaffinity_np))
        return ENOSYS;
    if (!seen() || !given)
        return NEXT(pthread_attr_setaffinity_np)(attributes, size, mask);
    memcpy(asked, given, size < sizeof asked ? size : sizeof asked);
    if (means_all(asked))
        return NEXT(pthread_attr_setaffinity_np)(attributes, sizeof whole, (const cpu_set_t *)whole);
    int error = NEXT(pthread_attr_setaffinity_np)(attributes, size, mask);
    if (!error)
        remember(asked);
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
