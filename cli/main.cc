// `headrace`: one executable for packing, looking at and serving datasets.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Headrace keeps GPUs fed: packs images into datasets and serves ready batches to trainers.", "headrace");
  app.set_version_flag("--version", "headrace " HEADRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\n`headrace COMMAND --help` explains a command, with examples.");
  int exit_code = headrace::kExitDone;
  headrace::AddPack(app, &exit_code);
  headrace::AddInspect(app, &exit_code);
  headrace::AddVerify(app, &exit_code);
  headrace::AddUnpack(app, &exit_code);
  headrace::AddIndex(app, &exit_code);
  headrace::AddBad(app, &exit_code);
#ifdef HEADRACE_CLI_AUDIT
  headrace::AddAudit(app, &exit_code);
#endif
#ifdef HEADRACE_CLI_SERVE
  headrace::AddServe(app, &exit_code);
#endif
#ifdef HEADRACE_CLI_TOP
  headrace::AddTop(app, &exit_code);
#endif
#ifdef HEADRACE_CLI_DOCTOR
  headrace::AddDoctor(app, &exit_code);
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands([&](CLI::App* command) { return command->get_name() == argv[1]; }).empty()) {
      std::fprintf(stderr, "headrace: there is no command %s; `headrace --help` lists them\n", argv[1]);
      return headrace::kExitUsage;
    }
    return app.exit(error) == 0 ? headrace::kExitDone : headrace::kExitUsage;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "headrace: cannot write to standard output: %s\n", std::strerror(errno));
    return headrace::kExitFailed;
  }
  return exit_code;
}
