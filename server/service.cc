#include "server/service.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/request_json.h"
#include "server/session_spec_json.h"
#include "server/stats_json.h"

namespace headrace {
namespace {

void CopyText(const std::string& text, char* out, size_t size) {
  std::memset(out, 0, size);
  std::memcpy(out, text.data(), std::min(text.size(), size - 1));
}

absl::Status CheckPosition(const Dataset& dataset, uint64_t position) {
  if (position <= dataset.size()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("position ", position, " lies behind the ", dataset.size(), " samples of ", dataset.dir()));
}

absl::StatusOr<hr_open_answer> MakeAnswer(const Session& session) {
  const SessionSpec& spec = session.spec();
  const BatchLayout& layout = session.layout();
  hr_open_answer answer = {};
  answer.session_id = session.id();
  answer.dataset_size = spec.dataset->size();
  CopyText(spec.dataset->hash(), answer.dataset_hash, sizeof(answer.dataset_hash));
  answer.order_version = kOrderVersion;
  answer.pixel_version = kPixelVersion;
  answer.num_slots = static_cast<uint32_t>(session.ring().num_slots());
  answer.first_ticket = session.first_ticket();
  answer.batch_size = static_cast<uint32_t>(spec.batch_size);
  answer.slot_bytes = session.ring().slot_bytes();
  answer.memfd_bytes = session.ring().total_bytes();
  answer.error_offset = layout.error_offset;
  answer.device_slot_bytes = layout.device_slot_bytes;
  answer.may_change = spec.engine == Engine::kAuto;
  if (layout.device_field > 0) answer.device_field = static_cast<uint32_t>(layout.device_field);
  if (layout.fields.size() > HR_MAX_FIELDS) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", HR_MAX_FIELDS - 1, " fields"));
  }
  answer.num_fields = static_cast<uint32_t>(layout.fields.size());
  std::copy(layout.fields.begin(), layout.fields.end(), answer.fields);
  return answer;
}

// At most max_bad different ones: what a session counts never grows beyond it.
absl::StatusOr<std::vector<uint64_t>> ReadCountedBad(const nlohmann::json& request, const SessionSpec& spec) {
  std::vector<uint64_t> samples;
  if (!request.contains("counted_bad")) return samples;
  const nlohmann::json& list = request["counted_bad"];
  const auto is_sample = [&](const nlohmann::json& n) {
    return n.is_number_unsigned() && n.get<uint64_t>() < spec.dataset->size();
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_sample)) {
    return absl::InvalidArgumentError("counted_bad is not a list of samples");
  }
  samples = list.get<std::vector<uint64_t>>();
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  if (static_cast<int64_t>(samples.size()) > std::max<int64_t>(spec.max_bad, 0)) {
    return absl::InvalidArgumentError(absl::StrCat("counted_bad names ", samples.size(), " samples; max_bad is ", spec.max_bad));
  }
  return samples;
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + t.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Service::Service(DataRoots roots, std::unique_ptr<Pipeline> pipeline)
    : datasets_(std::move(roots)), pipeline_(std::move(pipeline)) {}

Service::~Service() {
  for (auto& [id, entry] : sessions_) entry.session->Close(RingMemory::kKeep);
}

std::shared_ptr<KnownBad> Service::KnownBadOf(const std::shared_ptr<const Dataset>& dataset) {
  const std::lock_guard lock(known_bad_mutex_);
  std::erase_if(known_bad_, [](const auto& entry) { return entry.first.expired(); });
  std::weak_ptr<KnownBad>& known = known_bad_[dataset];
  std::shared_ptr<KnownBad> made = known.lock();
  if (made == nullptr) known = made = std::make_shared<KnownBad>(dataset, DefaultStateDir());
  return made;
}

absl::StatusOr<OpenedSession> Service::Open(const std::string& body, const Peer& peer,
                                            std::shared_ptr<const Doorbell> doorbell) {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request,
                            ParseRequest(body, {"spec", "dataset_hash", "epoch", "position", "counted_bad", "starved"}));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t epoch, NumberOf(request, "epoch", 0));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t position, NumberOf(request, "position", 0));
  const auto open = [this](const std::string& path) { return datasets_.Get(path); };
  HEADRACE_ASSIGN_OR_RETURN(SessionSpec spec,
                            ParseSessionSpec(request.contains("spec") ? Dump(request["spec"]) : "", open));
  if (request.contains("dataset_hash") && !request["dataset_hash"].is_null()) {
    HEADRACE_ASSIGN_OR_RETURN(const std::string hash, TextOf(request, "dataset_hash"));
    if (hash != spec.dataset->hash()) {
      return absl::FailedPreconditionError(
          absl::StrCat("dataset ", spec.dataset->dir(), " changed: ", hash, " → ", spec.dataset->hash()));
    }
  }
  HEADRACE_RETURN_IF_ERROR(CheckPosition(*spec.dataset, position));
  HEADRACE_ASSIGN_OR_RETURN(spec.counted_bad, ReadCountedBad(request, spec));
  HEADRACE_ASSIGN_OR_RETURN(spec.starved, FlagOf(request, "starved"));
  spec.known_bad = KnownBadOf(spec.dataset);

  Pipeline::Wake wake = [doorbell] { doorbell->Ring(); };
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                            pipeline_->Open(std::move(spec), Cursor{epoch, position}, std::move(wake)));
  absl::StatusOr<hr_open_answer> answer = MakeAnswer(*session);
  const std::lock_guard lock(mutex_);
  if (!answer.ok() || !stop_reason_.empty()) {
    session->Close(RingMemory::kKeep);
    return answer.ok() ? absl::UnavailableError(stop_reason_) : answer.status();
  }
  sessions_.emplace(session->id(), Entry{session, std::move(doorbell), peer});
  return OpenedSession{std::move(session), *answer};
}

