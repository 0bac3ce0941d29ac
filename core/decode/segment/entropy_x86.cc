#include "core/decode/segment/entropy_x86.h"

#if HEADRACE_ENTROPY_ASM

#include "core/decode/segment/kernels.h"

namespace headrace {
namespace {

// Shifts take their count from the low six bits of a register. The base register points 54 bytes into the context, which
// is aligned to 64: so it is its own shift count for the index into a table of 10 bits.
constexpr int kBias = 64 - kLookupBits;
constexpr int Offset(size_t offset) { return static_cast<int>(offset) - kBias; }

}  // namespace

// One symbol: 15 instructions. ix: the entry; len: its bits; value; at: position + advance.
#define SYMBOL(I, SLOW)                             \
  "shrx %[base], %[window], %[ix]\n\t"              \
  "addw %c[table_of](%[base], %[p" I "], 2), %w[ix]\n\t" \
  "movzbl %c[lookup](%[base], %[ix], 8), %k[len]\n\t"    \
  "test %b[len], %b[len]\n\t"                       \
  "js " SLOW "f\n\t"                                \
  "movzwl %c[lookup]+4(%[base], %[ix], 8), %k[value]\n\t" \
  "movzbl %c[lookup]+1(%[base], %[ix], 8), %k[at]\n\t"    \
  "bextr %[value], %[window], %[value]\n\t"         \
  "add %[p" I "], %[at]\n\t"                        \
  "addw %c[lookup]+6(%[base], %[ix], 8), %w[value]\n\t"   \
  "movsbq %c[lookup]+2(%[base], %[ix], 8), %[p" I "]\n\t" \
  "movzwl %c[place]-2(%[base], %[at], 2), %k[ix]\n\t"     \
  "and %[at], %[p" I "]\n\t"                        \
  "movw %w[value], %c[out]+%c[out_stride]*" I "(%[base], %[ix], 2)\n\t"   \
  "add %[len], %[b" I "]\n\t"
#define NEXT_WINDOW "shlx %[len], %[window], %[window]\n\t"
#define TURN(I, END, SLOW)                          \
  "mov %[b" I "], %[at]\n\t"                        \
  "mov %k[b" I "], %k[len]\n\t"                     \
  "shr $3, %[at]\n\t"                               \
  "and $7, %k[len]\n\t"                             \
  "mov %c[bytes](%[base], %[at]), %[window]\n\t"    \
  "bswap %[window]\n\t"                            \
  NEXT_WINDOW                                       \
  SYMBOL(I, SLOW) NEXT_WINDOW SYMBOL(I, SLOW) NEXT_WINDOW SYMBOL(I, SLOW) \
  "cmp %c[end]+24*" I "(%[base]), %[p" I "]\n\t"        \
  "jae " END "f\n\t"

int DecodeTurnsX86(EntropyContext* context) {
  char* const base = reinterpret_cast<char*>(context) + kBias;
  auto& streams = context->streams;
  static_assert(kMaxStreams == 4 && kSymbolsPerTurn == 3 && kSlowEntry == 0x80 && kSlowTurn == 8 && sizeof(streams[0]) == 24);
  uint64_t window, ix, len, value, at;
  asm(".p2align 5\n"
      "1:\n\t"
      TURN("0", "10", "20") TURN("1", "11", "21") TURN("2", "12", "22") TURN("3", "13", "23")
      "jmp 1b\n"
      "10:\n\txor %k[ix], %k[ix]\n\tjmp 9f\n"
      "11:\n\tmov $1, %k[ix]\n\tjmp 9f\n"
      "12:\n\tmov $2, %k[ix]\n\tjmp 9f\n"
      "13:\n\tmov $3, %k[ix]\n\tjmp 9f\n"
      "20:\n\tmov $8, %k[ix]\n\tjmp 9f\n"
      "21:\n\tmov $9, %k[ix]\n\tjmp 9f\n"
      "22:\n\tmov $10, %k[ix]\n\tjmp 9f\n"
      "23:\n\tmov $11, %k[ix]\n"
      "9:\n\t"
      : [b0] "+r"(streams[0].bit), [b1] "+r"(streams[1].bit), [b2] "+r"(streams[2].bit), [b3] "+r"(streams[3].bit),
        [p0] "+r"(streams[0].position), [p1] "+r"(streams[1].position), [p2] "+r"(streams[2].position),
        [p3] "+r"(streams[3].position), [window] "=&r"(window), [ix] "=&r"(ix), [len] "=&r"(len),
        [value] "=&r"(value), [at] "=&r"(at)
      : [base] "r"(base), [table_of] "i"(Offset(offsetof(EntropyContext, table_of))),
        [lookup] "i"(Offset(offsetof(EntropyContext, lookup))), [place] "i"(Offset(offsetof(EntropyContext, place))),
        [bytes] "i"(Offset(offsetof(EntropyContext, bytes))),
        [out] "i"(Offset(offsetof(EntropyContext, coefficients))), [out_stride] "i"(kStreamCoefficients * 2),
        [end] "i"(Offset(offsetof(EntropyContext, streams) + offsetof(EntropyContext::Stream, end)))
      : "cc", "memory");
  return static_cast<int>(ix);
}

}  // namespace headrace

#endif  // HEADRACE_ENTROPY_ASM
