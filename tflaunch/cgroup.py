"""The CPU quota that the kernel enforces on this process, from cgroup v1, v2 or both.

A process is in one group of each hierarchy. The hierarchy that has the cpu controller is the one that counts: a v1
hierarchy when /proc/self/cgroup names `cpu` in one of its lines, else the v2 hierarchy. CFS bandwidth is enforced at
every level, so the quota is the least over the process's own group and all its ancestors that can be seen. Shares,
weights and requests order contention only; they are no quota and are not read.

Sources: proc_pid_cgroup(5), proc_pid_mountinfo(5), cgroup_namespaces(7), and in the kernel's documentation
admin-guide/cgroup-v2.rst (cpu.max), scheduler/sched-bwc.rst (cpu.cfs_quota_us, cpu.cfs_period_us).
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpus import Cpus, least
from tflaunch.files import Files
from tflaunch.text import natural, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A path the kernel shows is shorter than PATH_MAX.
MAX_PATH = 4096


class Membership(NamedTuple):
    """The group of one hierarchy that the process is in. No controllers: the v2 hierarchy."""

    controllers: tuple[str, ...]
    path: str


class Mount(NamedTuple):
    """A place where a hierarchy, or the part of it below `root`, can be seen."""

    root: str
    mount_point: str
    version: int
    controllers: tuple[str, ...]


class Reading(NamedTuple):
    """What one group's files say: `cpus` is None where they set no quota."""

    source: str
    cpus: Cpus | None


class Quota(NamedTuple):
    """The quota in force, where it was read, and everything that was read on the way.

    version is None where no cpu controller can be seen. is_hidden: the process's own group cannot be seen, so a quota
    may be in force that no file shows.
    """

    version: int | None
    cpus: Cpus | None
    source: str | None
    readings: tuple[Reading, ...]
    is_hidden: bool


def parse_memberships(text: str) -> list[Membership]:
    """The lines of /proc/self/cgroup; a line that is none is skipped.

    8:cpu,cpuacct:/kubepods/pod1       (1) hierarchy id   (2) controllers, none for v2   (3) path of the group,
    1:name=systemd:/init.scope         (1)      (2)      (3)     which may hold colons, and starts with /.. when the
    0::/kubepods/pod1                   group lies outside the process's cgroup namespace
    """
    memberships = []
    for line in text.split("\n"):
        hierarchy, colon, rest = line.partition(":")
        controllers, second_colon, path = rest.partition(":")
        if not (colon and second_colon) or not path.startswith("/") or len(path) > MAX_PATH:
            continue
        if natural(hierarchy) is None or (hierarchy == "0") != (controllers == ""):
            continue
        memberships.append(Membership(tuple(controllers.split(",")) if controllers else (), path))
    return memberships


def parse_mounts(text: str) -> list[Mount]:
    """The cgroup mounts in /proc/self/mountinfo; all other lines, and lines that are none, are skipped.

    36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    (1)(2)(3)   (4)   (5)      (6)      (7)   (8) (9)   (10)         (11)

    (4) root: the directory of the file system that is mounted   (5) mount point   (7) no, one or many optional fields
    (8) a lone "-" ends them   (9) type   (10) source   (11) super options, for cgroup v1 with the controllers.
    In (4) and (5) blank, tab, newline and backslash are written \\040 \\011 \\012 \\134. (11) may hold blanks.
    """
    mounts = []
    for line in text.split("\n"):
        before, separator, after = line.partition(" - ")
        file_system, _, source_and_options = after.partition(" ")
        if not separator or file_system not in ("cgroup", "cgroup2"):
            continue
        fields = before.split(" ")
        if len(fields) < 6 or not fields[3].startswith("/") or not fields[4].startswith("/"):
            continue
        super_options = source_and_options.partition(" ")[2]
        mounts.append(
            Mount(
                root=unescape(fields[3]),
                mount_point=unescape(fields[4]),
                version=2 if file_system == "cgroup2" else 1,
                controllers=tuple(super_options.strip().split(",")),
            )
        )
    return mounts


def unescape(field: str) -> str:
    r"""A mountinfo field with \ooo replaced by the character of that octal code."""
    first, *rest = field.split("\\")
    out = [first]
    for part in rest:
        code = part[:3]
        if len(code) == 3 and all(digit in "01234567" for digit in code):
            out.append(chr(int(code, 8)) + part[3:])
        else:
            out.append("\\" + part)
    return "".join(out)


def path_below(mount: Mount, path: str) -> list[str] | None:
    """The components of the group's path below the mount's root, or None when the group is not below it.

    Both path and mount.root are relative to the root of the process's cgroup namespace. "/.." in them is the level
    above that root, whose directories' names the process cannot know.
    """
    group, root = _components(path), _components(mount.root)
    below = group[len(root) :]
    return below if group[: len(root)] == root and ".." not in below else None