absl::StatusOr<std::shared_ptr<Session>> Service::Find(uint64_t id, const Peer& peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.peer.pid != peer.pid || found->second.peer.uid != peer.uid) {
    return absl::NotFoundError(absl::StrCat("this process has no session ", id));
  }
  return found->second.session;
}

absl::StatusOr<hr_seek_answer> Service::Seek(const hr_seek& request, const Peer& peer) {
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Find(request.session_id, peer));
  HEADRACE_RETURN_IF_ERROR(CheckPosition(*session->spec().dataset, request.position));
  return hr_seek_answer{session->Seek(Cursor{request.epoch, request.position}), 0};
}

absl::StatusOr<AnswerWithFd> Service::DeviceMemory(const std::string& body, const Peer& peer) const {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request, ParseRequest(body, {"session"}));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t id, NumberOf(request, "session"));
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Find(id, peer));
  const DeviceRing* device = session->ring().device();
  if (device == nullptr) return absl::FailedPreconditionError(absl::StrCat("session ", id, " has no GPU memory"));
  UniqueFd fd(fcntl(device->fd(), F_DUPFD_CLOEXEC, 3));
  if (!fd.valid()) return ErrnoStatus(errno, "a descriptor of the session's GPU memory");
  return AnswerWithFd{Dump({{"bytes", device->total_bytes()}}), std::move(fd)};
}

void Service::Close(uint64_t id, RingMemory memory) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = std::move(found->second.session);
    sessions_.erase(found);
  }
  session->Close(memory);
}

absl::Status Service::HangUp(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::NotFoundError(absl::StrCat("there is no session ", id));
  found->second.session->MarkStopping("the session was closed by the daemon's operator");
  found->second.doorbell->HangUp();
  return absl::OkStatus();
}

void Service::MarkStopping(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!stop_reason_.empty()) return;
  stop_reason_ = reason;
  for (auto& [id, entry] : sessions_) entry.session->MarkStopping(reason);
}

ServiceStats Service::Stats() const {
  ServiceStats stats;
  stats.version = HEADRACE_VERSION;
  stats.pid = getpid();
  stats.uptime_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  stats.cpu_seconds = CpuSeconds();
  stats.pipeline = pipeline_->stats();
  stats.pipeline.sessions.clear();
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : sessions_) {
    stats.sessions.push_back({entry.session->stats(), entry.peer.pid, entry.peer.uid});
  }
  return stats;
}

absl::StatusOr<std::string> Service::StatsJson(const std::string& body) const {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request, ParseRequest(body, {"session"}));
  ServiceStats stats = Stats();
  if (request.contains("session")) {
    HEADRACE_ASSIGN_OR_RETURN(const uint64_t id, NumberOf(request, "session"));
    std::erase_if(stats.sessions, [&](const ServiceStats::Session& session) { return session.stats.id != id; });
  }
  return FormatStatsJson(stats);
}

}  // namespace headrace
