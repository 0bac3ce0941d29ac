"""See README.md."""
from bench import data, harness

MB = 1e6


def run(options):
    _, dataset, _ = data.repeated(options, 300)
    result = harness.run_json(options, "bench.tasks.daemon_memory.measure", "--dataset", dataset)
    memory, slots = result["memory_bytes"], result["slots_bytes"]
    above, growth = (max(memory) - slots) / MB, (memory[-1] - memory[24]) / MB
    return [
        harness.Row("largest RssAnon + RssShmem", max(memory) / MB, "MB", runs=[result]),
        harness.Row("of that above the slots", above, "MB", bar="≤ 150 MB", met=above <= 150),
        harness.Row("growth from epoch 25 to 50", growth, "MB", bar="≤ 10 MB", met=growth <= 10),
    ]
