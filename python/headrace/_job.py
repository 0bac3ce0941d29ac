"""What a process knows about the job it belongs to: rank, world size, and a name that the job's ranks on this node share.

torch is never imported here; it is asked only where the script has imported it already.
"""

import os
import sys
import uuid
import warnings

from headrace import errors

_own_suffix = uuid.uuid4().hex[:12]  # kept by forked children: they join the daemon of their parent
_own_pid = os.getpid()


def distributed():
    """torch.distributed if a process group is initialised, else None."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "distributed", None)
    if module is not None and module.is_available() and module.is_initialized():
        return module
    return None


def rank_and_world_size(rank, world_size):
    """What was given, else torch.distributed's, else 0 and 1."""
    group = distributed()
    if group is not None:
        rank = group.get_rank() if rank is None else rank
        world_size = group.get_world_size() if world_size is None else world_size
    elif rank is None and world_size is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        warnings.warn(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']} but torch.distributed is not initialised and neither rank nor "
            "world_size is given: every rank gets all samples. Make the loader after init_process_group.",
            stacklevel=4,
        )
    rank, world_size = rank or 0, 1 if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise errors.InvalidArgumentError(f"rank {rank} is not in 0…{world_size - 1} (world_size={world_size})")
    return int(rank), int(world_size)


def _store():
    """The job's key-value store, or None. The accessor is private in torch, so its absence is no error."""
    group = distributed()
    if group is None:
        return None
    try:
        store = group.distributed_c10d._get_default_store()
        return store if hasattr(store, "compare_set") else None
    except (AttributeError, RuntimeError, ValueError):
        return None


def _agree(store, key, value):
    """The value that the first rank proposed under this key."""
    answer = store.compare_set(key, "", value)
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _node():
    """One node as its ranks see it: ranks that differ in one of these cannot share a daemon."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = os.uname().nodename
    spaces = [os.readlink(f"/proc/self/ns/{kind}").strip("[]").split("[")[-1] for kind in ("net", "mnt")]
    return f"{boot}/{'/'.join(spaces)}/{os.getuid()}"


def private_name():
    """The abstract socket of this job's private daemon on this node, and its grace in ms after the last connection."""
    store = _store()
    if store is not None:
        name = _agree(store, f"headrace/daemon/{_node()}", uuid.uuid4().hex)
        return f"@headrace-{os.getuid()}-{name}", 2000
    environment = os.environ
    if environment.get("MASTER_ADDR") and environment.get("MASTER_PORT") and int(environment.get("WORLD_SIZE") or 1) > 1:
        parts = [_node(), environment.get("TORCHELASTIC_RUN_ID", ""), environment["MASTER_ADDR"]]
        key = "/".join([*parts, environment["MASTER_PORT"]])
        return f"@headrace-{os.getuid()}-{uuid.uuid5(uuid.NAMESPACE_URL, key).hex}", 2000
    return f"@headrace-{os.getuid()}-{_own_pid}-{_own_suffix}", 0


def compare_dataset(path, dataset_hash):
    """Raises unless every rank that opens this path sees the same dataset."""
    store = _store()
    if store is None:
        return
    try:
        first = _agree(store, f"headrace/dataset/{path}", dataset_hash)
    except RuntimeError as error:  # the store's host has left
        raise errors.DaemonError(f"the job's store does not answer (dataset {path}): {error}") from error
    if first != dataset_hash:
        raise errors.DatasetChangedError(
            f"dataset {path} differs between ranks: here it is {dataset_hash}, another rank opened {first}"
        )
