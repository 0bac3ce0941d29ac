// Looks at every state that a model can reach, and whether from each of them a way leads on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headrace::testing {

struct Finding {
  std::string violation;           // "": the protocol keeps its word
  std::vector<std::string> trace;  // the actions that lead there
  uint64_t states = 0;
};

// `State` consists of bytes only: states are compared as memory.
template <typename State>
class StateSearch {
 public:
  virtual ~StateSearch() = default;

 protected:
  Finding Search(const State& first) {
    Add(first, "");
    for (now_ = 0; now_ < states_.size() && violation_.empty(); ++now_) Act(State(*states_[now_]));
    Finding finding{.violation = violation_, .trace = {}, .states = states_.size()};
    uint32_t end = now_ - 1;
    if (violation_.empty() && FindStuck(&end)) finding.violation = "the trainer never gets what is due";
    if (finding.violation.empty()) return finding;
    finding.trace.push_back(last_action_);
    for (; end != 0; end = parents_[end].first) finding.trace.emplace_back(parents_[end].second);
    std::reverse(finding.trace.begin(), finding.trace.end());
    return finding;
  }

  // Adds every state that may follow.
  virtual void Act(const State& state) = 0;
  virtual bool IsGoal(const State& state) const = 0;

  void Violate(const char* what, const char* action) {
    if (!violation_.empty()) return;
    violation_ = what;
    last_action_ = action;
  }

  // `progress`: what the protocol promises to do by itself, as opposed to what a trainer or a fault may do.
  void Add(const State& state, const char* action, bool progress = true) {
    if (!violation_.empty()) return;
    const auto [entry, is_new] = numbers_.try_emplace(state, static_cast<uint32_t>(states_.size()));
    if (is_new) {
      states_.push_back(&entry->first);
      parents_.emplace_back(now_, action);
    }
    if (progress) edges_.emplace_back(entry->second, now_);
  }

 private:
  struct Hash {
    size_t operator()(const State& state) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof state});
    }
  };
  struct Equal {
    bool operator()(const State& a, const State& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
  };

  // A state from which no way leads to a goal although nothing goes wrong any more.
  bool FindStuck(uint32_t* stuck) {
    std::sort(edges_.begin(), edges_.end());
    std::vector<bool> good(states_.size());
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (!IsGoal(*states_[i])) continue;
      good[i] = true;
      open.push_back(i);
    }
    while (!open.empty()) {
      const uint32_t to = open.back();
      open.pop_back();
      for (auto edge = std::lower_bound(edges_.begin(), edges_.end(), std::pair{to, 0u});
           edge != edges_.end() && edge->first == to; ++edge) {
        if (good[edge->second]) continue;
        good[edge->second] = true;
        open.push_back(edge->second);
      }
    }
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (good[i]) continue;
      *stuck = i;
      return true;
    }
    return false;
  }

  std::unordered_map<State, uint32_t, Hash, Equal> numbers_;
  std::vector<const State*> states_;
  std::vector<std::pair<uint32_t, const char*>> parents_;  // of each state: where it was found first, and by what
  std::vector<std::pair<uint32_t, uint32_t>> edges_;       // (to, from), of progress
  uint32_t now_ = 0;
  std::string violation_, last_action_;
};

}  // namespace headrace::testing
