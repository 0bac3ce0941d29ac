"""See README.md."""
from bench import data, harness


def run(options):
    _, dataset, _ = data.repeated(options, 6000)
    runs = [harness.run_json(options, "bench.tasks.first_batch.measure", "--dataset", dataset)
            for _ in range(2 * options.repeats)]
    return [
        harness.median_row("DataLoader(...) to first batch of 128", "s", runs, "first_batch_s", "≤ 0.7 s",
                           lambda value: value <= 0.7),
        harness.median_row("of that, DataLoader(...)", "s", runs, "made_s"),
    ]
