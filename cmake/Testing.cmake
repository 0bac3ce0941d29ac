# headrace_test(<name> SOURCES <file>... LIBS <target>...): a GoogleTest program, one ctest entry per test.
# In it TEST_SLOWDOWN is 1, or about how many times as much a look costs under the sanitizer; tests of pixels, which have one thread,
# look at so many times fewer.
# tools/test.sh compiles them from nothing: with -O1, which what is tested is not, and several sources as one, that takes half the
# time.
set(headrace_test_options $<$<CONFIG:Release>:-O1>)
if(HEADRACE_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
function(headrace_test name)
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  if(HEADRACE_SANITIZE STREQUAL thread)
    set(slowdown 50)
  elseif(HEADRACE_SANITIZE)
    set(slowdown 15)
  else()
    set(slowdown 1)
  endif()
  target_compile_definitions(${name} PRIVATE TEST_SLOWDOWN=${slowdown})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${headrace_test_options})
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
  endif()
  headrace_use_pch(headrace_test_pch ${name})
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)
endfunction()

# headrace_fuzzer(<name> [SOURCES <file>...] LIBS <target>...): <name>_fuzzer.cc, which defines LLVMFuzzerTestOneInput. With
# HEADRACE_FUZZ a libFuzzer program, else a test that runs what lies in corpus/<name>/ and mutations of it; nothing under the thread
# sanitizer.
function(headrace_fuzzer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  if(HEADRACE_SANITIZE STREQUAL thread)  # they have one
    return()
  endif()
  set(program fuzz_${name})
  if(HEADRACE_FUZZ)
    add_executable(${program} ${name}_fuzzer.cc ${arg_SOURCES})
    target_link_libraries(${program} PRIVATE ${arg_LIBS} -fsanitize=fuzzer)
  else()
    headrace_test(${program} SOURCES ${name}_fuzzer.cc replay.cc ${arg_SOURCES} LIBS ${arg_LIBS})
    target_compile_definitions(${program} PRIVATE
      HEADRACE_FUZZER="${program}" HEADRACE_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}")
  endif()
endfunction()
