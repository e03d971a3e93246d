#include "dtensor/checkpoint/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace dtensor::checkpoint {
namespace {

TEST(StreamCopy, CopiesThoseBytesAndNoOthers) {
  for (const size_t bytes : {0, 1, 65535, 65536, 65600, 100003}) {
    for (const size_t shift : {0, 1, 17, 63}) {
      std::vector<std::byte> from(bytes + 64);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
      std::vector<std::byte> to(bytes + 200, std::byte{0xa5});
      std::vector<std::byte> want = to;
      for (size_t i = 0; i < bytes; ++i) want[shift + i] = from[i + 3];
      stream_copy(&to[shift], &from[3], bytes);
      EXPECT_EQ(to, want) << bytes << " bytes at " << shift;
    }
  }
}

}  // namespace
}  // namespace dtensor::checkpoint
