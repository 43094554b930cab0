"""Quotas and throttling: of made-up folder trees in every arrangement that is out there, and of a
real group.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from feedline.profiler import message
from feedline.profiler.message import id_of
from feedline.profiler.samplers import cgroup
from feedline.profiler.samplers.cgroup import CgroupThrottling

V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
V1_OTHER = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CPUS = len(os.sched_getaffinity(0))

Write = Callable[[str, str], Path]


@pytest.fixture
def v2(made_up: Write) -> Write:
    """A machine with version 2; the process is in /job/rank0.

    Gives a writer for files of its groups.
    """
    made_up("proc/self/cgroup", "0::/job/rank0\n")
    made_up("proc/self/mountinfo", V2_MOUNT)
    for group in ("", "job/", "job/rank0/"):
        made_up(
            f"sys/fs/cgroup/{group}cpu.stat",
            "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        )
    for group in ("job/", "job/rank0/"):
        made_up(f"sys/fs/cgroup/{group}cpu.max", "max 100000\n")
    return lambda file, text: made_up(f"sys/fs/cgroup/{file}", text).resolve()


@pytest.fixture
def v1(made_up: Write) -> Write:
    """The same with version 1."""
    made_up("proc/self/cgroup", "4:memory:/elsewhere\n1:cpu,cpuacct:/job/rank0\n0::/\n")
    made_up("proc/self/mountinfo", V1_OTHER + V1_MOUNT)
    for group in ("", "job/", "job/rank0/"):
        made_up(
            f"sys/fs/cgroup/cpu,cpuacct/{group}cpu.stat",
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        )
        made_up(f"sys/fs/cgroup/cpu,cpuacct/{group}cpu.cfs_quota_us", "-1\n")
        made_up(f"sys/fs/cgroup/cpu,cpuacct/{group}cpu.cfs_period_us", "100000\n")
    return lambda file, text: made_up(f"sys/fs/cgroup/cpu,cpuacct/{file}", text)


def test_a_version_2_quota_is_quota_over_period(v2: Write, tmp_path: Path) -> None:
    v2("job/rank0/cpu.max", "150000 100000\n")

    assert cgroup.cpu_quota(tmp_path) == 1.5


def test_a_smaller_quota_of_a_parent_counts(v2: Write, tmp_path: Path) -> None:
    v2("job/rank0/cpu.max", "150000 100000\n")
    v2("job/cpu.max", "50000 100000\n")

    assert cgroup.cpu_quota(tmp_path) == 0.5


def test_a_larger_quota_of_a_parent_does_not(v2: Write, tmp_path: Path) -> None:
    v2("job/rank0/cpu.max", "150000 100000\n")
    v2("job/cpu.max", "800000 100000\n")

    assert cgroup.cpu_quota(tmp_path) == 1.5


def test_a_version_1_quota_is_quota_over_period(v1: Write, tmp_path: Path) -> None:
    v1("job/rank0/cpu.cfs_quota_us", "25000\n")
    v1("job/rank0/cpu.cfs_period_us", "50000\n")

    assert cgroup.cpu_quota(tmp_path) == 0.5


def test_a_version_1_parent_counts(v1: Write, tmp_path: Path) -> None:
    v1("job/cpu.cfs_quota_us", "300000\n")

    assert cgroup.cpu_quota(tmp_path) == 3.0


def test_a_container_that_sees_its_groups_path_from_the_host_finds_its_quota(
    made_up: Write, tmp_path: Path
) -> None:
    made_up("proc/self/cgroup", "1:cpu,cpuacct:/docker/4f2a/inner\n")
    made_up("proc/self/mountinfo", V1_MOUNT.replace(" / /sys", " /docker/4f2a /sys"))
    made_up(
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"
    )
    made_up("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    made_up("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")

    assert cgroup.cpu_quota(tmp_path) == 2.0


def test_a_group_outside_the_namespace_is_taken_at_the_mount_point(
    v2: Write, made_up: Write, tmp_path: Path
) -> None:
    made_up("proc/self/cgroup", "0::/../other\n")
    v2("cpu.max", "70000 100000\n")

    assert cgroup.cpu_quota(tmp_path) == 0.7


def test_a_mixed_machine_takes_both_versions(v1: Write, made_up: Write, tmp_path: Path) -> None:
    made_up(
        "proc/self/mountinfo",
        V1_MOUNT + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
    )
    made_up("sys/fs/cgroup/unified/cpu.stat", "usage_usec 1\n")
    v1("job/rank0/cpu.cfs_quota_us", "50000\n")

    assert {level.version for level in cgroup._levels(tmp_path)} == {1, 2}
    assert cgroup.cpu_quota(tmp_path) == 0.5


def test_a_hierarchy_that_is_mounted_twice_counts_once(
    v2: Write, made_up: Write, tmp_path: Path
) -> None:
    made_up("proc/self/mountinfo", V2_MOUNT * 2)

    assert len(cgroup._levels(tmp_path)) == 3


def test_a_mount_whose_name_is_no_text_hides_no_quota(v2: Write, tmp_path: Path) -> None:
    v2("job/cpu.max", "50000 100000\n")
    mounts = tmp_path / "proc/self/mountinfo"
    other = b"36 24 8:1 / /data/caf\xe9 rw - ext4 /dev/sda1 rw\n"
    mounts.write_bytes(other + mounts.read_bytes())

    assert cgroup.cpu_quota(tmp_path) == 0.5


@pytest.mark.parametrize("line", ["30 24 - cgroup2 cgroup2 rw", "x"])
def test_lines_of_another_form_are_no_quota(
    line: str, v2: Write, made_up: Write, tmp_path: Path
) -> None:
    made_up("proc/self/mountinfo", V2_MOUNT + line)
    made_up("proc/self/cgroup", "job\n")

    assert cgroup.effective_cpus(tmp_path) == CPUS


def test_effective_cpus_are_capped_by_the_quota(v2: Write, tmp_path: Path) -> None:
    v2("job/cpu.max", "50000 100000\n")

    assert cgroup.effective_cpus(tmp_path) == 0.5


def test_effective_cpus_are_capped_by_the_affinity(v2: Write, tmp_path: Path) -> None:
    v2("job/cpu.max", f"{(CPUS + 3) * 100000} 100000\n")

    assert cgroup.effective_cpus(tmp_path) == CPUS


def test_without_cgroups_effective_cpus_are_the_affinity(tmp_path: Path) -> None:
    assert cgroup.effective_cpus(tmp_path) == CPUS


def test_version_2_throttling_is_seconds_per_second_and_a_share_of_periods(
    v2: Write, time_is, tmp_path: Path
) -> None:
    v2("job/rank0/cpu.max", "50000 100000\n")
    v2(
        "job/rank0/cpu.stat",
        "usage_usec 9\nnr_periods 100\nnr_throttled 10\nthrottled_usec 7000000\n",
    )
    source = CgroupThrottling(tmp_path)
    assert source.probe() is None

    time_is.advance(2.0)
    v2(
        "job/rank0/cpu.stat",
        "usage_usec 9\nnr_periods 120\nnr_throttled 15\nthrottled_usec 8000000\n",
    )

    assert source.read() == pytest.approx(
        {"cgroup/throttled": 0.5, "cgroup/throttled_periods": 0.25}
    )


def test_version_1_throttling_is_in_nanoseconds(v1: Write, time_is, tmp_path: Path) -> None:
    v1("job/rank0/cpu.cfs_quota_us", "50000\n")
    source = CgroupThrottling(tmp_path)
    assert source.probe() is None

    time_is.advance(2.0)
    v1("job/rank0/cpu.stat", "nr_periods 20\nnr_throttled 20\nthrottled_time 500000000\n")

    assert source.read() == pytest.approx(
        {"cgroup/throttled": 0.25, "cgroup/throttled_periods": 1.0}
    )


def test_throttling_by_a_parent_counts(v2: Write, time_is, tmp_path: Path) -> None:
    v2("job/cpu.max", "50000 100000\n")
    source = CgroupThrottling(tmp_path)
    assert source.probe() is None

    time_is.advance(1.0)
    v2("job/cpu.stat", "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 300000\n")

    assert source.read() == pytest.approx(
        {"cgroup/throttled": 0.3, "cgroup/throttled_periods": 0.4}
    )


def test_without_a_quota_the_source_is_absent_and_names_no_group(v2: Write, tmp_path: Path) -> None:
    """Groups are named after users, hosts and repositories."""
    why = CgroupThrottling(tmp_path).probe()

    assert why is not None and id_of(why) == message.NO_CPU_QUOTA
    assert why == "no control group has a CPU quota"


def test_a_quota_that_must_not_be_read_is_named_with_its_file_and_not_its_group(
    v2: Write, tmp_path: Path, open_folder: Path, as_nobody
) -> None:
    root = shutil.copytree(tmp_path, open_folder / "root")
    root.chmod(0o755)
    closed = root / "sys/fs/cgroup/job/cpu.max"
    closed.chmod(0)

    with as_nobody():
        why = CgroupThrottling(root).probe()

    assert why is not None and why.endswith("cpu.max: Permission denied") and "job" not in why


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A real group that may use a twentieth of a CPU."""
    why = "there is no group with a CPU controller"
    for level in cgroup._levels():
        group = level.folder / f"feedline-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            why = str(error)
            continue
        try:
            if level.version == 1:
                (group / "cpu.cfs_quota_us").write_text("5000")
            else:
                (group / "cpu.max").write_text("5000 100000")
            yield group
            return
        except OSError as error:
            why = str(error)
            continue
        finally:
            group.rmdir()
    pytest.skip(f"no control group with a CPU quota can be made here: {why}")


IN_A_GROUP = """
    import json, sys, time
    from feedline.profiler.samplers.cgroup import effective_cpus
    from feedline.profiler.samplers.cgroup import CgroupThrottling
    print("ready", flush=True)
    sys.stdin.readline()
    source = CgroupThrottling()
    why = source.probe()
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        pass
    print(json.dumps({"why": why, "cpus": effective_cpus(), **source.read()}), flush=True)
    sys.stdin.readline()
"""


def test_a_real_quota_and_its_throttling_are_seen(
    real_group: Path, child: Callable[[str], Popen[str]]
) -> None:
    process = child(IN_A_GROUP)
    assert process.stdin and process.stdout
    (real_group / "cgroup.procs").write_text(str(process.pid))

    process.stdin.write("\n")
    process.stdin.flush()
    seen = json.loads(process.stdout.readline())
    process.kill()
    process.wait()

    assert seen["why"] is None
    assert seen["cpus"] == 0.05
    assert seen["cgroup/throttled"] > 0.3
    assert seen["cgroup/throttled_periods"] > 0.5
