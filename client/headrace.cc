// The C interface: checks arguments, keeps the thread's last error, and guards against use in
// forked children.
#include "client/headrace.h"

#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string>

#include "client/connect.h"
#include "client/control.h"
#include "client/session.h"
#include "client/status.h"
#include "client/tensor.h"

using headrace::client::Control;
using headrace::client::Deadline;
using headrace::client::Error;
using headrace::client::Ring;
using headrace::client::Session;
using headrace::client::Status;

struct hr_client {
  std::shared_ptr<Control> control;
};
struct hr_session {
  Session session;
};

namespace {

hr_python_functions g_python = {};
constexpr char kDlTensor[] = "dltensor";  // a capsule keeps the address of its name

void DestroyCapsule(void* capsule) {
  // A consumer renames the capsule ("used_dltensor"): then the tensor is the consumer's.
  if (!g_python.PyCapsule_IsValid(capsule, kDlTensor)) return;
  auto* managed =
      static_cast<hr_dl_managed_tensor*>(g_python.PyCapsule_GetPointer(capsule, kDlTensor));
  managed->deleter(managed);
}

std::string& LastError() {
  thread_local std::string message;
  return message;
}

int Return(Status status) {
  if (!status.ok()) LastError() = std::move(status.message);
  return status.code;
}

int Invalid(const char* what) { return Return(Error(HR_INVALID_ARGUMENT, what)); }

int ForeignProcess() {
  return Return(Error(HR_FAILED_PRECONDITION,
                      "this client was opened before a fork; a forked process must open its own"));
}

bool IsOurs(const Control& control) {
  return headrace::client::IsCurrentProcess(control.process());
}
bool IsOurs(const Session& session) {
  return headrace::client::IsCurrentProcess(session.process());
}

bool IsHash(const char* text) {
  const size_t length = strlen(text);
  return length == 32 && strspn(text, "0123456789abcdef") == length;
}

}  // namespace

const char* hr_last_error(void) { return LastError().c_str(); }
const char* hr_version(void) { return HEADRACE_VERSION; }

int hr_client_open(const hr_connect_options* options, int timeout_ms, hr_client** out) {
  if (out == nullptr || options == nullptr || options->socket == nullptr)
    return Invalid("a null argument");
  *out = nullptr;
  if (timeout_ms < 0 || options->grace_ms < 0) return Invalid("a negative time");
  headrace::client::ConnectOptions connect;
  connect.address = options->socket;
  Status status = headrace::client::CheckAddress(connect.address);
  if (!status.ok()) return Return(std::move(status));
  if (options->executable != nullptr) {
    if (!headrace::client::IsAbstract(connect.address))
      return Invalid("a private daemon's socket must be abstract (@name)");
    if (*options->executable == '\0') return Invalid("the daemon's executable is empty");
    connect.private_daemon.executable = options->executable;
    connect.private_daemon.grace_ms = options->grace_ms;
    for (const char* const* argument = options->arguments;
         argument != nullptr && *argument != nullptr; ++argument) {
      connect.private_daemon.arguments.emplace_back(*argument);
    }
  }
  auto control = std::make_shared<Control>(std::move(connect));
  status = control->Establish(Deadline::AfterMs(timeout_ms));
  if (!status.ok()) return Return(std::move(status));
  *out = new hr_client{std::move(control)};
  return HR_OK;
}

void hr_client_close(hr_client* client) {
  if (client == nullptr || !IsOurs(*client->control))
    return;  // a child leaves its parent's as they are
  client->control->Close();
  delete client;
}

int hr_request(hr_client* client, uint32_t type, const char* json, int timeout_ms, char** answer,
               int* fd) {
  if (client == nullptr || json == nullptr || answer == nullptr) return Invalid("a null argument");
  *answer = nullptr;
  if (fd != nullptr) *fd = -1;
  if (timeout_ms < 0) return Invalid("a negative time");
  if ((type < HR_DESCRIBE || type > HR_AUDIT) && type != HR_DEVICE_MEMORY)
    return Invalid("not a request of JSON (DESCRIBE, SAMPLE, STATS, AUDIT, DEVICE_MEMORY)");
  if (!IsOurs(*client->control)) return ForeignProcess();
  std::string body;
  headrace::client::Descriptor descriptor;
  Status status = client->control->Request(type, json, strlen(json), /*retry=*/true,
                                           Deadline::AfterMs(timeout_ms), &body, &descriptor);
  if (!status.ok()) return Return(std::move(status));
  char* copy = static_cast<char*>(malloc(body.size() + 1));
  if (copy == nullptr) return Return(Error(HR_RESOURCE_EXHAUSTED, "no memory for an answer"));
  memcpy(copy, body.c_str(), body.size() + 1);
  *answer = copy;
  if (fd != nullptr) *fd = descriptor.Release();
  return HR_OK;
}

