// The commands of `headrace`: each adds itself to the command line and runs when it was given.
// Exit codes: 0 done, 1 failed, 2 usage.
#pragma once

#include <CLI/CLI.hpp>

namespace headrace {

inline constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2;

void AddPack(CLI::App& app, int* exit_code);
void AddInspect(CLI::App& app, int* exit_code);
void AddVerify(CLI::App& app, int* exit_code);
void AddUnpack(CLI::App& app, int* exit_code);
void AddIndex(CLI::App& app, int* exit_code);
void AddAudit(CLI::App& app, int* exit_code);
void AddServe(CLI::App& app, int* exit_code);
void AddTop(CLI::App& app, int* exit_code);
void AddDoctor(CLI::App& app, int* exit_code);

}  // namespace headrace
