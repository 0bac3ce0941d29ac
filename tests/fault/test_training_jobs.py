"""Deaths inside jobs: the daemon of a torchrun job, and one rank of it."""

import json
import os

from processes import wait_until

JOB = """
import json, os, random, signal, sys, time
import torch
import torch.distributed as dist
import headrace.torch as hr
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loader = hr.DataLoader(sys.argv[1], 3, True, transform=[hr.RandomResizedCrop(48)], return_index=True, last_batch="partial")
rng = random.Random(rank)
epochs, sums, kills, held = [], 0.0, 0, []
for epoch in range(3):
    got = []
    for step, (images, labels, index) in enumerate(loader):
        got += index.tolist()
        sums += images.double().sum().item()
        held.append((images, images.clone()))
        if len(held) > 2:
            view, copy = held.pop(rng.randrange(3))
            assert torch.equal(view, copy)
        if rng.random() < 0.1:
            try:
                os.kill(loader.stats()["daemon_pid"], signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass                                   # another rank was faster
    epochs.append(got)
dist.barrier()                                         # nobody kills any more
everything = [None] * world
dist.all_gather_object(everything, (epochs, sums, kills, loader.stats()["daemon_pid"]))
if rank == 0:
    print(json.dumps(everything))
dist.barrier()
dist.destroy_process_group()
"""


def test_ranks_that_kill_their_jobs_daemon_again_and_again_lose_nothing_and_get_nothing_twice(dataset, script):
    disturbed = json.loads(script(JOB, dataset, torchrun=3).finish(300).splitlines()[-1])
    peaceful = JOB.replace("rng.random() < 0.1", "False")
    calm = json.loads(script(peaceful, dataset, torchrun=3).finish(300).splitlines()[-1])
    assert sum(kills for _, _, kills, _ in disturbed) >= 5
    assert [(epochs, sums) for epochs, sums, *_ in disturbed] == [(epochs, sums) for epochs, sums, *_ in calm]
    for epoch in range(3):
        assert sorted(i for epochs, *_ in disturbed for i in epochs[epoch]) == list(range(131))
    assert len({pid for *_, pid in disturbed}) == 1  # one daemon again
    pid = disturbed[0][3]
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the end of the job's daemon")


RANK = """
import os, sys, time
import headrace.torch as hr
rank = int(os.environ["RANK"])
loader = hr.DataLoader(sys.argv[1], 3, True, transform=[hr.RandomResizedCrop(48)], return_index=True,
                       rank=rank, world_size=2, last_batch="partial")
iterator = iter(loader)
next(iterator)
pid = loader.stats()["daemon_pid"]
print(rank, pid, flush=True)
if rank == 0:                                  # the one that most likely started it
    time.sleep(1)
    os.kill(os.getpid(), 9)
time.sleep(3)
rest = list(iterator)
assert len(rest) == len(loader) - 1 and loader.stats()["daemon_pid"] == pid
print("rank 1 done", flush=True)
"""


def test_a_rank_that_dies_leaves_the_daemon_to_the_others(dataset, script):
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(40000 + os.getpid() % 20000)}
    first, second = (script(RANK, dataset, env={**job, "RANK": str(rank)}) for rank in range(2))
    assert first.line().split()[1] == second.line().split()[1]
    assert first.process.wait(60) == -9
    assert "rank 1 done" in second.finish()
