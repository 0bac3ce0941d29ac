"""The client library under sanitizers in the ranks of a torchrun job, whose daemon is killed again and again. $HEADRACE_ASAN_LIBRARY and
$HEADRACE_TSAN_LIBRARY name libheadrace.so as the presets asan and tsan build it; tools/test.sh does."""

import json
import os
import subprocess

import pytest
from test_training_jobs import JOB

PREFIX = """
import os, sys
if "libheadrace_sanitizer" not in os.environ:  # the ranks only, with addresses that gcc 12's thread sanitizer can have
    os.environ["libheadrace_sanitizer"] = os.environ["LD_PRELOAD"] = os.environ["SANITIZER"]
    os.execvp("setarch", ["setarch", "-R", sys.executable, *sys.argv])
assert os.path.basename(os.environ["SANITIZER"]).split(".")[0] in open("/proc/self/maps").read()
"""


@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_ranks_that_kill_their_daemon_break_no_rule_of_memory_or_threads(dataset, script, tmp_path, sanitizer):
    library = os.environ.get(f"HEADRACE_{sanitizer.upper()}_LIBRARY")
    if not library:
        pytest.skip(f"HEADRACE_{sanitizer.upper()}_LIBRARY is not set: tools/test.sh builds it")
    runtime = subprocess.run(["gcc", f"-print-file-name=lib{sanitizer}.so"], capture_output=True, text=True, check=True).stdout.strip()
    options = f"log_path={tmp_path}/report:exitcode=0"
    environment = {
        "HEADRACE_LIBRARY": library, "SANITIZER": runtime, "TSAN_OPTIONS": options,
        "ASAN_OPTIONS": options + ":detect_leaks=0", "UBSAN_OPTIONS": options + ":print_stacktrace=1",
    }  # fmt: skip
    ranks = json.loads(script(PREFIX + JOB, dataset, env=environment, torchrun=2).finish(300).splitlines()[-1])
    assert sum(kills for _, _, kills, _ in ranks) >= 3
    for epoch in range(3):
        assert sorted(i for epochs, *_ in ranks for i in epochs[epoch]) == list(range(131))
    # Those of torch's own threads, which no compiler has prepared for this, are not ours.
    reports = [path.read_text() for path in tmp_path.glob("report.*")]
    assert not [report for report in reports if "libheadrace" in report]
