"""See README.md."""
from bench import data, harness


def run(options):
    _, dataset, _ = data.repeated(options, 300)
    runs = [harness.run_json(options, "bench.tasks.epoch_end.measure", "--dataset", dataset) for _ in range(options.repeats)]
    for run in runs:
        run["difference_ms"] = run["across_ms"] - run["inside_ms"]
    return [
        harness.median_row("a step inside an epoch", "ms", runs, "inside_ms"),
        harness.median_row("the step across its end", "ms", runs, "across_ms"),
        harness.median_row("difference", "ms", runs, "difference_ms", "≤ 1 ms", lambda value: value <= 1),
    ]
