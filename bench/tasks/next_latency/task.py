"""See README.md."""
from bench import data, harness


def run(options):
    _, dataset, _ = data.repeated(options, 6900)  # 420 batches of 16
    runs = [harness.run_json(options, "bench.tasks.next_latency.measure", "--dataset", dataset)
            for _ in range(options.repeats)]
    copied = sum(run["copied"] for run in runs)
    return [
        harness.median_row("next(), a batch ready", "µs", runs, "median_us", "≤ 10 µs", lambda value: value <= 10),
        harness.median_row("the same, 99th percentile", "µs", runs, "p99_us"),
        harness.median_row("next() after 40 ms of other work", "µs", runs, "after_work_us"),
        harness.median_row("torch.empty(1) after 40 ms of other work", "µs", runs, "torch_empty_us"),
        harness.Row("batches whose images were copied", copied, "", bar="0", met=copied == 0),
    ]
