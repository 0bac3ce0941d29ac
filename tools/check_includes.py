#!/usr/bin/env python3
"""Checks who includes what: dependencies point one way, and a third-party header appears only where it may.

    tools/check_includes.py [ROOT]

Prints one line per violation and exits with 1 if there is any. The rules are the three tables below.
"""
import re
import sys
from pathlib import Path

# The stages of core/, each of which may include those before it.
STAGES = ["base", "shard", "read", "decode", "augment", "device", "batch", "slot", "pipeline"]
CORE = [f"core/{stage}/" for stage in STAGES]

# Folder → what of ours it may include besides itself. The longest matching folder counts.
OURS = {
    **{folder: CORE[:i] for i, folder in enumerate(CORE)},
    # The form of the entry data stands on the base alone: shards store it, decoders use it.
    "core/decode/entry/": CORE[:1],
    "core/shard/": [*CORE[:1], "core/decode/entry/"],
    "client/": ["core/slot/slot_layout.h"],
    "server/": [*CORE, "client/protocol.h", "proto/"],
    "packer/": CORE[:4],
    "cli/": [*CORE, "server/", "packer/", "client/", "proto/"],
    "tests/": [*CORE, "server/", "packer/", "client/", "cli/", "proto/"],
    "bench/": [*CORE, "server/", "packer/", "client/", "proto/", "tests/support/"],
}

# Third-party header → folders that may include it, in headers too.
THIRD_PARTY = {
    r"lmdb\.h": ["core/shard/lmdb/", "tests/"],
    r"(jpeglib|jerror|jmorecfg|turbojpeg|jpegint)\.h": ["core/decode/jpeg/", "tests/", "bench/"],
    r"(png|zlib)\.h": ["core/decode/png/", "tests/", "bench/"],
    r"tiff(io)?\.h": ["core/decode/tiff/", "tests/"],
    r"dav1d/.*": ["core/decode/avif/", "tests/"],
    r"webp/.*": ["core/decode/webp/", "tests/"],
    r"hwy/.*": ["core/decode/", "core/augment/", "tests/", "bench/"],
    r"(cuda|nvrtc|nvjpeg).*\.h": ["core/device/cuda/", "core/augment/gpu/", "client/cuda/", "tests/", "bench/"],
    r"(grpc|grpcpp|google/protobuf)/.*|proto/.*\.pb\.h": ["server/rpc/", "cli/", "tests/"],
    r"boost/.*": ["server/loop/", "tests/server/"],
    r"prometheus/.*": ["server/metrics/", "tests/server/"],
    r"spdlog/.*": ["server/", "cli/"],
    r"toml\+\+/.*": ["server/"],
    r"CLI/.*": ["cli/", "packer/"],
    r"absl/.*": ["core/", "server/", "packer/", "cli/", "tests/", "bench/"],
    r"(gtest|gmock)/.*": ["tests/"],
    r"benchmark/.*": ["bench/"],
}
# May be used in any source file, but in headers only outside the core; never in the client.
IN_SOURCES = {r"nlohmann/.*", r"xxhash\.h"}

# Of the C and C++ libraries and the kernel: anything else with a .h is somebody's library.
SYSTEM_HEADERS = re.compile(
    r"[a-z_0-9]+|(sys|linux|netinet|arpa|net|asm|asm-generic)/[a-z_0-9]+\.h|(x86|imm|xmm|emm|zmm|nmm|arm_)[a-z]+\.h|"
    r"(aio|cpuid|ctype|dirent|dlfcn|elf|errno|fcntl|float|fnmatch|ftw|getopt|glob|grp|inttypes|libgen|limits|link|locale|"
    r"malloc|math|memory|netdb|poll|pthread|pwd|sched|semaphore|setjmp|signal|spawn|stdarg|stdatomic|stdbool|stddef|stdint|"
    r"stdio|stdlib|string|strings|syslog|termios|time|ucontext|unistd|utime|wchar)\.h")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def allowed_of_ours(path, header):
    folder = max((f for f in OURS if path.startswith(f)), key=len, default=None)
    if folder is None:
        return False
    return any(header.startswith(prefix) for prefix in [folder, *OURS[folder]])


def violation(path, header):
    """What is wrong with `path` including `header`, or None."""
    if header.startswith("hwy/") and any(path.startswith(f) for f in THIRD_PARTY[r"hwy/.*"]):
        return None
    for pattern in IN_SOURCES:
        if re.fullmatch(pattern, header):
            if path.startswith("client/"):
                return f"the client includes {header}"
            if path.endswith(".h") and path.startswith("core/"):
                return f"a header of the core includes {header}; use it in a .cc"
            return None
    for pattern, folders in THIRD_PARTY.items():
        if re.fullmatch(pattern, header):
            return None if any(path.startswith(f) for f in folders) else f"{header} only in {', '.join(folders)}"
    if any(header.startswith(folder.split("/")[0] + "/") for folder in OURS):
        return None if allowed_of_ours(path, header) else f"{header} is not before this folder in the data's way"
    if SYSTEM_HEADERS.fullmatch(header):
        return None
    return f"{header} is neither ours, the system's nor a library that tools/check_includes.py knows"


def check(root):
    """All violations below `root`, as lines "file:line: reason"."""
    found = []
    for top in sorted({folder.split("/")[0] for folder in OURS}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".c", ".cu", ".cuh"):
                continue
            path = file.relative_to(root).as_posix()
            lines = file.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                reason = match and violation(path, match.group(1) or match.group(2))
                if reason:
                    found.append(f"{path}:{number}: {reason}")
            guarded = any(line == "#pragma once" or line.startswith("#ifndef HEADRACE_") for line in lines)
            if file.suffix == ".h" and not guarded and "-inl" not in file.name:
                found.append(f"{path}:1: no #pragma once")
    return found


if __name__ == "__main__":
    problems = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
    print("\n".join(problems) if problems else "includes are in order")
    sys.exit(bool(problems))
