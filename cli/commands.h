// The commands of `headrace`: each adds itself to the command line and runs when it was given.
// Exit codes: 0 done, 1 failed, 2 usage.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"

namespace headrace {

inline constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2;

// For options that are read into a uint64_t: CLI11 would take −1 for its largest.
inline std::string CheckUnsigned(const std::string& text) {
  uint64_t value;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && absl::SimpleAtoi(text, &value) ? "" : text + " is not a whole number from 0 to 2^64 - 1";
}

void AddPack(CLI::App& app, int* exit_code);
void AddInspect(CLI::App& app, int* exit_code);
void AddVerify(CLI::App& app, int* exit_code);
void AddUnpack(CLI::App& app, int* exit_code);
void AddIndex(CLI::App& app, int* exit_code);
void AddBad(CLI::App& app, int* exit_code);
void AddAudit(CLI::App& app, int* exit_code);
void AddServe(CLI::App& app, int* exit_code);
void AddTop(CLI::App& app, int* exit_code);
void AddDoctor(CLI::App& app, int* exit_code);

}  // namespace headrace
