// Which SIMD instructions the inner loops use: the best that this CPU has, or less.
#pragma once

#include <string>

namespace headrace {

enum class Isa {
  kBest,
  kAvx512,    // AVX-512 F, BW, CD, DQ, VL; kBest has VNNI and VBMI too where there are
  kAvx2,      // and FMA, BMI, BMI2
  kSse4,      // 4.2
  kPortable,  // no SIMD code of ours
};

// At most `isa`, in the whole process from now on; a CPU that has not even that keeps its best. On
// other architectures than x86-64 only kPortable limits anything. To be called before threads
// decode; every choice gives the same pixels.
void LimitIsa(Isa isa);

// The SIMD target in use ("AVX3_DL" with VNNI and VBMI, "AVX3" for kAvx512, "AVX2", "SSE4", "NEON", "SCALAR" or "EMU128" for
// kPortable), for stats.
std::string SimdTarget();

}  // namespace headrace
