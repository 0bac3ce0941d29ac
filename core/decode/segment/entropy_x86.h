// The inner loop of entropy decoding for x86-64 with BMI2, in assembly: gcc 12 does not keep the streams' state in registers
// (docs/cpu_engine.md has the times). The same loop in C++ stands in entropy-inl.h; tests compare the two.
#pragma once

#include "core/decode/segment/entropy_context.h"

// An address sanitizer's build wants a register for frames, and to see every access.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(HEADRACE_NO_ASM)
#define HEADRACE_ENTROPY_ASM 1
#else
#define HEADRACE_ENTROPY_ASM 0
#endif

namespace headrace {

// See SegmentKernels::decode_turns. Needs BMI, BMI2 and MOVBE.
int DecodeTurnsX86(EntropyContext* context);

}  // namespace headrace
