// The real daemon in a thread of the test, listening on a real socket in a folder of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/daemon.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {

class EmbeddedDaemon {
 public:
  // `settings` needs only what the test is about: the socket, two threads and 256 MiB are filled in. A test fails at once
  // if the daemon does not start.
  explicit EmbeddedDaemon(Settings settings, const Daemon::MakePipeline& make_pipeline = Pipeline::Create);
  // Serves one data root.
  explicit EmbeddedDaemon(const std::string& root, const Daemon::MakePipeline& make_pipeline = Pipeline::Create);
  ~EmbeddedDaemon();

  const std::string& socket() const { return settings_.socket; }
  // Ends it; returns the reason it gave. For a private daemon Wait() until it ends by itself.
  std::string Stop(const std::string& reason = "the test is over");
  std::string Wait();
  // What the log says so far.
  std::string log() const;

 private:
  TemporaryFolder folder_;
  Settings settings_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<Daemon> daemon_;
  std::string reason_;
  std::thread thread_;
};

}  // namespace headrace::testing