void hr_free(void* memory) { free(memory); }

int hr_session_open(hr_client* client, const char* spec_json, const char* dataset_hash,
                    uint64_t epoch, uint64_t position, int timeout_ms, hr_session** out) {
  if (client == nullptr || spec_json == nullptr || out == nullptr)
    return Invalid("a null argument");
  *out = nullptr;
  if (timeout_ms < 0) return Invalid("a negative time");
  if (dataset_hash != nullptr && !IsHash(dataset_hash))
    return Invalid("a dataset hash has 32 hex digits");
  if (!IsOurs(*client->control)) return ForeignProcess();
  headrace::client::ReapRetired();
  auto session = std::unique_ptr<hr_session>(new hr_session{Session(
      client->control, spec_json, dataset_hash != nullptr ? dataset_hash : "", {epoch, position})});
  Status status = session->session.Open(Deadline::AfterMs(timeout_ms));
  if (!status.ok()) return Return(std::move(status));
  *out = session.release();
  return HR_OK;
}

void hr_session_close(hr_session* session) {
  if (session == nullptr || !IsOurs(session->session)) return;
  delete session;
}

const hr_open_answer* hr_session_info(const hr_session* session) {
  return &session->session.info();
}

int hr_session_next(hr_session* session, hr_batch* batch, int timeout_ms) {
  if (session == nullptr || batch == nullptr) return Invalid("a null argument");
  if (timeout_ms < 0) return Invalid("a negative time");
  if (!IsOurs(session->session)) return ForeignProcess();
  return Return(session->session.Next(batch, Deadline::AfterMs(timeout_ms)));
}

int hr_session_try_next(hr_session* session, hr_batch* batch, uint32_t max_fields) {
  if (session == nullptr || batch == nullptr || !IsOurs(session->session)) return 0;
  Status status;
  const bool taken = session->session.TryNext(max_fields, batch, &status);
  return Return(std::move(status)) != HR_OK ? -1 : taken;
}

int hr_session_wait(hr_session* session, int timeout_ms) {
  if (session == nullptr) return Invalid("a null argument");
  if (timeout_ms < 0) return Invalid("a negative time");
  if (!IsOurs(session->session)) return ForeignProcess();
  return Return(session->session.Next(nullptr, Deadline::AfterMs(timeout_ms)));
}

void hr_session_lease_all(hr_session* session) { session->session.LeaseAll(); }

hr_ring* hr_session_hold_ring(hr_session* session) {
  return IsOurs(session->session) ? reinterpret_cast<hr_ring*>(session->session.HoldRing())
                                  : nullptr;
}

void hr_ring_release(hr_ring* ring) {
  auto* held = reinterpret_cast<Ring*>(ring);
  if (held == nullptr || !headrace::client::IsCurrentProcess(held->process())) return;
  held->Unhold();
  headrace::client::ReapRetired();
}

void* hr_ring_released_word(hr_ring* ring, uint32_t slot) {
  return reinterpret_cast<Ring*>(ring)->ReleasedWord(slot);
}

int hr_session_seek(hr_session* session, uint64_t epoch, uint64_t position, int timeout_ms) {
  if (session == nullptr) return Invalid("a null argument");
  if (timeout_ms < 0) return Invalid("a negative time");
  if (!IsOurs(session->session)) return ForeignProcess();
  return Return(session->session.Seek({epoch, position}, Deadline::AfterMs(timeout_ms)));
}

void hr_session_get_stats(const hr_session* session, hr_session_stats* out) {
  *out = session->session.stats();
}

void hr_set_python_functions(const hr_python_functions* functions) { g_python = *functions; }

void* hr_session_try_next_capsules(hr_session* session, hr_batch* batch, uint32_t max_fields,
                                   void* convert) {
  const int taken = hr_session_try_next(session, batch, max_fields);
  if (taken < 0) return g_python.PyErr_NoMemory();
  const uint32_t num_fields = taken ? batch->num_fields : 0;
  void* tuple = g_python.PyTuple_New(num_fields);
  for (uint32_t i = 0; i < num_fields; ++i) {
    void* item =
        tuple ? g_python.PyCapsule_New(batch->fields[i], kDlTensor, DestroyCapsule) : nullptr;
    if (item == nullptr) {
      batch->fields[i]->deleter(batch->fields[i]);
    } else if (convert != nullptr) {
      void* capsule = item;
      item = g_python.PyObject_CallFunctionObjArgs(convert, capsule, nullptr);
      g_python.Py_DecRef(capsule);
    }
    if (item != nullptr) {
      g_python.PyTuple_SetItem(tuple, i, item);
    } else if (tuple != nullptr) {
      g_python.Py_DecRef(tuple);
      tuple = nullptr;
    }
  }
  return tuple;
}

void hr_shutdown(void) { headrace::client::ShutDown(); }
