// Tensors to a file and back, and a file that PyTorch wrote.

#include "dtensor/checkpoint/tensor_file.h"

#include <gtest/gtest.h>

#include "dtensor/base/error.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::TemporaryDirectory;

TEST(TensorFile, TensorsComeBackAlsoStridedAndEmptyOnes) {
  const TemporaryDirectory dir;
  const Tensor a = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor flags = Tensor::of<bool>({true, false, true}, {3});
  write_tensors(dir / "f", {{"a", a},
                            {"a.t", a.transpose(0, 1)},
                            {"empty", Tensor::empty({0, 4}, DType::kInt64)},
                            {"flags", flags},
                            {"scalar", Tensor::of<int8_t>({-7}, {})}});
  const auto back = read_tensors(dir / "f");
  ASSERT_EQ(back.size(), 5U);
  EXPECT_EQ(back.at("a").to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(back.at("a.t").shape(), (Shape{3, 2}));
  EXPECT_EQ(back.at("a.t").to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(back.at("empty").shape(), (Shape{0, 4}));
  EXPECT_EQ(back.at("flags").to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(back.at("scalar").to_vector<int8_t>(), std::vector<int8_t>{-7});
}

TEST(TensorFile, NamesWhatIsNotThereAndRefusesBoolsThatAreNone) {
  const TemporaryDirectory dir;
  write_tensors(dir / "f", {{"flags", Tensor::of<bool>({true, false}, {2})}});
  EXPECT_THROW(read_tensor(safetensors::File(dir / "f"), "flag"), CheckpointError);
  std::string bytes = testing::read_file(dir / "f");
  bytes.back() = 2;
  testing::write_file(dir / "f", bytes);
  EXPECT_THROW(read_tensor(safetensors::File(dir / "f"), "flags"), CheckpointError);
}

// 2^63 elements, times none: the file is a valid one, whose strides no Tensor can have.
TEST(TensorFile, SizesBeyond64BitsAreTheFilesFault) {
  const TemporaryDirectory dir;
  const std::string head =
      R"({"w":{"dtype":"F32","shape":[4294967296,2147483648,0],"data_offsets":[0,0]}})";
  testing::write_file(dir / "f",
                      std::string(1, static_cast<char>(head.size())) + std::string(7, '\0') + head);
  const safetensors::File file(dir / "f");
  try {
    read_tensor(file, "w");
    FAIL();
  } catch (const CheckpointError& e) {
    EXPECT_EQ(std::string(e.what()).rfind((dir / "f") + ": tensor \"w\": ", 0), 0U) << e.what();
  }
}

// Values as NumPy and the reference implementation read them.
TEST(TensorFile, ReadsAFileThatPyTorchWrote) {
  const auto tensors = read_tensors("tests/data/uneven/model.safetensors");
  ASSERT_EQ(tensors.size(), 30U);
  const Tensor& head = tensors.at("lm_head.weight");
  EXPECT_EQ(head.shape(), (Shape{257, 60}));
  EXPECT_EQ(head.data<float>()[0], 0.032712701708078384F);
  EXPECT_EQ(head.data<float>()[257 * 60 - 1], -0.02333141677081585F);
  const Tensor& key = tensors.at("model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(key.data<float>()[3 * 60 + 5], 0.001386795425787568F);
  double sum = 0;
  for (const auto& [name, tensor] : tensors) {
    for (const float v : tensor.to_vector<float>()) sum += v;
  }
  EXPECT_NEAR(sum, 420.7800532726602, 1e-9);  // in double: only the order of additions differs
}

}  // namespace
}  // namespace dtensor::checkpoint
