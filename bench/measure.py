"""Measuring a process and everything it has started. Uses the standard library only: rivals' environments have nothing else."""
import argparse
import ctypes
import json
import os
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes daemons that detach themselves children of this process, so that their CPU time is counted too."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read_stat(pid):
    """(parent, CPU seconds with those of its dead children) of a process; None when it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = sum(int(x) for x in fields[11:15])  # utime, stime, cutime, cstime
    return int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")


def descendants(root):
    """Process ids of `root` and everything below it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(name)):
            parents.setdefault(stat[0], []).append(int(name))
    tree, queue = [], [root]
    while queue:
        pid = queue.pop()
        tree.append(pid)
        queue += parents.get(pid, [])
    return tree


def tree_cpu_seconds(root=None):
    """CPU seconds of a process (this one) and everything below it. Exact to 10 ms."""
    stats = [read_stat(pid) for pid in descendants(root or os.getpid())]
    return sum(stat[1] for stat in stats if stat)


def rival_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", required=True, help="CSV file: path,label")
    parser.add_argument("--dataset", help="the same files, packed by Headrace")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warm-up", type=int, required=True, help="batches that are not counted")
    parser.add_argument("--batches", type=int, required=True, help="batches that are")
    parser.add_argument("--summary", action="store_true", help="print shape, mean and deviation of a few batches instead")
    return parser.parse_args()


def measure_batches(batches, arguments):
    """Iterates `batches` of images; prints what one rival's run took as one line of JSON, or the summary of its output."""
    iterator = iter(batches)
    if arguments.summary:
        first = next(iterator)
        mean = [float(first[:, c].mean()) for c in range(3)]
        deviation = [float(first[:, c].std()) for c in range(3)]
        print(json.dumps({"shape": list(first.shape), "dtype": str(first.dtype).split(".")[-1], "mean": mean,
                          "deviation": deviation}))
        return
    for _ in range(arguments.warm_up):
        next(iterator)
    images, cpu, start = 0, tree_cpu_seconds(), time.perf_counter()
    for _ in range(arguments.batches):
        images += len(next(iterator))
    seconds = time.perf_counter() - start
    cpu = tree_cpu_seconds() - cpu
    print(json.dumps({"images": images, "seconds": seconds, "cpu_seconds": cpu, "images_per_s": images / seconds,
                      "cpu_s_per_1000": cpu / images * 1000}))


def train_transform(hr):
    """The transform of ImageNet training scripts."""
    return [hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize()]
