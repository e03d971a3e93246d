// Is this built with a sanitizer? Under one a test that tries thousands of samples tries fewer:
// what a sanitizer sees, it sees in few of them. The undefined behaviour sanitizer of GCC does not
// tell, and slows down little.

#pragma once

#if defined(__has_feature)
#define DTENSOR_HAS_FEATURE(x) __has_feature(x)
#else
#define DTENSOR_HAS_FEATURE(x) 0
#endif

namespace dtensor::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                   \
    DTENSOR_HAS_FEATURE(address_sanitizer) || DTENSOR_HAS_FEATURE(thread_sanitizer) || \
    DTENSOR_HAS_FEATURE(undefined_behavior_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dtensor::testing

#undef DTENSOR_HAS_FEATURE
