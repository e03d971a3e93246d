// The code of docs/checkpoint.md, run.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor {
namespace {

int64_t train_or_go_on(const std::string& run, nn::Module& model, optim::Optimizer& optimizer,
                       int64_t steps, const std::function<void()>& train_step) {
  int64_t step = checkpoint::load(run, {.model = model, .optimizer = optimizer}).value_or(0);
  while (step < steps) {
    train_step();
    checkpoint::save(run, ++step, {.model = model, .optimizer = optimizer});
  }
  return step;
}

void save_with_position(const std::string& run, int64_t step, nn::Module& model,
                        int64_t samples_seen) {
  std::map<std::string, int64_t> numbers = {{"samples_seen", samples_seen}};
  checkpoint::save(run, step, {.model = model, .numbers = numbers});
}

void convert(const std::string& from, const std::string& to, nn::Module& model,
             const std::string& config_json) {
  checkpoint::import_hugging_face(from, model);
  checkpoint::export_hugging_face(to, model, {.config_json = config_json});
}

TEST(CheckpointDocs, ARunGoesOnWhereItWas) {
  const testing::TemporaryDirectory dir;
  for (const int64_t steps : {2, 5}) {
    testing::Bag model;
    const auto w = model.add("w", DTensor(Tensor::zeros({2})));
    optim::SGD optimizer(model.parameters(), {.lr = 0.1});
    const auto train_step = [&] {
      const Tensor value = w.value().local_tensor();
      kernels::add(value, Tensor::full({2}, 1), value);
    };
    EXPECT_EQ(train_or_go_on(dir / "run", model, optimizer, steps, train_step), steps);
    EXPECT_EQ(w.value().local_tensor().data<float>()[1], static_cast<float>(steps));
  }
}

TEST(CheckpointDocs, NumbersAndHuggingFaceDirectoriesComeBack) {
  const testing::TemporaryDirectory dir;
  testing::Bag model;
  const auto w = model.add("w", DTensor(Tensor::full({2}, 3)));
  save_with_position(dir / "run", 4, model, 640);
  std::map<std::string, int64_t> numbers;
  EXPECT_EQ(checkpoint::load(dir / "run", {.model = model, .numbers = numbers}), 4);
  EXPECT_EQ(numbers.at("samples_seen"), 640);

  checkpoint::export_hugging_face(dir / "hf", model);
  kernels::fill(w.value().local_tensor(), 0);
  convert(dir / "hf", dir / "copy", model, "{}");
  EXPECT_EQ(w.value().local_tensor().data<float>()[0], 3);
  EXPECT_EQ(testing::read_file(dir / "copy/model.safetensors"),
            testing::read_file(dir / "hf/model.safetensors"));
}

}  // namespace
}  // namespace dtensor
