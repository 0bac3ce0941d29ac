// Who is served next: the arithmetic of fair shares, without threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace {

// What a session has had so far.
struct Share {
  int64_t virtual_ns = 0;  // thread time received, in advance of what is being done
  double place_ns = 0;     // moving mean of the time of one place; 0: not known yet
};

// Fair queueing (Demers, Keshav and Shenker, SIGCOMM 1989): whoever has work and the least virtual_ns is served next. Who had nothing
// to do meanwhile, or is new, catches up kCatchUpNs at most, so that it does not starve the others.
class FairClock {
 public:
  static constexpr int64_t kCatchUpNs = 50'000'000;
  // What a place is taken to cost until the first one is measured.
  static constexpr double kGuessedPlaceNs = 500'000;

  void Join(Share* share) const { share->virtual_ns = now_ns_ - kCatchUpNs; }

  // Before shares are compared: forgets what is too old to be caught up.
  void Refresh(Share* share) const { share->virtual_ns = std::max(share->virtual_ns, now_ns_ - kCatchUpNs); }

  // `places` are going to be filled for the one with the least share. Charged at once with what they will probably take: otherwise all
  // threads that are free now would choose the same session. Returns the charge.
  int64_t Begin(Share* share, uint32_t places) {
    now_ns_ = std::max(now_ns_, share->virtual_ns);
    const double place_ns = share->place_ns > 0 ? share->place_ns : kGuessedPlaceNs;
    const auto charge_ns = static_cast<int64_t>(place_ns * places);
    share->virtual_ns += charge_ns;
    return charge_ns;
  }

  // They took `spent_ns`.
  void End(Share* share, int64_t charge_ns, int64_t spent_ns, uint32_t places) const {
    share->virtual_ns += spent_ns - charge_ns;
    const double place_ns = static_cast<double>(spent_ns) / places;
    share->place_ns = share->place_ns == 0 ? place_ns : 0.95 * share->place_ns + 0.05 * place_ns;
  }

 private:
  int64_t now_ns_ = 0;  // the least share that was served last
};

}  // namespace headrace
