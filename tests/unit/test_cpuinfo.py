from __future__ import annotations

import pytest

from tflaunch.cpuinfo import parse_cpuinfo

X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Core(TM) i3-0000 CPU @ 2.50GHz
physical id\t: 0
siblings\t: 4
core id\t\t: 0
cpu cores\t: 2
flags\t\t: fpu sse2 avx2 fma
bugs\t\t: spectre_v1

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Intel(R) Core(TM) i3-0000 CPU @ 2.50GHz
physical id\t: 0
siblings\t: 4
core id\t\t: 2
cpu cores\t: 2
flags\t\t: fpu sse2 avx2 fma

"""

X86_TWO_SOCKETS = "".join(
    f"processor : {cpu}\nmodel name : Xeon\nphysical id : {cpu // 2}\ncore id : {cpu % 2}\n\n" for cpu in range(4)
)

ARM64 = "".join(
    f"processor\t: {cpu}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
    for cpu in (0, 1, 5)
)

# A kernel before 3.8: the model stands once above the blocks, under a key with a capital letter.
OLD_ARM = """\
Processor\t: ARMv7 Processor rev 3 (v7l)
processor\t: 0
BogoMIPS\t: 38.40

processor\t: 1
BogoMIPS\t: 38.40

Features\t: swp half neon vfpv4
CPU architecture: 7

Hardware\t: Example Board
"""

# One core, and the CPU has no number at all.
OLD_ARM_ONE_CORE = "Processor\t: ARMv6-compatible processor rev 7 (v6l)\nFeatures\t: swp vfp\n\nHardware\t: Example\n"

# No blank line between the blocks, and a block for the machine behind them.
POWER = """\
processor\t: 0
cpu\t\t: POWER9, altivec supported
clock\t\t: 3800.000000MHz
processor\t: 8
cpu\t\t: POWER9, altivec supported
clock\t\t: 3800.000000MHz

timebase\t: 512000000
model\t\t: Example 9009
"""

OLD_S390 = """\
vendor_id       : IBM/S390
# processors    : 2
bogomips per cpu: 3033.00
features\t: esan3 zarch stfle
processor 0: version = FF,  identification = 00ABCD,  machine = 2964
processor 1: version = FF,  identification = 00ABCD,  machine = 2964
"""

S390 = """\
vendor_id       : IBM/S390
# processors    : 4
features\t: esan3 zarch stfle vx
facilities      : 0 1 2
processor 0: version = 00,  identification = 00ABCD,  machine = 8561
processor 1: version = 00,  identification = 00ABCD,  machine = 8561
processor 2: version = 00,  identification = 00ABCD,  machine = 8561
processor 3: version = 00,  identification = 00ABCD,  machine = 8561

cpu number      : 0
physical id     : 3
core id         : 7
book id         : 1
cpu MHz static  : 5200

cpu number      : 1
physical id     : 3
core id         : 7
book id         : 1

cpu number      : 2
physical id     : 3
core id         : 8

cpu number      : 3
physical id     : 4
core id         : 9
"""

MIPS = """\
system type\t\t: Example SoC
machine\t\t\t: Example Board
processor\t\t: 0
cpu model\t\t: MIPS 1004Kc V2.15
isa\t\t\t: mips1 mips2 mips32r1
core\t\t\t: 0
VPE\t\t\t: 0

processor\t\t: 1
cpu model\t\t: MIPS 1004Kc V2.15
"""

RISCV = """\
processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc
mmu\t\t: sv39
uarch\t\t: example,u74

processor\t: 1
hart\t\t: 2
isa\t\t: rv64imafdc
"""


class TestArchitectures:
    """Each architecture's form gives the CPUs, their cores where they are named, the model and the instruction sets."""

    @pytest.mark.parametrize(
        ("text", "cores", "model", "a_flag"),
        [
            (X86, {0: (0, 0), 1: (0, 2)}, "Intel(R) Core(TM) i3-0000 CPU @ 2.50GHz", "avx2"),
            (X86_TWO_SOCKETS, {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}, "Xeon", None),
            (ARM64, {0: None, 1: None, 5: None}, None, "asimd"),
            (OLD_ARM, {0: None, 1: None}, "Example Board", "neon"),
            (OLD_ARM_ONE_CORE, {}, "Example", "vfp"),
            (POWER, {0: None, 8: None}, "POWER9, altivec supported", None),
            (OLD_S390, {0: None, 1: None}, "IBM/S390", "stfle"),
            (S390, {0: (3, 7), 1: (3, 7), 2: (3, 8), 3: (4, 9)}, "IBM/S390", "vx"),
            (MIPS, {0: None, 1: None}, "MIPS 1004Kc V2.15", "mips32r1"),
            (RISCV, {0: None, 1: None}, "example,u74", "rv64imafdc"),
        ],
        ids=["x86", "x86-2", "arm64", "arm-old", "arm-one", "power", "s390-old", "s390", "mips", "riscv"],
    )
    def test_form(self, text, cores, model, a_flag):
        info = parse_cpuinfo(text)
        assert info.cores == cores
        assert info.model == model
        assert (a_flag in info.flags) if a_flag else (info.flags == frozenset())


class TestDamage:
    """Of a damaged file, whatever can be understood is used."""

    @pytest.mark.parametrize(
        "text", ["", "\n\n\n", ":", ": :\n:::", "\0\0\0", "processor", "processor :", "no such thing\n" * 5], ids=repr
    )
    def test_nothing_to_understand(self, text):
        assert parse_cpuinfo(text) == ({}, None, frozenset())

    @pytest.mark.parametrize(
        "number", ["-1", "x", "1.0", "0x1", "65536", "9" * 30, "٣", "1 2"], ids=lambda number: ascii(number[:8])
    )
    def test_a_block_without_a_number_that_can_be(self, number):
        text = f"processor : {number}\n\nprocessor {number}: version\n\ncpu number : {number}\n\nprocessor : 4\n"
        assert parse_cpuinfo(text).cores == {4: None}

    @pytest.mark.parametrize("line", ["", "core id : x", "core id : -1", "core id :", "core id"])
    def test_half_of_the_ids_is_none(self, line):
        assert parse_cpuinfo(f"processor : 0\nphysical id : 0\n{line}\n").cores == {0: None}

    def test_a_line_without_ids_does_not_undo_a_block_with_them(self):
        text = "cpu number : 0\nphysical id : 1\ncore id : 4\n\nprocessor 0: version = 00\n"
        assert parse_cpuinfo(text).cores == {0: (1, 4)}

    def test_cut_off_in_the_middle_of_a_block(self):
        assert parse_cpuinfo(X86[: X86.rindex("siblings")]).cores == {0: (0, 0), 1: None}

    def test_no_blank_line_at_the_end(self):
        assert parse_cpuinfo("processor : 0\n\nprocessor : 1").cores == {0: None, 1: None}

    def test_a_model_that_is_empty_is_none(self):
        assert parse_cpuinfo("processor : 0\nmodel name :\n").model is None
