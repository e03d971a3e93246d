#include "dtensor/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/shape.h"

namespace dtensor {
namespace {

using Floats = std::vector<float>;

Tensor counting(const Shape& shape) { return Tensor::arange(shape.numel()).view(shape); }

TEST(Tensor, HoldsValuesRowMajor) {
  const Tensor t = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.strides(), (Shape{3, 1}));
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.size_bytes(), 24);
  EXPECT_EQ(t.data<float>()[4], 5.0F);
  EXPECT_EQ(t.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST(Tensor, MakesScalarsAndEmptyTensors) {
  EXPECT_EQ(Tensor::full({}, 2.5).to_vector<float>(), Floats{2.5});
  const Tensor none = Tensor::zeros({3, 0, 2});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_TRUE(none.transpose(0, 2).contiguous().to_vector<float>().empty());
  EXPECT_FALSE(Tensor().defined());
  const Tensor flags = Tensor::of<bool>({true, false}, {2});
  EXPECT_EQ(flags.to_vector<bool>(), (std::vector<bool>{true, false}));
}

TEST(Tensor, CountsInEveryDType) {
  EXPECT_EQ(Tensor::arange(3, DType::kInt64).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(Tensor::arange(3, DType::kFloat64).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_TRUE(Tensor::arange(0).to_vector<float>().empty());
}

TEST(Tensor, RefusesValuesThatDoNotFit) {
  EXPECT_THROW(Tensor::of<float>({1, 2, 3}, {2, 2}), ArgumentError);
  EXPECT_THROW(Tensor::empty({2, -1}), ArgumentError);
  EXPECT_THROW(static_cast<void>(Tensor::zeros({2}).data<double>()), ArgumentError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 62, 4}), ArgumentError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 61}, DType::kFloat64), ArgumentError);
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor t = counting({3, 4});
  EXPECT_EQ(t.narrow(0, 1, 2).to_vector<float>(), (Floats{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(t.narrow(-1, 2, 2).to_vector<float>(), (Floats{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(t.transpose(0, 1).to_vector<float>(), (Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(t.narrow(0, 3, 0).numel(), 0);
  t.narrow(0, 1, 1).narrow(1, 2, 1).data<float>()[0] = -1;
  EXPECT_EQ(t.data<float>()[6], -1.0F);
  EXPECT_EQ(t.storage(), t.transpose(0, 1).storage());
}

TEST(Tensor, RefusesViewsThatLeaveTheTensor) {
  const Tensor t = counting({3, 4});
  EXPECT_THROW(t.narrow(0, 2, 2), ArgumentError);
  EXPECT_THROW(t.narrow(0, -1, 2), ArgumentError);
  EXPECT_THROW(t.narrow(0, 1, std::numeric_limits<int64_t>::max()), ArgumentError);
  EXPECT_THROW(t.narrow(2, 0, 1), ArgumentError);
  EXPECT_THROW(t.as_strided({4}, {4}, 0), ArgumentError);
  EXPECT_THROW(t.as_strided({2}, {-1}, 3), ArgumentError);
  EXPECT_EQ(t.as_strided({4}, {3}, 2).to_vector<float>(), (Floats{2, 5, 8, 11}));
}

TEST(Tensor, PermutesAndExpands) {
  const Tensor t = counting({2, 3, 2});
  const std::vector<int> order{2, 0, 1};
  EXPECT_EQ(t.permute(order).shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(t.permute(order).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_THROW(t.permute(std::vector<int>{0, 0, 1}), ArgumentError);
  EXPECT_THROW(t.permute(std::vector<int>{0, 1}), ArgumentError);
  const Tensor column = Tensor::of<float>({1, 2}, {2, 1});
  EXPECT_EQ(column.expand({2, 2, 3}).to_vector<float>(),
            (Floats{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_THROW(column.expand({3, 3}), ArgumentError);
  EXPECT_THROW(column.expand({2}), ArgumentError);
}

TEST(Tensor, ViewsAndReshapesAgreeWithACopy) {
  // Every source, view or not, against the same elements in fresh memory.
  const std::vector<Tensor> sources{
      counting({4, 6}),
      counting({4, 6}).transpose(0, 1),
      counting({8, 6}).narrow(0, 2, 4),
      counting({4, 12}).narrow(1, 3, 6),
      counting({2, 3, 4}).transpose(0, 2),
      counting({1, 4, 1, 6}).transpose(0, 2),
      Tensor::of<float>({1, 2, 3, 4}, {4, 1}).expand({4, 6}),
  };
  const std::vector<Shape> shapes{{24},      {4, 6},    {6, 4},       {2, 2, 6}, {4, 2, 3},
                                  {2, 12},   {24, 1},   {1, 24},      {12, 2},   {2, 3, 4},
                                  {3, 2, 4}, {4, 1, 6}, {1, 4, 6, 1}, {8, 3}};
  int views = 0;
  for (const Tensor& source : sources) {
    const Floats want = source.to_vector<float>();
    for (const Shape& shape : shapes) {
      EXPECT_EQ(source.reshape(shape).to_vector<float>(), want);
      EXPECT_EQ(source.reshape(shape).shape(), shape);
      try {
        const Tensor view = source.view(shape);
        EXPECT_EQ(view.to_vector<float>(), want) << to_string(shape);
        EXPECT_EQ(view.storage(), source.storage());
        ++views;
      } catch (const ArgumentError&) {
        EXPECT_FALSE(source.is_contiguous());
      }
    }
  }
  EXPECT_GT(views, 40);
  EXPECT_THROW(counting({4, 6}).view({5, 5}), ArgumentError);
  EXPECT_THROW(counting({4, 6}).transpose(0, 1).view({24}), ArgumentError);
  EXPECT_EQ(counting({4, 12}).narrow(1, 0, 6).view({2, 2, 6}).strides(), (Shape{24, 12, 1}));
}

TEST(Tensor, CopiesAreContiguousAndApart) {
  const Tensor t = counting({2, 3}).transpose(0, 1);
  EXPECT_FALSE(t.is_contiguous());
  const Tensor c = t.contiguous();
  EXPECT_TRUE(c.is_contiguous());
  EXPECT_NE(c.storage(), t.storage());
  EXPECT_EQ(c.contiguous().storage(), c.storage());
  EXPECT_NE(c.clone().storage(), c.storage());
  EXPECT_EQ(c.to(DType::kFloat32).storage(), c.storage());
  EXPECT_EQ(c.to(DType::kInt32).to_vector<int32_t>(), (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Tensor, IsContiguousWhateverTheStridesOfDimsOfSizeOne) {
  EXPECT_TRUE(counting({3, 1}).transpose(0, 1).is_contiguous());
  EXPECT_TRUE(counting({4, 2}).narrow(0, 1, 1).transpose(0, 1).narrow(0, 0, 2).is_contiguous());
  EXPECT_FALSE(counting({4, 2}).narrow(1, 0, 1).is_contiguous());
}

TEST(Tensor, IsNotReadWhileItsStorageIsEmpty) {
  const Tensor t = counting({4});
  t.storage()->release();
  EXPECT_THROW(static_cast<void>(t.raw()), InternalError);
  EXPECT_EQ(t.narrow(0, 0, 0).raw(), nullptr);
  t.storage()->refill();
  EXPECT_NE(t.raw(), nullptr);
}

TEST(Tensor, WrapsForeignMemory) {
  auto owner = std::make_shared<Floats>(Floats{1, 2, 3, 4});
  const Tensor t = Tensor::wrap(owner->data(), {2, 2}, DType::kFloat32, owner);
  (*owner)[3] = 9;
  EXPECT_EQ(t.to_vector<float>(), (Floats{1, 2, 3, 9}));
}

}  // namespace
}  // namespace dtensor
