// For functions that nvcc compiles for GPU and host, and any other compiler for the host.
#pragma once

#ifdef __CUDACC__
#define HEADRACE_GPU __host__ __device__
#define HEADRACE_UNROLL _Pragma("unroll")
#else
#define HEADRACE_GPU
#define HEADRACE_UNROLL
#endif

namespace headrace {

// Those of <algorithm> are for the host only.
template <class T>
HEADRACE_GPU constexpr T Min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
HEADRACE_GPU constexpr T Max(T a, T b) {
  return a > b ? a : b;
}

}  // namespace headrace
