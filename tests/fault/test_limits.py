"""A machine that refuses: descriptors, memory, address space, a small /dev/shm, a read-only disk, rights, a clock that jumps."""

import contextlib
import functools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handover import STATS, Refused, Session, control, small_spec
from headrace_cli import headrace
from processes import Daemon, wait_until

PAGE = [{"name": "Resize", "size": [256, 256]}]


@pytest.fixture
def limited(executable, dataset, tmp_path):
    """limited(name, value, *arguments): a daemon under a resource limit; arguments in front of its command line."""
    daemons = []

    def start(*arguments, wrapper=(), environment=None):
        program = tmp_path / "limited"
        program.write_text("#!/bin/sh\n" + " ".join(f"{name}='{value}'" for name, value in (environment or {}).items())
                           + f" exec {' '.join(wrapper)} {executable} \"$@\"\n")  # fmt: skip
        program.chmod(0o755)
        daemons.append(Daemon(str(program), os.path.dirname(dataset), tmp_path / f"limited{len(daemons)}.sock", *arguments))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.end()


def opened_until_refused(daemon, dataset, **spec):
    """Sessions, and what the next one was told."""
    sessions = []
    while len(sessions) < 1000:
        try:
            sessions.append(Session(daemon.socket, small_spec(dataset, **spec)))
        except Refused as refused:
            return sessions, refused
    raise AssertionError("nothing was refused")


def expect_unharmed_and_then_free(daemon, dataset, sessions, kept):
    """`kept` goes on beside the others, and once those are gone there is room again."""
    for _ in range(5):
        kept.release(kept.next())
    for session in sessions:
        session.connection.close()
    wait_until(lambda: len(control(daemon.socket).request(STATS, {})["sessions"]) == 1, 20, "the end of the sessions")
    again = Session(daemon.socket, small_spec(dataset))
    again.release(again.next())
    again.connection.close()
    assert daemon.process.poll() is None


def test_without_descriptors_the_next_session_is_told_and_the_others_go_on(dataset, limited):
    daemon = limited(wrapper=("prlimit", "--nofile=80:80"))
    kept = Session(daemon.socket, small_spec(dataset))
    sessions, refused = opened_until_refused(daemon, dataset)
    assert refused.code == 8 and "Too many open files" in str(refused) and "LimitNOFILE" in str(refused), refused
    expect_unharmed_and_then_free(daemon, dataset, sessions, kept)


def test_a_refused_memfd_is_an_error_and_not_the_daemons_end(dataset, limited):
    daemon = limited(wrapper=("prlimit", "--fsize=2000000"))  # also for files in memory
    kept = Session(daemon.socket, small_spec(dataset))
    sessions, refused = opened_until_refused(daemon, dataset, batch_size=64, transform=PAGE)
    assert not sessions and refused.code == 8 and "ring" in str(refused) and "File too large" in str(refused), refused
    expect_unharmed_and_then_free(daemon, dataset, sessions, kept)


def test_without_address_space_the_next_session_is_told(dataset, limited):
    daemon = limited("--host-memory", "100GiB", "--grpc=false", "--threads", "2", wrapper=("prlimit", "--as=1000000000"))
    kept = Session(daemon.socket, small_spec(dataset))
    sessions, refused = opened_until_refused(daemon, dataset, batch_size=1000, transform=PAGE)
    assert refused.code == 8 and "ring" in str(refused) and "Cannot allocate memory" in str(refused), refused
    expect_unharmed_and_then_free(daemon, dataset, sessions, kept)


def test_beyond_the_budget_the_next_session_is_told_the_numbers(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset), "--host-memory", "10MB")
    kept = Session(daemon.socket, small_spec(dataset))
    sessions, refused = opened_until_refused(daemon, dataset, batch_size=8, transform=PAGE)
    assert len(sessions) == 1 and refused.code == 8 and "--host-memory" in str(refused), refused
    expect_unharmed_and_then_free(daemon, dataset, sessions, kept)


GROUPS = Path("/sys/fs/cgroup")


def make_group(limit):
    """A control group with a memory limit, of whichever version there is; None where this process may make none."""
    # Version 2 lets only groups without processes of their own hand a controller down, or the root: so the own one's parents, too.
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    first = next((GROUPS / "memory" / path[1:] for names, path in own.items() if "memory" in names.split(",")), None)
    starts = [(first, "memory.limit_in_bytes"), (GROUPS / own.get("", "/")[1:], "memory.max")]
    for start, name in starts:
        for parent in [start, *start.parents] if start is not None else []:
            if not parent.is_relative_to(GROUPS):
                break
            group = parent / f"headrace-test-{os.getpid()}"
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text("+memory")
            with contextlib.suppress(OSError):
                group.mkdir()
                if (group / name).exists():  # else it is an ordinary folder, or without the controller
                    (group / name).write_text(str(limit))
                    return group
            with contextlib.suppress(OSError):
                group.rmdir()
    return None


@pytest.fixture
def memory_group():
    """memory_group(bytes): the folder of a real control group with that limit."""
    groups = []

    def make(limit):
        group = make_group(limit)
        if group is None:
            pytest.skip("needs a memory control group, which root may make where /sys/fs/cgroup is writable")
        groups.append(group)
        return group

    yield make
    for group in groups:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 20, "the end of the group's processes")
        group.rmdir()


