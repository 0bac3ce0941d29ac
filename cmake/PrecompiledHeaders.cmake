# Headers that are parsed once for all files: nlohmann-json, Abseil and GoogleTest take longer to parse than most of our
# files to compile. For the tests, and for everything under a sanitizer: `tools/test.sh` builds the project three times. The
# wheel's own files are compiled without, so that a header that somebody forgot to include is noticed.
option(HEADRACE_PCH "Precompile common headers of the tests and of sanitizer builds" ON)

set(headrace_pch_headers
  <algorithm> <array> <atomic> <chrono> <cstring> <functional> <map> <memory> <mutex> <optional> <set> <string>
  <thread> <variant> <vector>
  <nlohmann/json.hpp> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h>)

# headrace_make_pch(<name> EXECUTABLE|LIBRARY <header>...): a target that holds nothing but precompiled headers. They serve
# targets of the same kind only: executables are compiled with -fPIE, libraries with -fPIC.
function(headrace_make_pch name kind)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "int main() {}\n")
  if(kind STREQUAL EXECUTABLE)
    add_executable(${name} EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cc)
  else()
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cc)
  endif()
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# headrace_use_pch(<pch> <target>...): for those of the targets that exist.
function(headrace_use_pch pch)
  foreach(target IN LISTS ARGN)
    if(TARGET ${target} AND TARGET ${pch})
      target_precompile_headers(${target} REUSE_FROM ${pch})
    endif()
  endforeach()
endfunction()

if(HEADRACE_PCH AND HEADRACE_TESTS)
  headrace_make_pch(headrace_test_pch EXECUTABLE ${headrace_pch_headers} <gmock/gmock.h> <gtest/gtest.h>)
  target_compile_options(headrace_test_pch PRIVATE ${headrace_test_options})
  target_link_libraries(headrace_test_pch PRIVATE GTest::gmock)  # its definitions are part of what is precompiled
endif()
if(HEADRACE_PCH AND HEADRACE_SANITIZE)
  headrace_make_pch(headrace_core_pch LIBRARY ${headrace_pch_headers})
endif()
