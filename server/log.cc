#include "server/log.h"

#define SPDLOG_HEADER_ONLY
#define FMT_HEADER_ONLY
#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace headrace {

struct Log::Sink {
  std::shared_ptr<spdlog::logger> logger;
};

Log::Log(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}
Log::~Log() = default;

absl::StatusOr<std::unique_ptr<Log>> Log::Open(const std::string& path, LogLevel level) {
  std::shared_ptr<spdlog::sinks::sink> target;
  if (path.empty()) {
    target = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    // spdlog throws where it cannot open the file, and its words do not say why.
    const UniqueFd probe(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
    if (!probe.valid()) return ErrnoStatus(errno, "log file " + path);
    try {
      target = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    } catch (const spdlog::spdlog_ex& error) {
      return absl::InternalError(error.what());
    }
  }
  auto logger = std::make_shared<spdlog::logger>("headrace", std::move(target));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->flush_on(spdlog::level::debug);
  auto log = std::unique_ptr<Log>(new Log(std::make_unique<Sink>(Sink{std::move(logger)})));
  log->SetLevel(level);
  return log;
}

// Messages hold paths and names of users' files: they are never format strings.
void Log::Debug(const std::string& message) { sink_->logger->debug(spdlog::string_view_t(message)); }
void Log::Info(const std::string& message) { sink_->logger->info(spdlog::string_view_t(message)); }
void Log::Warn(const std::string& message) { sink_->logger->warn(spdlog::string_view_t(message)); }
void Log::Error(const std::string& message) { sink_->logger->error(spdlog::string_view_t(message)); }

void Log::SetLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return sink_->logger->set_level(spdlog::level::debug);
    case LogLevel::kInfo: return sink_->logger->set_level(spdlog::level::info);
    case LogLevel::kWarn: return sink_->logger->set_level(spdlog::level::warn);
    case LogLevel::kError: return sink_->logger->set_level(spdlog::level::err);
  }
}

}  // namespace headrace
