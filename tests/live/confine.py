#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command confined as a systemd unit would be, where there is no systemd to do it.

    confine.py UNIT STATE [--without CAP_X] -- COMMAND...

STATE stands for the unit's StateDirectory; the command has to be in there, since the rest is hidden
or read-only. User= becomes an id that nobody has. A directive of [Service] that is not known here
is an error: nothing is left out silently. Wants root, systemd-analyze, setpriv, python3-seccomp.
"""
import ctypes
import os
import resource
import subprocess
import sys

USER = 64123
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, SYS_mount_setattr = -100, 0x8000, 1, 442
# What confines nothing, or is the caller's to do.
ELSEWHERE = set("""Type ExecStart ExecReload WatchdogSec Restart RestartSec RestartPreventExitStatus
    TimeoutStopSec StateDirectory StateDirectoryMode CPUWeight MemoryMax OOMScoreAdjust
    SystemCallErrorNumber Group""".split())
libc = ctypes.CDLL(None, use_errno=True)


def check(rc, what):
    if rc:
        sys.exit(f"confine: {what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags, data=None):
    check(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None,
                     ctypes.c_ulong(flags), data.encode() if data else None), f"mount {target}")


def set_readonly(path, on, recursive=True):
    attr = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY if on else 0, 0 if on else MOUNT_ATTR_RDONLY, 0, 0)
    check(libc.syscall(SYS_mount_setattr, AT_FDCWD, path.encode(), AT_RECURSIVE if recursive else 0,
                       attr, 32), f"read-only {path}")


def read_unit(path):
    unit, section = {}, None
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            unit[key] = value
    return unit


def expand(names):
    """System calls of systemd's sets, as systemd lists them."""
    done, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if not name.startswith("@"):
            done.add(name)
            continue
        text = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        todo += [l.strip() for l in text.splitlines()[1:] if l.strip() and l.strip()[0] != "#"]
    return sorted(done)


def private_devices(state):
    # Where its nodes can be made before it covers the old one.
    dev = os.path.join(state, "dev")
    os.makedirs(dev, exist_ok=True)
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755")
    for name in "null zero full random urandom tty".split():
        open(os.path.join(dev, name), "w").close()
        mount("/dev/" + name, os.path.join(dev, name), None, MS_BIND)
    os.mkdir(os.path.join(dev, "shm"))
    mount(dev, "/dev", None, MS_BIND | MS_REC)


def mounts(unit, state):
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(state, state, None, MS_BIND)
    if unit.pop("PrivateDevices") == "yes":
        private_devices(state)
    if unit.pop("PrivateTmp") == "yes":
        for path in "/tmp", "/var/tmp":
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    unit.pop("ProtectHome")  # read-only: part of the next
    if unit.pop("ProtectSystem") != "strict":
        sys.exit("confine: ProtectSystem: only strict is known")
    set_readonly("/", True)
    for path in "/dev", "/proc", "/sys", "/tmp", "/var/tmp":
        set_readonly(path, False)
    set_readonly(state, False, recursive=False)
    for path in unit.pop("ReadOnlyPaths").split():
        mount(path, path, None, MS_BIND | MS_REC)
        set_readonly(path, True)
    unit.pop("ProtectControlGroups")  # below /sys


