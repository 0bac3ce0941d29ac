#include "server/stats_json.h"

#include "server/request_json.h"

namespace headrace {

std::string FormatStatsJson(const ServiceStats& stats) {
  nlohmann::json sessions = nlohmann::json::array();
  for (const ServiceStats::Session& session : stats.sessions) {
    const SessionStats& s = session.stats;
    sessions.push_back({{"id", s.id},
                        {"pid", session.pid},
                        {"uid", session.uid},
                        {"dataset", s.dataset},
                        {"rank", s.rank},
                        {"world_size", s.world_size},
                        {"batches", s.batches},
                        {"samples", s.samples},
                        {"engine", s.on_gpu ? "gpu" : "cpu"},
                        {"samples_left_to_cpu", s.left_samples},
                        {"bad_samples", s.bad_samples},
                        {"decode_seconds", s.decode_ns * 1e-9},
                        {"slots", s.slots},
                        {"slots_ready", s.slots_ready},
                        {"ring_bytes", s.ring_bytes},
                        {"epoch", s.cursor.epoch},
                        {"position", s.cursor.position}});
  }
  const PipelineStats& p = stats.pipeline;
  nlohmann::json gpus = nlohmann::json::array();
  for (const PipelineStats::GpuMemory& gpu : p.gpus) gpus.push_back({{"uuid", gpu.uuid}, {"device_memory_used", gpu.used_bytes}});
  return Dump({{"version", stats.version},
               {"pid", stats.pid},
               {"uptime_s", stats.uptime_s},
               {"simd_target", p.simd_target},
               {"engine", EngineName(p)},
               {"gpus", gpus},
               {"device_memory_bytes", p.device_memory_bytes},
               {"decode_threads", p.decode_threads},
               {"threads_in_use", p.threads_in_use},
               {"host_memory_bytes", p.host_memory_bytes},
               {"host_memory_used", p.host_memory_used},
               {"page_cache_map_bytes", p.page_cache_map_bytes},
               {"page_cache_map_used", p.page_cache_map_used},
               {"samples", p.samples},
               {"batches", p.batches},
               {"bad_samples", p.bad_samples},
               {"bytes_read", p.bytes_read},
               {"decode_seconds", p.decode_ns * 1e-9},
               {"cpu_seconds", stats.cpu_seconds},
               {"sessions", sessions}});
}

}  // namespace headrace
