// What can be asked of a daemon, whoever asks and through which front. Knows no sockets but the sessions' doorbells.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "client/protocol.h"
#include "core/pipeline/pipeline.h"
#include "server/dataset_cache.h"
#include "server/doorbell.h"
#include "server/peer.h"

namespace headrace {

struct ServiceStats {
  struct Session {
    SessionStats stats;
    pid_t pid = 0;
    uid_t uid = 0;
  };
  std::string version;
  pid_t pid = 0;
  double uptime_s = 0;
  double cpu_seconds = 0;  // of the whole process, user and system
  PipelineStats pipeline;  // its list of sessions is empty: see `sessions`
  std::vector<Session> sessions;
};

struct AnswerWithFd {
  std::string json;
  UniqueFd fd;
};

struct OpenedSession {
  std::shared_ptr<Session> session;
  hr_open_answer answer;
};

// All calls are thread-safe. Bodies and answers are those of docs/protocol.md.
class Service {
 public:
  Service(DataRoots roots, std::unique_ptr<Pipeline> pipeline);
  // Closes the sessions.
  ~Service();

  // These may block on the disk.
  absl::StatusOr<std::string> Describe(const std::string& body);
  // With a sealed memfd of the image; without an image field none.
  absl::StatusOr<AnswerWithFd> Sample(const std::string& body);
  absl::StatusOr<std::string> Audit(const std::string& body);
  // The session lives until Close. FAILED_PRECONDITION for another dataset hash, UNAVAILABLE once the daemon stops.
  absl::StatusOr<OpenedSession> Open(const std::string& body, const Peer& peer, std::shared_ptr<const Doorbell> doorbell);

  // These do not.
  absl::StatusOr<std::string> StatsJson(const std::string& body) const;
  ServiceStats Stats() const;
  // NOT_FOUND unless the session belongs to the caller's process.
  absl::StatusOr<hr_seek_answer> Seek(const hr_seek& request, const Peer& peer);
  // A session's device slots. NOT_FOUND as Seek; FAILED_PRECONDITION: its batches lie in host memory.
  absl::StatusOr<AnswerWithFd> DeviceMemory(const std::string& body, const Peer& peer) const;
  // `id` is of no session: nothing happens.
  void Close(uint64_t id, RingMemory memory);
  // For operators: takes a session's memory; its client reopens when it asks for its next batch. NOT_FOUND.
  absl::Status HangUp(uint64_t id);
  // Tells every session why the daemon ends and lets no new one in. First call wins.
  void MarkStopping(const std::string& reason);

 private:
  // The same for all sessions of a dataset. Blocks on the disk.
  std::shared_ptr<KnownBad> KnownBadOf(const std::shared_ptr<const Dataset>& dataset);

  struct Entry {
    std::shared_ptr<Session> session;
    std::shared_ptr<const Doorbell> doorbell;
    Peer peer;
  };

  // NOT_FOUND unless the session belongs to the caller's process.
  absl::StatusOr<std::shared_ptr<Session>> Find(uint64_t id, const Peer& peer) const;

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  DatasetCache datasets_;
  std::mutex known_bad_mutex_;
  std::map<std::weak_ptr<const Dataset>, std::weak_ptr<KnownBad>, std::owner_less<>> known_bad_;
  std::unique_ptr<Pipeline> pipeline_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> sessions_;
  std::string stop_reason_;  // "": serving
};

}  // namespace headrace
