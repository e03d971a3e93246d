#include "dtensor/ops/nan_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

// inf - inf at [3,1], which rank 1 holds as its row 1.
TEST(NanScope, NamesOpCallRankAndGlobalIndex) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor x = distribute(floats({0, 1, 2, 3, 4, 5, 6, kInf}, {4, 2}), mesh, {Shard(0)});
    const ops::NanScope scope;
    const std::string text = error_of([&] { sub(neg(x), neg(x)); });
    if (comm.rank() == 0) {
      EXPECT_EQ(text, "");
      // In its next collective it hears the same.
      EXPECT_THAT(error_of([&] { sum(x).item(); }),
                  AllOf(HasSubstr("sub ("), HasSubstr("first NaN on rank 1, at [3,1]")));
    } else {
      EXPECT_THAT(text, AllOf(HasSubstr("sub ("), HasSubstr("nan_scope_test.cc:"),
                              HasSubstr("first NaN on rank 1, at [3,1] of f32[4,2] [d:S(0)]")));
    }
  });
}

TEST(NanScope, LetsThroughWhatCameWithANan) {
  const DTensor x(floats({1, std::numeric_limits<float>::quiet_NaN()}, {2}));
  const ops::NanScope scope;
  EXPECT_EQ(error_of([&] { sum(mul(neg(x), 2.0)); }), "");
}

// Forward is finite; the gradient of relu's input is inf, and scaled by 0 a NaN.
TEST(NanScope, SeesBackwardAndEndsWithTheScope) {
  DTensor x(floats({0}, {1}));
  x.set_requires_grad(true);
  const DTensor factor(floats({kInf}, {1}));
  const auto run = [&] {
    DTensor loss = sum(mul(relu(add(mul(x, 0.0), 1.0)), factor));
    loss.backward();
  };
  EXPECT_EQ(error_of(run), "");
  {
    const ops::NanScope scope;
    EXPECT_THAT(error_of(run),
                AllOf(HasSubstr("scale in backward of scale ("), HasSubstr("nan_scope_test.cc:"),
                      HasSubstr("gave the first NaN on rank 0, at [0] of f32[1]")));
  }
  EXPECT_EQ(error_of(run), "");
}

}  // namespace
}  // namespace dtensor