def filters(unit):
    """Stage two, without root: system call filters, then the command."""
    import seccomp as sc

    eperm = sc.ERRNO(1)
    f = sc.SyscallFilter(eperm)
    for name in unit["calls"]:
        try:
            f.add_rule(sc.ALLOW, name)
        except (RuntimeError, ValueError):
            pass  # not of this architecture
    g = sc.SyscallFilter(sc.ALLOW)
    if unit.get("MemoryDenyWriteExecute"):
        g.add_rule(eperm, "mmap", sc.Arg(2, sc.MASKED_EQ, 6, 6))
        g.add_rule(eperm, "mprotect", sc.Arg(2, sc.MASKED_EQ, 4, 4))
        g.add_rule(eperm, "pkey_mprotect", sc.Arg(2, sc.MASKED_EQ, 4, 4))
        g.add_rule(eperm, "shmat", sc.Arg(2, sc.MASKED_EQ, 0o100000, 0o100000))
    if unit.get("RestrictNamespaces"):
        for name in "unshare", "setns":
            g.add_rule(eperm, name)
        g.add_rule(sc.ERRNO(38), "clone3")
        for flag in 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000:
            g.add_rule(eperm, "clone", sc.Arg(0, sc.MASKED_EQ, flag, flag))
    if unit.get("LockPersonality"):
        g.add_rule(eperm, "personality", sc.Arg(0, sc.NE, 0))
    if unit.get("RestrictRealtime"):
        g.add_rule(eperm, "sched_setscheduler", sc.Arg(1, sc.MASKED_EQ, 0xffffffff, 1))
        g.add_rule(eperm, "sched_setscheduler", sc.Arg(1, sc.MASKED_EQ, 0xffffffff, 2))
    if unit.get("RestrictSUIDSGID"):
        for bit in 0o4000, 0o2000:
            for name, arg in ("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdirat", 2), ("creat", 1):
                g.add_rule(eperm, name, sc.Arg(arg, sc.MASKED_EQ, bit, bit))
    families = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
    allowed = {families[n] for n in unit["RestrictAddressFamilies"].split()}
    for family in set(range(46)) - allowed:
        g.add_rule(sc.ERRNO(97), "socket", sc.Arg(0, sc.EQ, family))
    # In this order: the other one allows no second filter.
    g.load()
    f.load()


def main():
    if sys.argv[1] == "--filters":
        unit = eval(sys.argv[2])
        filters(unit)
        os.execv(sys.argv[3], sys.argv[3:])
    unit, state = read_unit(sys.argv[1]), os.path.realpath(sys.argv[2])
    split = sys.argv.index("--")
    without, command = sys.argv[4:split], sys.argv[split + 1:]
    for key in ELSEWHERE:
        unit.pop(key, None)
    calls = expand(unit.pop("SystemCallFilter").split())
    mounts(unit, state)
    for name, limit in ("LimitMEMLOCK", resource.RLIMIT_MEMLOCK), ("LimitNOFILE", resource.RLIMIT_NOFILE):
        value = unit.pop(name)
        value = resource.RLIM_INFINITY if value == "infinity" else int(value)
        most = resource.getrlimit(limit)[1]
        try:
            resource.setrlimit(limit, (value, value))
        except ValueError:  # no CAP_SYS_RESOURCE here: as much as there may be
            resource.setrlimit(limit, (most, most))
    os.umask(int(unit.pop("UMask"), 8))
    caps = unit.pop("AmbientCapabilities")
    if unit.pop("CapabilityBoundingSet") != caps:
        sys.exit("confine: ambient and bounding capabilities differ")
    caps = ",".join("+" + c[4:].lower() for c in caps.split() if c not in without)
    args = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups",
            "--inh-caps", "-all," + caps, "--ambient-caps", "-all," + caps,
            "--bounding-set", "-all," + caps]
    unit.pop("User")
    if unit.pop("NoNewPrivileges") == "yes":
        args.append("--no-new-privs")
    # These take away what is not held, or not among the calls allowed.
    for key in "ProtectClock", "ProtectHostname", "SystemCallArchitectures":
        unit.pop(key)
    stage2 = {"calls": calls, "RestrictAddressFamilies": unit.pop("RestrictAddressFamilies")}
    for key in ("MemoryDenyWriteExecute", "RestrictNamespaces", "LockPersonality", "RestrictRealtime",
                "RestrictSUIDSGID"):
        stage2[key] = unit.pop(key) == "yes"
    if unit:
        sys.exit("confine: not known: " + " ".join(unit))
    me = os.path.join(state, "confine.py")
    os.execvp(args[0], args + ["--", "/usr/bin/python3", me, "--filters", repr(stage2)] + command)


main()
