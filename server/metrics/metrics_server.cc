#include "server/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void Add(MetricFamily* family, double value, std::vector<ClientMetric::Label> labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  (family->type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family->metric.push_back(std::move(metric));
}

MetricFamily Single(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = Family(name, help, type);
  Add(&family, value);
  return family;
}

// Asks the service at every scrape, so nothing is counted twice.
class StatsCollectable : public prometheus::Collectable {
 public:
  explicit StatsCollectable(const Service* service) : service_(*service) {}

  std::vector<MetricFamily> Collect() const override {
    const ServiceStats stats = service_.Stats();
    const PipelineStats& p = stats.pipeline;
    constexpr MetricType kCounter = MetricType::Counter;
    constexpr MetricType kGauge = MetricType::Gauge;
    std::vector<MetricFamily> families = {
        Single("headrace_samples_total", "Samples decoded.", kCounter, p.samples),
        Single("headrace_batches_total", "Batches made ready.", kCounter, p.batches),
        Single("headrace_bad_samples_total", "Samples that could not be decoded.", kCounter, p.bad_samples),
        Single("headrace_read_bytes_total", "Bytes of samples read.", kCounter, p.bytes_read),
        Single("headrace_decode_seconds_total", "Thread time spent reading, decoding and augmenting.", kCounter,
               p.decode_ns * 1e-9),
        Single("headrace_cpu_seconds_total", "CPU time of the whole process.", kCounter, stats.cpu_seconds),
        Single("headrace_uptime_seconds", "Time since the daemon started.", kGauge, stats.uptime_s),
        Single("headrace_sessions", "Open sessions.", kGauge, stats.sessions.size()),
        Single("headrace_decode_threads", "Decode threads.", kGauge, p.decode_threads),
        Single("headrace_decode_threads_in_use", "Decode threads that keep the rings full.", kGauge, p.threads_in_use),
        Single("headrace_host_memory_bytes", "Budget for the rings of all sessions.", kGauge, p.host_memory_bytes),
        Single("headrace_host_memory_used_bytes", "Memory of all rings.", kGauge, p.host_memory_used),
        Single("headrace_page_cache_map_used_bytes", "Shards kept in memory for GPUs.", kGauge, p.page_cache_map_used),
    };
    MetricFamily info = Family("headrace_info", "What runs; always 1.", kGauge);
    Add(&info, 1, {{"version", stats.version}, {"simd_target", p.simd_target}});
    families.push_back(std::move(info));

    MetricFamily slots = Family("headrace_session_slots", "Slots of a session's ring.", kGauge);
    MetricFamily ready = Family("headrace_session_slots_ready", "Slots that hold a batch.", kGauge);
    MetricFamily samples = Family("headrace_session_samples_total", "Samples decoded for a session.", kCounter);
    MetricFamily bad = Family("headrace_session_bad_samples_total", "Bad samples of a session.", kCounter);
    for (const ServiceStats::Session& session : stats.sessions) {
      const std::vector<ClientMetric::Label> labels = {{"session", absl::StrCat(session.stats.id)},
                                                       {"dataset", session.stats.dataset},
                                                       {"rank", absl::StrCat(session.stats.rank)}};
      Add(&slots, session.stats.slots, labels);
      Add(&ready, session.stats.slots_ready, labels);
      Add(&samples, session.stats.samples, labels);
      Add(&bad, session.stats.bad_samples, labels);
    }
    for (MetricFamily* family : {&slots, &ready, &samples, &bad}) families.push_back(std::move(*family));
    return families;
  }

 private:
  const Service& service_;
};

}  // namespace

struct MetricsServer::Parts {
  std::shared_ptr<StatsCollectable> stats;
  std::unique_ptr<prometheus::Exposer> exposer;
};

MetricsServer::MetricsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address, int port,
                                                                    Service* service) {
  const bool is_v6 = address.find(':') != std::string::npos && address[0] != '[';
  const std::string bind_address = is_v6 ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
  auto parts = std::make_unique<Parts>();
  parts->stats = std::make_shared<StatsCollectable>(service);
  try {
    parts->exposer = std::make_unique<prometheus::Exposer>(bind_address, 2);
    parts->exposer->RegisterCollectable(parts->stats);
  } catch (const std::exception&) {  // CivetWeb says no more than that it failed
    return absl::UnavailableError(
        absl::StrCat("metrics at ", bind_address, ": cannot listen there (is the port taken, or the address not of this machine?)"));
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(parts)));
}

}  // namespace headrace
