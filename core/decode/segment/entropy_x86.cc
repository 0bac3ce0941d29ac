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

// The window of stream I in register W: 64 bits from its bit on.
#define WINDOW(I, W)                                \
  "mov %[b" I "], %[at]\n\t"                        \
  "mov %k[b" I "], %k[len]\n\t"                     \
  "shr $3, %[at]\n\t"                               \
  "and $7, %k[len]\n\t"                             \
  "mov %c[bytes](%[base], %[at]), %[" W "]\n\t"     \
  "bswap %[" W "]\n\t"                              \
  "shlx %[len], %[" W "], %[" W "]\n\t"
// Its next entry of `lookup` to ix, and the symbol's bits to len.
#define LOOK_UP(I, W)                               \
  "shrx %[base], %[" W "], %[ix]\n\t"               \
  "addw %c[table_of](%[base], %[p" I "], 2), %w[ix]\n\t" \
  "movzbl %c[lookup](%[base], %[ix], 8), %k[len]\n\t"    \
  "test %b[len], %b[len]\n\t"
// The symbol of entry ix of TABLE.
#define TAKE(I, W, TABLE)                           \
  "movzwl %c[" TABLE "]+4(%[base], %[ix], 8), %k[value]\n\t" \
  "movzbl %c[" TABLE "]+1(%[base], %[ix], 8), %k[at]\n\t"    \
  "bextr %[value], %[" W "], %[value]\n\t"          \
  "add %[p" I "], %[at]\n\t"                        \
  "addw %c[" TABLE "]+6(%[base], %[ix], 8), %w[value]\n\t"   \
  "movsbq %c[" TABLE "]+2(%[base], %[ix], 8), %[p" I "]\n\t" \
  "and %[at], %[p" I "]\n\t"                        \
  "movw %w[value], %c[out]-2+%c[out_stride]*" I "(%[base], %[at], 2)\n\t" \
  "add %[len], %[b" I "]\n\t"
#define SYMBOL(I, W) LOOK_UP(I, W) "js 2" I "f\n\t" TAKE(I, W, "lookup")
#define SHIFT(W) "shlx %[len], %[" W "], %[" W "]\n\t"
#define UNLESS_DONE(I)                              \
  "cmp %c[end]+24*" I "(%[base]), %[p" I "]\n\t"    \
  "jae 1" I "f\n\t"
// Two symbols of each of two streams in turn; label 3I: behind them.
#define TURN(I, J)                                  \
  WINDOW(I, "w0") WINDOW(J, "w1")                   \
  SYMBOL(I, "w0") SHIFT("w0")                       \
  SYMBOL(J, "w1") SHIFT("w1")                       \
  SYMBOL(I, "w0") SYMBOL(J, "w1")                   \
  "3" I ":\n\t"                                     \
  UNLESS_DONE(I) UNLESS_DONE(J)
// Out of the way: a symbol that `lookup` does not hold, behind which the turn ends at label 3N; and leaving.
#define LONG_SYMBOL(I, N)                           \
  "2" I ":\n\t"                                     \
  WINDOW(I, "w0")                                   \
  LOOK_UP(I, "w0")                                  \
  "movzwl %c[lookup]+4(%[base], %[ix], 8), %k[value]\n\t" \
  "mov %[w0], %[ix]\n\t"                            \
  "shl $9, %[ix]\n\t"                               \
  "shl $8, %[value]\n\t"                            \
  "shr $56, %[ix]\n\t"                              \
  "add %[value], %[ix]\n\t"                         \
  "movzbl %c[second](%[base], %[ix], 8), %k[len]\n\t" \
  "test %b[len], %b[len]\n\t"                       \
  "js 4" I "f\n\t"                                  \
  TAKE(I, "w0", "second")                           \
  "jmp 3" N "b\n"                                    \
  "4" I ":\n\tmov $8+" I ", %k[ix]\n\tjmp 9f\n"      \
  "1" I ":\n\tmov $" I ", %k[ix]\n\tjmp 9f\n"

int DecodeTurnsX86(EntropyContext* context) {
  char* const base = reinterpret_cast<char*>(context) + kBias;
  auto& streams = context->streams;
  static_assert(kMaxStreams == 4 && kSymbolsPerTurn == 2 && kLookupBits == 9 && kSecondBits == 8 && kSlowEntry == 0x80 &&
                kSlowTurn == 8 && sizeof(streams[0]) == 24);
  uint64_t w0, w1, ix, len, value, at;
  asm(".p2align 5\n"
      "8:\n\t"
      TURN("0", "1") TURN("2", "3")
      "jmp 8b\n"
      LONG_SYMBOL("0", "0") LONG_SYMBOL("1", "0") LONG_SYMBOL("2", "2") LONG_SYMBOL("3", "2")
      "9:\n\t"
      : [b0] "+r"(streams[0].bit), [b1] "+r"(streams[1].bit), [b2] "+r"(streams[2].bit), [b3] "+r"(streams[3].bit),
        [p0] "+r"(streams[0].position), [p1] "+r"(streams[1].position), [p2] "+r"(streams[2].position),
        [p3] "+r"(streams[3].position), [w0] "=&r"(w0), [w1] "=&r"(w1), [ix] "=&r"(ix), [len] "=&r"(len),
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
