#include "server/rpc/rpc_client.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/headrace.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "server/unix_socket.h"

namespace headrace {
namespace {

// One call: `method` of `stub`, its answer or its error.
template <class Stub, class Request, class Answer>
absl::StatusOr<Answer> Call(Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Answer*),
                            const Request& request, int timeout_ms) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
  Answer answer;
  const grpc::Status status = (stub->*method)(&context, request, &answer);
  if (status.ok()) return answer;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

ServiceStats ToStats(const v1::Stats& from) {
  ServiceStats stats;
  stats.version = from.version();
  stats.pid = from.pid();
  stats.uptime_s = from.uptime_s();
  stats.cpu_seconds = from.cpu_seconds();
  PipelineStats& p = stats.pipeline;
  p.simd_target = from.simd_target();
  p.decode_threads = from.decode_threads();
  p.threads_in_use = from.threads_in_use();
  p.host_memory_bytes = from.host_memory_bytes();
  p.host_memory_used = from.host_memory_used();
  p.samples = from.samples();
  p.batches = from.batches();
  p.bad_samples = from.bad_samples();
  p.bytes_read = from.bytes_read();
  p.decode_ns = static_cast<uint64_t>(from.decode_seconds() * 1e9);
  for (const v1::Session& session : from.sessions()) {
    SessionStats s;
    s.id = session.id();
    s.dataset = session.dataset();
    s.rank = session.rank();
    s.world_size = session.world_size();
    s.batches = session.batches();
    s.samples = session.samples();
    s.bad_samples = session.bad_samples();
    s.decode_ns = static_cast<uint64_t>(session.decode_seconds() * 1e9);
    s.slots = session.slots();
    s.slots_ready = session.slots_ready();
    s.ring_bytes = session.ring_bytes();
    s.cursor = {session.epoch(), session.position()};
    stats.sessions.push_back({std::move(s), session.pid(), session.uid()});
  }
  return stats;
}

}  // namespace

using Remote = v1::Headrace::Stub;

struct RpcClient::Channel {
  std::unique_ptr<Remote> calls;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

RpcClient::RpcClient(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
RpcClient::~RpcClient() = default;

absl::StatusOr<std::unique_ptr<RpcClient>> RpcClient::Connect(const std::string& socket) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTo(socket + ".grpc"));
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, socket);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateInsecureChannelFromFd("headrace", fd.release());
  auto parts = std::make_unique<Channel>();
  parts->calls = v1::Headrace::NewStub(channel);
  parts->health = grpc::health::v1::Health::NewStub(channel);
  return std::unique_ptr<RpcClient>(new RpcClient(std::move(parts)));
}

absl::StatusOr<ServiceStats> RpcClient::Stats(int timeout_ms) {
  HEADRACE_ASSIGN_OR_RETURN(const v1::Stats answer,
                            Call(channel_->calls.get(), &Remote::GetStats, v1::GetStatsRequest(), timeout_ms));
  return ToStats(answer);
}

absl::StatusOr<std::string> RpcClient::Describe(const std::string& dataset, int timeout_ms) {
  v1::DescribeRequest request;
  request.set_dataset(dataset);
  HEADRACE_ASSIGN_OR_RETURN(const v1::Description answer, Call(channel_->calls.get(), &Remote::Describe, request, timeout_ms));
  nlohmann::json fields = nlohmann::json::array();
  for (const v1::Description::Field& field : answer.fields()) {
    fields.push_back({{"name", field.name()}, {"kind", field.kind()}, {"max_bytes", field.max_bytes()}});
  }
  nlohmann::json classes = nlohmann::json::array();
  for (const std::string& name : answer.classes()) classes.push_back(name);
  return nlohmann::json({{"path", answer.path()},
                         {"hash", answer.hash()},
                         {"size", answer.size()},
                         {"fields", fields},
                         {"classes", classes},
                         {"shards", answer.shards()},
                         {"order_version", answer.order_version()},
                         {"pixel_version", answer.pixel_version()}})
      .dump();
}

absl::StatusOr<std::string> RpcClient::Audit(const std::string& spec_json, const Cursor& start, uint64_t step,
                                             int timeout_ms) {
  v1::AuditRequest request;
  request.set_spec_json(spec_json);
  request.set_epoch(start.epoch);
  request.set_position(start.position);
  request.set_step(step);
  HEADRACE_ASSIGN_OR_RETURN(const v1::AuditAnswer answer, Call(channel_->calls.get(), &Remote::Audit, request, timeout_ms));
  return answer.json();
}

absl::Status RpcClient::CloseSession(uint64_t id, int timeout_ms) {
  v1::CloseSessionRequest request;
  request.set_id(id);
  return Call(channel_->calls.get(), &Remote::CloseSession, request, timeout_ms).status();
}

absl::Status RpcClient::Shutdown(const std::string& reason, int timeout_ms) {
  v1::ShutdownRequest request;
  request.set_reason(reason);
  return Call(channel_->calls.get(), &Remote::Shutdown, request, timeout_ms).status();
}

absl::Status RpcClient::CheckHealth(int timeout_ms) {
  using grpc::health::v1::HealthCheckResponse;
  HEADRACE_ASSIGN_OR_RETURN(const HealthCheckResponse answer,
                            Call(channel_->health.get(), &grpc::health::v1::Health::Stub::Check,
                                 grpc::health::v1::HealthCheckRequest(), timeout_ms));
  if (answer.status() == HealthCheckResponse::SERVING) return absl::OkStatus();
  return absl::UnavailableError("the daemon says that it is not serving");
}

}  // namespace headrace
