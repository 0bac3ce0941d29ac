// The daemon's log: one line per event, with time and level. Thread-safe. spdlog behind it.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "server/settings.h"

namespace headrace {

class Log {
 public:
  // Appends to `path`, or writes to standard error if it is empty.
  static absl::StatusOr<std::unique_ptr<Log>> Open(const std::string& path, LogLevel level);
  ~Log();

  void Debug(const std::string& message);
  void Info(const std::string& message);
  void Warn(const std::string& message);
  void Error(const std::string& message);
  void SetLevel(LogLevel level);

 private:
  struct Sink;
  explicit Log(std::unique_ptr<Sink> sink);
  std::unique_ptr<Sink> sink_;
};

}  // namespace headrace
