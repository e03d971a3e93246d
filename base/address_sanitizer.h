// Is this built with address sanitizer? It finds the use of freed memory only where that is freed,
// so that nothing may be kept for the next one who asks.

#pragma once

#include "dtensor/base/language.h"

namespace dtensor {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace dtensor
