#include "core/decode/segment/entropy_x86.h"

#if HEADRACE_ENTROPY_ASM

#include "core/decode/segment/kernels.h"

namespace headrace {
namespace {

// Shifts take their count from the low six bits of a register. The base register points 55 bytes into the context, which
// is aligned to 64: so it is its own shift count for the index into a table of 9 bits.
constexpr int kBias = 64 - kLookupBits;
constexpr int Offset(size_t offset) { return static_cast<int>(offset) - kBias; }

}  // namespace

// The window of stream I: 64 bits from its bit on.
#define WINDOW(I)                                   \
  "mov %[b" I "], %[at]\n\t"                        \
  "mov %k[b" I "], %k[len]\n\t"                     \
  "shr $3, %[at]\n\t"                               \
  "and $7, %k[len]\n\t"                             \
  "mov %c[bytes](%[base], %[at]), %[window]\n\t"    \
  "bswap %[window]\n\t"                             \
  "shlx %[len], %[window], %[window]\n\t"
// Its next entry of `lookup` to ix, and the symbol's bits to len.
#define LOOK_UP(I)                                  \
  "shrx %[base], %[window], %[ix]\n\t"              \
  "addw %c[table_of](%[base], %[p" I "], 2), %w[ix]\n\t" \
  "movzbl %c[lookup](%[base], %[ix], 8), %k[len]\n\t"    \
  "test %b[len], %b[len]\n\t"
// The symbol of entry ix of TABLE.
#define TAKE(I, TABLE)                              \
  "movzwl %c[" TABLE "]+4(%[base], %[ix], 8), %k[value]\n\t" \
  "movzbl %c[" TABLE "]+1(%[base], %[ix], 8), %k[at]\n\t"    \
  "bextr %[value], %[window], %[value]\n\t"         \
  "add %[p" I "], %[at]\n\t"                        \
  "addw %c[" TABLE "]+6(%[base], %[ix], 8), %w[value]\n\t"   \
  "movsbq %c[" TABLE "]+2(%[base], %[ix], 8), %[p" I "]\n\t" \
  "and %[at], %[p" I "]\n\t"                        \
  "movw %w[value], %c[out]-2+%c[out_stride]*" I "(%[base], %[at], 2)\n\t" \
  "add %[len], %[b" I "]\n\t"
// Two symbols of stream I; label 3I: behind them.
#define TURN(I)                                     \
  WINDOW(I)                                         \
  LOOK_UP(I) "js 2" I "f\n\t"                       \
  TAKE(I, "lookup")                                 \
  "shlx %[len], %[window], %[window]\n\t"           \
  LOOK_UP(I) "js 2" I "f\n\t"                       \
  TAKE(I, "lookup")                                 \
  "3" I ":\n\t"                                     \
  "cmp %c[end]+24*" I "(%[base]), %[p" I "]\n\t"    \
  "jae 1" I "f\n\t"
// Out of the way: a symbol that `lookup` does not hold, and leaving.
#define LONG_SYMBOL(I)                              \
  "2" I ":\n\t"                                     \
  WINDOW(I)                                         \
  LOOK_UP(I)                                        \
  "movzwl %c[lookup]+4(%[base], %[ix], 8), %k[value]\n\t" \
  "mov %[window], %[ix]\n\t"                        \
  "shl $9, %[ix]\n\t"                              \
  "shl $8, %[value]\n\t"                            \
  "shr $56, %[ix]\n\t"                              \
  "add %[value], %[ix]\n\t"                         \
  "movzbl %c[second](%[base], %[ix], 8), %k[len]\n\t" \
  "test %b[len], %b[len]\n\t"                       \
  "js 4" I "f\n\t"                                  \
  TAKE(I, "second")                                 \
  "jmp 3" I "b\n"                                    \
  "4" I ":\n\tmov $8+" I ", %k[ix]\n\tjmp 9f\n"      \
  "1" I ":\n\tmov $" I ", %k[ix]\n\tjmp 9f\n"

int DecodeTurnsX86(EntropyContext* context) {
  char* const base = reinterpret_cast<char*>(context) + kBias;
  auto& streams = context->streams;
  static_assert(kMaxStreams == 4 && kSymbolsPerTurn == 2 && kLookupBits == 9 && kSecondBits == 8 && kSlowEntry == 0x80 &&
                kSlowTurn == 8 && sizeof(streams[0]) == 24);
  uint64_t window, ix, len, value, at;
  asm(".p2align 5\n"
      "8:\n\t"
      TURN("0") TURN("1") TURN("2") TURN("3")
      "jmp 8b\n"
      LONG_SYMBOL("0") LONG_SYMBOL("1") LONG_SYMBOL("2") LONG_SYMBOL("3")
      "9:\n\t"
      : [b0] "+r"(streams[0].bit), [b1] "+r"(streams[1].bit), [b2] "+r"(streams[2].bit), [b3] "+r"(streams[3].bit),
        [p0] "+r"(streams[0].position), [p1] "+r"(streams[1].position), [p2] "+r"(streams[2].position),
        [p3] "+r"(streams[3].position), [window] "=&r"(window), [ix] "=&r"(ix), [len] "=&r"(len),
        [value] "=&r"(value), [at] "=&r"(at)
      : [base] "r"(base), [table_of] "i"(Offset(offsetof(EntropyContext, table_of))),
        [lookup] "i"(Offset(offsetof(EntropyContext, lookup))), [second] "i"(Offset(offsetof(EntropyContext, second))),
        [bytes] "i"(Offset(offsetof(EntropyContext, bytes))),
        [out] "i"(Offset(offsetof(EntropyContext, coefficients))), [out_stride] "i"(kStreamCoefficients * 2),
        [end] "i"(Offset(offsetof(EntropyContext, streams) + offsetof(EntropyContext::Stream, end)))
      : "cc", "memory");
  return static_cast<int>(ix);
}

}  // namespace headrace

#endif  // HEADRACE_ENTROPY_ASM
