"""Any machine, any mask, any busy CPUs: so many CPUs as the plan has, on the fewest nodes, cores before siblings."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tflaunch.binding import Places, choose_cpus, describe, find_busy, parse_cpu_times
from tflaunch.topology import CpuKind

EXAMPLES = settings(deadline=None, max_examples=150)

BYTES = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape"))
NEARLY = st.text(alphabet="cpu0123456789 \n-+.\t\r\x0b\x1c\u2028٣", max_size=120)
TICKS = st.integers(0, 2**64 - 1)


@st.composite
def machines(draw):
    """Nodes of cores of CPUs with scattered numbers; cores are whole in a node, kinds and busy CPUs are anywhere."""
    shape = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4))
    total = sum(map(sum, shape))
    numbers = draw(st.permutations(draw(st.sampled_from([range(total), range(3, 3 * total + 3, 3)]))))
    left = iter(numbers)
    nodes = [[frozenset(next(left) for _ in range(threads)) for threads in node] for node in shape]
    members = {number: frozenset().union(*node) for number, node in enumerate(nodes)}
    fast = draw(st.sets(st.sampled_from(numbers)))
    kinds = (CpuKind("performance", frozenset(fast)), CpuKind("efficiency", frozenset(numbers) - fast))
    busy = draw(st.one_of(st.none(), st.sets(st.sampled_from([*numbers, 1000])).map(frozenset)))
    has_nodes = draw(st.booleans())
    places = Places(
        cores=tuple(draw(st.permutations([core for node in nodes for core in node]))),
        nodes=members if has_nodes else {},
        kinds=kinds if draw(st.booleans()) else (),
        busy=busy,
    )
    return places, list(members.values()) if has_nodes else [frozenset(numbers)], draw(st.integers(1, total))


class TestChoice:
    """What holds for every choice, worked out without the way in which it is made."""

    @EXAMPLES
    @given(machines())
    def test_number(self, machine):
        places, nodes, count = machine
        chosen = choose_cpus(count, places)
        assert len(chosen) == count
        assert chosen <= frozenset().union(*nodes)
        assert describe(chosen, places).isprintable()

    @EXAMPLES
    @given(machines())
    def test_no_fewer_nodes_would_do(self, machine):
        places, nodes, count = machine
        used = sum(1 for node in nodes if node & choose_cpus(count, places))
        assert not any(sum(map(len, fewer)) >= count for fewer in combinations(nodes, used - 1))

    @EXAMPLES
    @given(machines())
    def test_of_single_nodes_one_with_most_cores(self, machine):
        places, nodes, count = machine
        fitting = [node for node in nodes if len(node) >= count]
        if fitting:
            chosen = choose_cpus(count, places)
            most = max(sum(1 for core in places.cores if core & node) for node in fitting)
            assert sum(1 for core in places.cores if core & chosen) == min(count, most)

    @EXAMPLES
    @given(machines())
    def test_no_sibling_while_a_core_is_free(self, machine):
        places, nodes, count = machine
        chosen = choose_cpus(count, places)
        taken = [len(core & chosen) for core in places.cores]
        here = frozenset().union(*[node for node in nodes if node & chosen])
        for core, number in zip(places.cores, taken, strict=True):
            if core <= here and number < len(core):
                assert number >= max(taken) - 1

    @EXAMPLES
    @given(machines())
    def test_of_a_core_the_idle_and_fast_ones(self, machine):
        places, _, count = machine
        chosen = choose_cpus(count, places)
        busy = places.busy or frozenset()
        for core in places.cores:
            for taken in core & chosen:
                for left in core - chosen:
                    assert (taken in busy) <= (left in busy)

    @EXAMPLES
    @given(machines())
    def test_no_busy_core_while_an_idle_one_is_free(self, machine):
        """Where each core gives one CPU, those that are idle go first, in the nodes that were taken."""
        places, nodes, count = machine
        chosen = choose_cpus(count, places)
        busy = places.busy or frozenset()
        here = frozenset().union(*[node for node in nodes if node & chosen])
        if all(len(core & chosen) <= 1 for core in places.cores) and chosen & busy:
            assert not any(core <= here and core - busy and not core & chosen for core in places.cores)

    @EXAMPLES
    @given(machines(), st.randoms())
    def test_the_order_of_the_facts_says_nothing(self, machine, random):
        places, _, count = machine
        cores, nodes = list(places.cores), list(places.nodes.items())
        random.shuffle(cores)
        random.shuffle(nodes)
        assert choose_cpus(count, places._replace(cores=tuple(cores), nodes=dict(nodes))) == choose_cpus(count, places)

    @EXAMPLES
    @given(machines())
    def test_more_cpus_are_never_fewer_nodes(self, machine):
        places, nodes, count = machine
        used = [sum(1 for node in nodes if node & choose_cpus(number, places)) for number in range(1, count + 1)]
        assert used == sorted(used)


class TestStat:
    """Any text gives times or nothing, and what the kernel writes is read as it is."""

    @EXAMPLES
    @given(st.one_of(BYTES, NEARLY))
    def test_any_text(self, text):
        for cpu, (busy, idle) in parse_cpu_times(text).items():
            assert 0 <= cpu <= 65535
            assert busy >= 0
            assert idle >= 0
            assert f"cpu{cpu:d}" in text or f"cpu0{cpu:d}" in text or "cpu0" in text

    @EXAMPLES
    @given(st.dictionaries(st.integers(0, 8191), st.lists(TICKS, min_size=8, max_size=10)))
    def test_what_the_kernel_writes(self, times):
        text = "cpu  1 2 3 4 5 6 7 8 9 0\n"
        text += "".join(f"cpu{cpu} {' '.join(map(str, ticks))}\n" for cpu, ticks in times.items())
        text += "intr 1 2 3\nctxt 7\n"
        wanted = {}
        for cpu, (user, nice, system, idle, iowait, irq, softirq, steal, *_) in times.items():
            wanted[cpu] = (user + nice + system + irq + softirq + steal, idle + iowait)
        assert parse_cpu_times(text) == wanted

    @EXAMPLES
    @given(*[st.dictionaries(st.integers(0, 9), st.tuples(TICKS, TICKS))] * 2)
    def test_busy_ones_were_there_both_times(self, before, after):
        assert find_busy(before, after) <= before.keys() & after.keys()
        assert find_busy(before, before) == frozenset()
