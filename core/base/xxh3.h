// xxHash with its functions for the processor at hand: the plain header takes SSE2 on x86, half as fast.
#pragma once

#include <xxhash.h>

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif
