#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/headrace.grpc.pb.h"
#include "server/request_json.h"
#include "server/stats_json.h"

namespace headrace {
namespace {

constexpr int kMaxThreads = 8;
constexpr int kMaxMessageBytes = 16 << 20;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// protobuf refuses to send a text that is not UTF-8; file names may be.
std::string Utf8(const std::string& text) {
  const std::string quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

void FillStats(const ServiceStats& stats, v1::Stats* out) {
  const PipelineStats& p = stats.pipeline;
  out->set_version(stats.version);
  out->set_pid(stats.pid);
  out->set_uptime_s(stats.uptime_s);
  out->set_simd_target(p.simd_target);
  out->set_engine(EngineName(stats.pipeline));
  out->set_decode_threads(p.decode_threads);
  out->set_threads_in_use(p.threads_in_use);
  out->set_host_memory_bytes(p.host_memory_bytes);
  out->set_host_memory_used(p.host_memory_used);
  out->set_samples(p.samples);
  out->set_batches(p.batches);
  out->set_bad_samples(p.bad_samples);
  out->set_bytes_read(p.bytes_read);
  out->set_decode_seconds(p.decode_ns * 1e-9);
  out->set_cpu_seconds(stats.cpu_seconds);
  for (const ServiceStats::Session& session : stats.sessions) {
    const SessionStats& s = session.stats;
    v1::Session* to = out->add_sessions();
    to->set_id(s.id);
    to->set_pid(session.pid);
    to->set_uid(session.uid);
    to->set_dataset(Utf8(s.dataset));
    to->set_rank(s.rank);
    to->set_world_size(s.world_size);
    to->set_batches(s.batches);
    to->set_samples(s.samples);
    to->set_bad_samples(s.bad_samples);
    to->set_decode_seconds(s.decode_ns * 1e-9);
    to->set_slots(s.slots);
    to->set_slots_ready(s.slots_ready);
    to->set_ring_bytes(s.ring_bytes);
    to->set_epoch(s.cursor.epoch);
    to->set_position(s.cursor.position);
  }
}

void FillDescription(const std::string& json, v1::Description* out) {
  const nlohmann::json from = nlohmann::json::parse(json);  // of our own making
  out->set_path(from["path"].get<std::string>());
  out->set_hash(from["hash"].get<std::string>());
  out->set_size(from["size"].get<uint64_t>());
  out->set_shards(from["shards"].get<uint32_t>());
  out->set_order_version(from["order_version"].get<uint32_t>());
  out->set_pixel_version(from["pixel_version"].get<uint32_t>());
  for (const nlohmann::json& field : from["fields"]) {
    v1::Description::Field* to = out->add_fields();
    to->set_name(field["name"].get<std::string>());
    to->set_kind(field["kind"].get<std::string>());
    to->set_max_bytes(field["max_bytes"].get<uint64_t>());
  }
  for (const nlohmann::json& name : from["classes"]) out->add_classes(name.get<std::string>());
}

class Calls final : public v1::Headrace::Service {
 public:
  Calls(headrace::Service* service, bool owner, std::function<void(const std::string&)> shutdown)
      : service_(*service), owner_(owner), shutdown_(std::move(shutdown)) {}

  grpc::Status GetStats(grpc::ServerContext*, const v1::GetStatsRequest*, v1::Stats* answer) override {
    FillStats(service_.Stats(), answer);
    return grpc::Status::OK;
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request, v1::Description* answer) override {
    const absl::StatusOr<std::string> json = service_.Describe(nlohmann::json({{"dataset", request->dataset()}}).dump());
    if (!json.ok()) return ToGrpc(json.status());
    FillDescription(*json, answer);
    return grpc::Status::OK;
  }

  grpc::Status Audit(grpc::ServerContext*, const v1::AuditRequest* request, v1::AuditAnswer* answer) override {
    const absl::StatusOr<nlohmann::json> spec = ParseObject(request->spec_json(), "spec_json");
    if (!spec.ok()) return ToGrpc(spec.status());
    const nlohmann::json body = {{"spec", *spec},
                                 {"epoch", request->epoch()},
                                 {"position", request->position()},
                                 {"step", request->step()}};
    const absl::StatusOr<std::string> json = service_.Audit(body.dump());
    if (!json.ok()) return ToGrpc(json.status());
    answer->set_json(*json);
    return grpc::Status::OK;
  }

  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::CloseSessionAnswer*) override {
    if (!owner_) return NotOwner();
    return ToGrpc(service_.HangUp(request->id()));
  }

  grpc::Status Shutdown(grpc::ServerContext*, const v1::ShutdownRequest* request, v1::ShutdownAnswer*) override {
    if (!owner_) return NotOwner();
    shutdown_(request->reason().empty() ? "the daemon was told to stop (Shutdown)" : request->reason());
    return grpc::Status::OK;
  }

 private:
  static grpc::Status NotOwner() {
    return {grpc::StatusCode::PERMISSION_DENIED, "only the daemon's own user and root may do this"};
  }

  headrace::Service& service_;
  const bool owner_;
  const std::function<void(const std::string&)> shutdown_;
};

}  // namespace

class RpcServer::Front {
 public:
  Front(Service* service, bool owner, std::function<void(const std::string&)> shutdown)
      : calls_(service, owner, std::move(shutdown)) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ResourceQuota quota("headrace");
    quota.SetMaxThreads(kMaxThreads);
    grpc::ServerBuilder builder;
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    builder.RegisterService(&calls_);
    server_ = builder.BuildAndStart();
  }

  ~Front() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void Serve(UniqueFd socket) {
    if (server_ != nullptr) grpc::AddInsecureChannelFromFd(server_.get(), socket.release());
  }

 private:
  Calls calls_;
  std::unique_ptr<grpc::Server> server_;
};

RpcServer::RpcServer(Service* service, std::function<void(const std::string&)> shutdown)
    : service_(service), shutdown_(std::move(shutdown)) {}
RpcServer::~RpcServer() = default;

void RpcServer::Serve(UniqueFd socket, const Peer& peer) {
  const bool owner = peer.uid == geteuid() || peer.uid == 0;
  std::unique_ptr<Front>& front = owner ? owners_ : guests_;
  if (front == nullptr) front = std::make_unique<Front>(service_, owner, shutdown_);
  front->Serve(std::move(socket));
}

}  // namespace headrace