def group_number(group, *names):
    """Of whichever of the files there is; a name "FILE/KEY" is a line's number."""
    for name in names:
        file, _, key = name.partition("/")
        if (group / file).exists():
            text = (group / file).read_text()
            return int(text if not key else dict(line.split() for line in text.splitlines())[key])
    raise AssertionError(f"{group} has none of {names}")


def test_a_session_that_does_not_fit_into_the_cgroup_is_told_and_nobody_is_killed(dataset, limited, memory_group):
    group = memory_group(200 << 20)
    enter = ("sh", "-c", f"'echo $$ >{group}/cgroup.procs && exec \"$@\"'", "sh")
    daemon = limited("--host-memory", "100GiB", "--threads", "2", wrapper=enter)
    assert str(daemon.pid) in (group / "cgroup.procs").read_text().split()
    kept = Session(daemon.socket, small_spec(dataset))
    sessions, refused = opened_until_refused(daemon, dataset, batch_size=64, transform=PAGE)  # 50 MB each
    assert refused.code == 8 and str(group) in str(refused) and "control group's limit is 209.7 MB" in str(refused), refused
    assert 1 <= len(sessions) <= 3
    for session in sessions:  # what they were promised is there
        for _ in range(session.slots + 1):
            session.release(session.next())
    # A slot takes its memory at its first use or in the background, whichever comes first.
    used = functools.partial(group_number, group, "memory.usage_in_bytes", "memory.current")
    wait_until(lambda: used() > sum(session.ring_bytes for session in sessions), 20, "the memory that was promised")
    assert group_number(group, "memory.oom_control/oom_kill", "memory.events/oom_kill") == 0
    expect_unharmed_and_then_free(daemon, dataset, sessions, kept)
    kept.connection.close()
    assert daemon.stop() == 0


def in_own_mounts(commands, *program):
    """Runs a program in a mount namespace of its own, set up by shell commands; None where only root may do that."""
    if os.geteuid() != 0:
        return None
    line = " && ".join([*commands, 'exec "$@"'])
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", line, "sh", *map(str, program)], capture_output=True, text=True, timeout=120
    )


READ_ALL = """
import os, sys
import headrace
loader = headrace.Loader(sys.argv[1], 32, transform=[headrace.Resize((256, 256))], return_index=True, timeout=30)
got = [i for *_, index in loader for i in index.tolist()]
assert got == list(range(131)), got
print(os.listdir("/dev/shm"), loader.stats()["slots"])
"""


def test_a_dev_shm_of_64_mb_is_enough_for_rings_of_100_mb(dataset):
    done = in_own_mounts(["mount -t tmpfs -o size=64m none /dev/shm"], sys.executable, "-c", READ_ALL, dataset)
    assert done is None or done.stdout == "[] 4\n", done.stderr


def test_a_read_only_disk_is_enough_to_train_from_and_named_by_who_must_write(dataset, executable, image_folder):
    read_only = [f"mount --bind {dataset} {dataset}", f"mount -o remount,bind,ro {dataset}"]
    done = in_own_mounts(read_only, sys.executable, "-c", READ_ALL, dataset)
    assert done is None or done.stdout.endswith(" 4\n"), done.stderr
    for command in (("index", dataset), ("pack", "--overwrite", image_folder, dataset)):
        done = in_own_mounts(read_only, executable, *command)
        assert done is None or (done.returncode == 1 and "Read-only file system" in done.stderr and dataset in done.stderr), done
    headrace("verify", "--quiet", dataset)


def test_a_daemon_without_rights_names_what_it_may_not_read(dataset, limited, tmp_path):
    if os.geteuid() == 0:  # root, but bound to the files' permissions
        wrapper = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
    else:
        wrapper = ()
    copies = Path(dataset).parent / f"rights{os.getpid()}"
    try:
        for name, closed in (("folder", "."), ("shard", "00000.lmdb"), ("index", "00000.index"), ("description", "dataset.json")):
            shutil.copytree(dataset, copies / name)
            (copies / name / closed).chmod(0)
        daemon = limited(wrapper=wrapper)
        kept = Session(daemon.socket, small_spec(dataset))
        for name in ("folder", "shard", "index", "description"):
            with pytest.raises(Refused, match=f"{name}.*Permission denied") as refused:
                Session(daemon.socket, small_spec(copies / name))
            assert refused.value.code == 7, refused.value
        kept.release(kept.next())
    finally:
        for closed in copies.glob("*"):
            closed.chmod(0o700)
        shutil.rmtree(copies)


# The wall clock of a process jumps by up to ten years at each look at it.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) { return random() % 630720000 - 315360000; }
int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += jump();
  return result;
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


def test_a_wall_clock_that_jumps_changes_nothing(dataset, limited, script, tmp_path):
    library = tmp_path / "clock.so"
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c"], check=True, timeout=60)
    daemon = limited(environment={"LD_PRELOAD": str(library)})
    code = READ_ALL.replace("import headrace\n", "import time\nimport headrace\nyears = {time.gmtime().tm_year for _ in range(50)}\n")
    code = code.replace("print(", "print(len(years) > 5, ")
    run = script(code, dataset, env={"LD_PRELOAD": str(library), "HEADRACE_SOCKET": daemon.socket})
    assert run.finish().startswith("True")
    years = set(re.findall(r"^\D?(\d{4})-", Path(daemon.socket + ".log").read_text(), re.M))
    assert len(years) > 1, "the daemon's clock did not jump"
    assert daemon.stop() == 0
