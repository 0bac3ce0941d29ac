/* A training loop's reading side in plain C.
 *
 *   cc c_client.c -I… -lheadrace -o c_client
 *   c_client /run/headrace/headrace.sock SPEC [BATCHES]      somebody's daemon
 *   c_client @my-job SPEC [BATCHES] /path/to/headrace        a private one, started if it does not run
 *
 * SPEC is a session's JSON (docs/protocol.md), for instance
 *   '{"dataset": "/data/train", "batch_size": 128, "transform": [{"name": "RandomResizedCrop", "size": 224}]}'
 * Prints the cursor of every batch, how long the daemon let us wait, and a line at the end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/headrace.h"

#define TIMEOUT_MS 60000

static volatile sig_atomic_t interrupted;
static void on_interrupt(int number) {
  (void)number;
  interrupted = 1;
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, hr_last_error());
  return 1;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print_batch(const hr_batch* batch) {
  printf("epoch %llu, position %llu: %u samples;", (unsigned long long)batch->epoch,
         (unsigned long long)batch->position, batch->length);
  for (uint32_t i = 0; i < batch->num_fields; ++i) {
    const hr_dl_tensor* tensor = &batch->fields[i]->dl_tensor;
    printf(" [");
    for (int32_t d = 0; d < tensor->ndim; ++d) printf(d ? " × %lld" : "%lld", (long long)tensor->shape[d]);
    printf("]");
  }
  printf("\n");
}

/* A consumer calls each deleter once, when it is done with that tensor; on any thread, in any order. */
static void drop(hr_batch* batch) {
  for (uint32_t i = 0; i < batch->num_fields; ++i) batch->fields[i]->deleter(batch->fields[i]);
}

static int train(hr_session* session, long batches) {
  const double start = seconds();
  unsigned long long samples = 0;
  for (long taken = 0; taken < batches && !interrupted;) {
    hr_batch batch;
    const int code = hr_session_next(session, &batch, TIMEOUT_MS);
    if (code == HR_INTERRUPTED) continue; /* our handler ran: look at `interrupted` */
    if (code == HR_BAD_SAMPLE) {          /* the next call goes on behind it */
      fprintf(stderr, "bad batch: %s\n", hr_last_error());
      continue;
    }
    if (code != HR_OK) return fail("next");
    print_batch(&batch);
    samples += batch.length;
    ++taken;
    drop(&batch);
  }
  hr_session_stats stats;
  hr_session_get_stats(session, &stats);
  printf("%llu samples in %.3f s, %.3f s of them waiting, %llu reconnections\n", samples, seconds() - start,
         1e-9 * (double)stats.waited_ns, (unsigned long long)stats.reconnections);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fprintf(stderr, "usage: %s SOCKET SPEC [BATCHES [EXECUTABLE]]\n", argv[0]);
    return 2;
  }
  signal(SIGINT, on_interrupt);
  const hr_connect_options options = {argv[1], argc > 4 ? argv[4] : NULL, NULL, 0};
  hr_client* client = NULL;
  if (hr_client_open(&options, TIMEOUT_MS, &client) != HR_OK) return fail("connect");
  hr_session* session = NULL;
  int status;
  if (hr_session_open(client, argv[2], NULL, 0, 0, TIMEOUT_MS, &session) != HR_OK) {
    status = fail("open");
  } else {
    status = train(session, argc > 3 ? atol(argv[3]) : 10);
  }
  hr_session_close(session);
  hr_client_close(client);
  return status;
}
