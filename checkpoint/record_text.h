// The fixed parts of a commit record's text. Internal.

#pragma once

#include <cstdint>
#include <string_view>

namespace dtensor::checkpoint::record_text {

inline constexpr std::string_view kFormat = "dtensor checkpoint record";
inline constexpr int64_t kVersion = 1;
// The file is exactly kBefore, the CRC of the body, kBetween, the body, kAfter: legal JSON of
// which every byte is checked.
inline constexpr std::string_view kBefore = R"({"crc32c":")";
inline constexpr std::string_view kBetween = R"(","record":)";
inline constexpr std::string_view kAfter = "}\n";

}  // namespace dtensor::checkpoint::record_text