def visible_groups(mount: Mount, path: str) -> tuple[str, ...]:
    """The directories in `mount` of the group at `path` and of its ancestors up to the mount point, own group first.

    A mount whose root is "/.." or higher shows at its mount point an ancestor of the group; where below it the group
    itself lies cannot be known.
    """
    base = mount.mount_point.rstrip("/")
    below = path_below(mount, path)
    if below is not None:
        return tuple("/".join([base, *below[:depth]]) for depth in range(len(below), -1, -1))
    root = _components(mount.root)
    is_above = set(root) == {".."} and _components(path)[: len(root)] != root
    return (base,) if is_above else ()


def parse_cpu_max(text: str) -> Cpus | None:
    """cpu.max of cgroup v2: "max 100000" or "150000 100000", quota and period in µs. None: no quota.

    An empty file (kernels without CFS bandwidth) sets no quota. ValueError for anything else.
    """
    fields = text.split()
    if not fields or fields[0] == "max":
        return None
    if len(fields) != 2:
        raise ValueError("not a quota and a period")
    return _quota(fields[0], fields[1])


def parse_cfs_quota(quota: str, period: str | None) -> Cpus | None:
    """cpu.cfs_quota_us and cpu.cfs_period_us of cgroup v1, in µs; -1 or an empty file: no quota. Else ValueError."""
    quota = quota.strip()
    if quota in ("-1", ""):
        return None
    if period is None:
        raise ValueError("there is no period beside it")
    return _quota(quota, period.strip())


def read_quota(files: Files) -> Quota:
    """The quota in force on this process."""
    memberships = parse_memberships(files.read("/proc/self/cgroup") or "")
    mounts = parse_mounts(files.read("/proc/self/mountinfo") or "")
    v1 = next((m for m in memberships if "cpu" in m.controllers), None)
    if v1 is not None:
        mounts = [mount for mount in mounts if mount.version == 1 and "cpu" in mount.controllers]
        return _read_hierarchy(files, 1, mounts, v1.path, _read_v1_group)
    v2 = next((m for m in memberships if not m.controllers), None)
    if v2 is not None:
        mounts = [mount for mount in mounts if mount.version == 2]
        return _read_hierarchy(files, 2, mounts, v2.path, _read_v2_group)
    return Quota(None, None, None, (), is_hidden=False)


def _read_hierarchy(
    files: Files, version: int, mounts: list[Mount], path: str, read_group: Callable[[Files, str], Reading | None]
) -> Quota:
    # Of two mounts at one place the later one hides the other.
    mounts = list({mount.mount_point: mount for mount in mounts}.values())
    directories = dict.fromkeys(directory for mount in mounts for directory in visible_groups(mount, path))
    readings = [reading for directory in directories if (reading := read_group(files, directory))]
    limits = [reading.cpus for reading in readings if reading.cpus]
    cpus = least(limits) if limits else None
    return Quota(
        version=version if readings or any(_has_cpu_controller(files, mount) for mount in mounts) else None,
        cpus=cpus,
        source=next((reading.source for reading in readings if cpus and reading.cpus == cpus), None),
        readings=tuple(readings),
        is_hidden=bool(mounts) and all(path_below(mount, path) is None for mount in mounts),
    )


def _has_cpu_controller(files: Files, mount: Mount) -> bool:
    if mount.version == 1:
        return "cpu" in mount.controllers
    return "cpu" in (files.read(f"{mount.mount_point.rstrip('/')}/cgroup.controllers") or "").split()


def _read_v1_group(files: Files, directory: str) -> Reading | None:
    quota = files.read(f"{directory}/cpu.cfs_quota_us")
    if quota is None:
        return None
    period = files.read(f"{directory}/cpu.cfs_period_us")
    source = f"{directory}/cpu.cfs_quota_us: {_one_line(quota)}"
    if period is not None:
        source += f", cpu.cfs_period_us: {_one_line(period)}"
    try:
        return Reading(printable(source), parse_cfs_quota(quota, period))
    except ValueError as error:
        files.report("malformed_file", source, str(error))
        return Reading(printable(source), None)


def _read_v2_group(files: Files, directory: str) -> Reading | None:
    text = files.read(f"{directory}/cpu.max")
    if text is None:
        return None
    source = f"{directory}/cpu.max: {_one_line(text)}"
    try:
        return Reading(printable(source), parse_cpu_max(text))
    except ValueError as error:
        files.report("malformed_file", source, str(error))
        return Reading(printable(source), None)


def _quota(quota_us: str, period_us: str) -> Cpus:
    quota, period = natural(quota_us), natural(period_us)
    if not quota or not period:
        raise ValueError("quota and period are not two numbers above zero")
    return Cpus(quota, period)


def _one_line(text: str) -> str:
    return " ".join(text[:80].split()) or "(empty)"


def _components(path: str) -> list[str]:
    return [component for component in path.split("/") if component not in ("", ".")]
