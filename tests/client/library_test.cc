// What libheadrace.so shows and weighs.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) output.append(part, n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

TEST(LibraryTest, ShowsTheFunctionsOfItsHeaderAndNothingElse) {
  std::istringstream lines(OutputOf("nm -D --defined-only --format=just-symbols " CLIENT_LIBRARY));
  std::vector<std::string> symbols;
  for (std::string line; std::getline(lines, line);) symbols.push_back(line);
  EXPECT_THAT(
      symbols,
      testing::UnorderedElementsAre(
          "hr_last_error", "hr_version", "hr_client_open", "hr_client_close", "hr_request",
          "hr_free", "hr_session_open", "hr_session_close", "hr_session_info", "hr_session_next",
          "hr_session_try_next", "hr_session_wait", "hr_session_seek", "hr_session_lease_all",
          "hr_session_hold_ring", "hr_ring_release", "hr_ring_released_word", "hr_session_get_stats",
          "hr_set_python_functions", "hr_session_try_next_capsules", "hr_gpu_copy_start", "hr_shutdown"));
}

TEST(LibraryTest, NeedsNothingButTheCLibraryAndIsSmall) {
  if (TEST_SLOWDOWN > 1) return;  // a sanitizer adds its own runtime and code
  const std::string dynamic = OutputOf("readelf -d " CLIENT_LIBRARY);
  std::istringstream lines(dynamic);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    EXPECT_THAT(line,
                testing::AnyOf(testing::HasSubstr("[libc.so"), testing::HasSubstr("[ld-linux"),
                               testing::HasSubstr("[libm.so")));
  }
  EXPECT_THAT(dynamic, testing::HasSubstr("NODELETE"));
  const std::string stripped =
      testing::TempDir() + "libheadrace-stripped-" + std::to_string(getpid());
  OutputOf("strip -o " + stripped + " " CLIENT_LIBRARY);
  struct stat info = {};
  EXPECT_EQ(stat(stripped.c_str(), &info), 0);
  EXPECT_LE(info.st_size, 300'000);
  unlink(stripped.c_str());
}

}  // namespace
}  // namespace headrace
