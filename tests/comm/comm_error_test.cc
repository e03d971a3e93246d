#include "dtensor/comm/comm_error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace dtensor::comm {
namespace {

TEST(CommError, TheMessageSaysWhatWasAskedWhatWasFoundAndWhatToDo) {
  const CommError error({.kind = CommErrorKind::kPeerLost,
                         .culprit = 3,
                         .proved = true,
                         .op = {OpKind::kAllGather, 41, 1024, "weights"},
                         .elapsed = std::chrono::milliseconds(100),
                         .comm = "dp",
                         .size = 4,
                         .detail = "connection reset"});
  EXPECT_STREQ(
      error.what(),
      "all_gather_v #41 \"weights\" on \"dp\" (4 ranks, 1024 bytes here): PeerLost, rank 3 "
      "(proved) after 0.10 s: connection reset; this Comm is closed. Form a new one of "
      "the ranks that live, or restart from the last checkpoint.");
}

TEST(CommError, ASuspectIsCalledOneAndNobodyIsNotNamed) {
  const std::string suspected =
      CommError({.kind = CommErrorKind::kTimeout, .culprit = 2, .detail = "it does not answer"})
          .what();
  EXPECT_NE(suspected.find("Timeout, rank 2 (suspected)"), std::string::npos) << suspected;
  const std::string nobody =
      CommError({.kind = CommErrorKind::kMismatch, .detail = "both calls"}).what();
  EXPECT_EQ(nobody.find("rank -1"), std::string::npos) << nobody;
  EXPECT_NE(nobody.find("same calls in the same order"), std::string::npos) << nobody;
}

}  // namespace
}  // namespace dtensor::comm
