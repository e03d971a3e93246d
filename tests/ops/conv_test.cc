#include "dtensor/ops/conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/pool.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Small whole numbers: every sum is exact in f32.
Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) - 6.0F;
  return floats(values, shape);
}

// y[b,o,i,j] = bias[o] + sum of x[b,c,i s + u d - p, j s + v d - p] w[o,c,u,v], by seven loops.
std::vector<float> by_loops(const Tensor& x, const Tensor& w, const std::vector<float>& bias,
                            const Conv2dOptions& o, int64_t out_h, int64_t out_w) {
  const std::vector<float> image = x.to_vector<float>();
  const std::vector<float> taps = w.to_vector<float>();
  const int64_t channels = w.size(1);
  const int64_t per_group = w.size(0) / o.groups;
  std::vector<float> y;
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t out = 0; out < w.size(0); ++out) {
      for (int64_t i = 0; i < out_h; ++i) {
        for (int64_t j = 0; j < out_w; ++j) {
          float sum = bias[static_cast<size_t>(out)];
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t from = out / per_group * channels + c;
            for (int64_t u = 0; u < w.size(2); ++u) {
              for (int64_t v = 0; v < w.size(3); ++v) {
                const int64_t r = i * o.stride[0] + u * o.dilation[0] - o.padding[0];
                const int64_t k = j * o.stride[1] + v * o.dilation[1] - o.padding[1];
                if (r < 0 || r >= x.size(2) || k < 0 || k >= x.size(3)) continue;
                sum += image[static_cast<size_t>(
                           ((b * x.size(1) + from) * x.size(2) + r) * x.size(3) + k)] *
                       taps[static_cast<size_t>(((out * channels + c) * w.size(2) + u) * w.size(3) +
                                                v)];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

TEST(Conv2d, IsALoopOverItsWindows) {
  const std::vector<float> bias = {1, -2, 3, 4};
  const std::vector<Conv2dOptions> all = {
      {},
      {.stride = {2, 3}},
      {.padding = {2, 1}},
      {.stride = {2, 1}, .padding = {3, 2}, .dilation = {2, 3}},
      {.padding = {1, 1}, .groups = 2},
      {.stride = {1, 2}, .padding = {0, 1}, .groups = 4},
  };
  for (const Conv2dOptions& o : all) {
    const Tensor x = numbers({2, 4, 7, 8});
    const Tensor w = numbers({4, 4 / o.groups, 3, 2});
    const DTensor y = conv2d(DTensor(x), DTensor(w), DTensor(floats(bias, {4})), o);
    EXPECT_EQ(piece(y), by_loops(x, w, bias, o, y.size(2), y.size(3)));
  }
}

// Large enough for several blocks of output rows, in every dtype.
TEST(Conv2d, OfAnImageOfManyBlocks) {
  const Tensor x = numbers({1, 3, 90, 70});
  const Tensor w = numbers({2, 3, 5, 5});
  const std::vector<float> want = by_loops(x, w, {0, 0}, {.padding = {2, 2}}, 90, 70);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const DTensor y = conv2d(DTensor(x.to(dtype)), DTensor(w.to(dtype)), {}, {.padding = {2, 2}});
    EXPECT_EQ(y.dtype(), dtype);
    // Sums are exact whole numbers; what they are rounded to is that of the dtype.
    EXPECT_EQ(y.local_tensor().to(DType::kFloat32).to_vector<float>(),
              floats(want, y.shape()).to(dtype).to(DType::kFloat32).to_vector<float>());
  }
}

TEST(Conv2d, CutChannelsArePartialAndTheBiasCountsOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const std::vector<float> bias = {10, 20, 30};
    const Tensor x = numbers({2, 3, 4, 4});
    const Tensor w = numbers({3, 3, 2, 2});
    const std::vector<float> want = by_loops(x, w, bias, {}, 3, 3);
    const DTensor b = replicate(DTensor(floats(bias, {3})), mesh);
    const DTensor in = conv2d(distribute(x, mesh, {Shard(1)}), distribute(w, mesh, {Shard(1)}), b);
    EXPECT_EQ(in.spec().placement(0), Partial());
    EXPECT_EQ(whole(in), want);
    const DTensor out = conv2d(distribute(x, mesh, {}), distribute(w, mesh, {Shard(0)}), b);
    EXPECT_EQ(out.spec().placement(0), Shard(1));
    EXPECT_EQ(whole(out), want);
    const DTensor batch = conv2d(distribute(x, mesh, {Shard(0)}), distribute(w, mesh, {}), b);
    EXPECT_EQ(batch.spec().placement(0), Shard(0));
    EXPECT_EQ(whole(batch), want);
    EXPECT_THAT(
        placement_error([&] { conv2d(distribute(x, mesh, {Shard(2)}), distribute(w, mesh, {})); }),
        HasSubstr("'h' may not be cut"));
  });
}

TEST(Conv2d, SaysWhatDoesNotFit) {
  const DTensor x(numbers({1, 4, 3, 3}));
  EXPECT_THROW(conv2d(x, DTensor(numbers({2, 3, 1, 1}))), ArgumentError);
  EXPECT_THROW(conv2d(x, DTensor(numbers({2, 4, 4, 1}))), ArgumentError);
  EXPECT_THROW(conv2d(x, DTensor(numbers({3, 2, 1, 1})), {}, {.groups = 2}), ArgumentError);
  EXPECT_THROW(conv2d(x, DTensor(numbers({2, 4, 1, 1})), {}, {.stride = {0, 1}}), ArgumentError);
  EXPECT_EQ(conv2d(DTensor(numbers({0, 4, 3, 3})), DTensor(numbers({2, 4, 2, 2}))).shape(),
            (Shape{0, 2, 2, 2}));
}

TEST(Pool2d, IsALoopOverItsWindows) {
  const Tensor x = numbers({2, 5, 6});
  const std::vector<float> v = x.to_vector<float>();
  const Pool2dOptions o{.size = {2, 3}, .stride = {{1, 2}}, .padding = {1, 1}};
  std::vector<float> most;
  std::vector<float> mean;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        float max = -INFINITY;
        float sum = 0.0F;
        for (int64_t r = i - 1; r < i + 1; ++r) {
          for (int64_t c = 2 * j - 1; c < 2 * j + 2; ++c) {
            if (r < 0 || r >= 5 || c < 0 || c >= 6) continue;
            const float value = v[static_cast<size_t>((b * 5 + r) * 6 + c)];
            max = std::fmax(max, value);
            sum += value;
          }
        }
        most.push_back(max);
        mean.push_back(sum / 6.0F);
      }
    }
  }
  const DTensor y = max_pool2d(DTensor(x), o);
  EXPECT_EQ(y.shape(), (Shape{2, 6, 3}));
  EXPECT_EQ(piece(y), most);
  EXPECT_EQ(piece(avg_pool2d(DTensor(x), o)), mean);
  EXPECT_THROW(max_pool2d(DTensor(x), {.size = {2, 2}, .padding = {2, 0}}), ArgumentError);
  EXPECT_THROW(avg_pool2d(DTensor(x), {.size = {7, 2}}), ArgumentError);
}

TEST(MaxPool2d, GivesTheGradientToTheFirstOfEqualElements) {
  DTensor x(floats({5, 5, 5, 0, 2, 3, 5, 4}, {2, 4}));
  x.set_requires_grad(true);
  sum(max_pool2d(x, {})).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(1, 0, 1, 0, 0, 0, 0, 0));
  const DTensor nan = max_pool2d(DTensor(floats({1, NAN, 7, 2}, {2, 2})), {});
  EXPECT_TRUE(std::isnan(nan.item()));
}

}  // namespace
}  // namespace dtensor
