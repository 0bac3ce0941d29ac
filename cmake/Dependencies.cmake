# Every third-party library of the project, as imported targets named `dep::<library>`.
#
# Archives are preferred to shared objects, so that the daemon is one executable. Debian splits gRPC and Abseil into
# dozens of archives whose order pkg-config knows only for shared objects; a link group makes the order irrelevant.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# headrace_archives(<target> LIBRARIES <name>... [MODULES <pkg-config module>...])
# An interface target that links lib<name>.a (or the shared object where there is no archive) and what the static
# link lines of the pkg-config modules name, all in one group.
function(headrace_archives target)
  cmake_parse_arguments(arg "" "" "LIBRARIES;MODULES" ${ARGN})
  set(names ${arg_LIBRARIES})
  foreach(module IN LISTS arg_MODULES)
    pkg_check_modules(PKG_${module} REQUIRED ${module})
    list(APPEND names ${PKG_${module}_STATIC_LIBRARIES})
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(paths)
  foreach(name IN LISTS names)
    if(name MATCHES "^(pthread|rt|dl|m|atomic)$")
      continue()  # parts of glibc, or needed only by compilers without 16-byte atomics
    endif()
    find_library(LIBRARY_${name} NAMES lib${name}.a ${name} REQUIRED)
    list(APPEND paths ${LIBRARY_${name}})
  endforeach()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  list(JOIN paths "," joined)
  target_link_libraries(${target} INTERFACE
    "-Wl,--start-group,${joined},--end-group" Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

headrace_archives(dep::absl MODULES absl_status absl_statusor absl_strings absl_synchronization absl_span)
headrace_archives(dep::lmdb LIBRARIES lmdb)
headrace_archives(dep::jpeg LIBRARIES jpeg)
headrace_archives(dep::zlib LIBRARIES z)
if(HEADRACE_TESTS)
  headrace_archives(dep::png LIBRARIES png16 z)
endif()
headrace_archives(dep::tiff MODULES libtiff-4)
headrace_archives(dep::webp LIBRARIES webpdemux webp)
# The one that may be missing: a build without it refuses AVIF files. Debian and Ubuntu have no archive of it.
find_library(LIBRARY_dav1d NAMES libdav1d.a dav1d)
if(LIBRARY_dav1d)
  headrace_archives(dep::dav1d LIBRARIES dav1d)
endif()
headrace_archives(dep::hwy LIBRARIES hwy)
headrace_archives(dep::xxhash LIBRARIES xxhash)
headrace_archives(dep::grpc MODULES grpc++_unsecure protobuf LIBRARIES upb address_sorting cares re2 z)
headrace_archives(dep::prometheus LIBRARIES prometheus-cpp-pull prometheus-cpp-core)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)  # headers only: Asio
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
