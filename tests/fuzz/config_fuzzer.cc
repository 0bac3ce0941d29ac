// The daemon's configuration file.
#include "server/settings.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const fuzz::MemoryFile file;
  Settings settings, again;
  file.Write(data, size);
  (void)LoadConfigFile(file.path(), /*only_changeable=*/true, &settings);
  settings = {};
  if (!LoadConfigFile(file.path(), /*only_changeable=*/false, &settings).ok()) return 0;
  // What the daemon prints of it is such a file, and says the same.
  if (settings.threads == 0) settings.threads = 1;
  if (settings.host_memory == 0) settings.host_memory = 1 << 20;
  if (settings.socket.empty()) settings.socket = "@headrace";
  const std::string printed = FormatSettings(settings);
  file.Write(printed.data(), printed.size());
  fuzz::Check(LoadConfigFile(file.path(), /*only_changeable=*/false, &again).ok() && FormatSettings(again) == printed);
  return 0;
}
