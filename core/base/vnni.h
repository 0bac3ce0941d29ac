// Dot products of bytes and words that add to 32-bit lanes (AVX-512 VNNI), for code of Highway's target AVX3_DL and better ones.
// As assembly, because Highway 1.0.3 enables the wrong VNNI extension for the compiler there; its run-time check is the right one.
// To be included behind <hwy/highway.h>.
#pragma once

#ifndef HWY_ARCH_X86
#error "include <hwy/highway.h> first"
#endif

// Of the target that is being compiled: may it use these functions, and VBMI?
#define HEADRACE_HAS_VNNI (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL)

#if HWY_ARCH_X86
#include <immintrin.h>

namespace headrace {

// Each lane: sum + a0·b0 + a1·b1 of signed words, modulo 2^32.
__attribute__((always_inline, target("avx512f"))) inline __m512i AddDotOfWords(__m512i sum, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
  return sum;
}

// Each lane: sum + Σ of four products of an unsigned byte of a and a signed byte of b, modulo 2^32.
__attribute__((always_inline, target("avx512f"))) inline __m512i AddDotOfBytes(__m512i sum, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
  return sum;
}

}  // namespace headrace

#endif  // x86
