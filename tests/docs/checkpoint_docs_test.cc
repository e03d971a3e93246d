// The code of docs/checkpoint.md, run.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtensor/base/cut.h"
#include "dtensor/base/philox.h"
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

int64_t go_on(const std::string& run, nn::Module& model, optim::Optimizer& optimizer,
              Generator& generator, checkpoint::DataPosition& data, int64_t steps, int64_t batch,
              const std::function<void(Range samples)>& train_step, int dp_rank, int dp_size) {
  std::map<std::string, std::string> json = {{"scheduler", R"({"last_lr": 0.001})"}};
  const checkpoint::State state{
      .model = model, .optimizer = optimizer, .generator = generator, .data = data, .json = json};
  checkpoint::SaveTimer timer({.steps = 500, .time = std::chrono::minutes(30)});
  int64_t step = checkpoint::load(run, state).value_or(0);
  while (step < steps) {
    train_step(data.next(batch, dp_rank, dp_size));
    data.advance(batch);
    if (timer.is_due(++step)) {
      checkpoint::save_async(run, step, state,
                             {.retention = {.keep_last = 3, .keep_every = 10000}});
    }
  }
  checkpoint::save(run, step, state);
  return step;
}

int64_t load_backbone(const std::string& run, nn::Module& model) {
  checkpoint::LoadReport report;
  checkpoint::load(run, {.model = model},
                   {.include = {"layers.**", "embed.*"},  // * stays inside a part of a name
                    .exclude = {"layers.*.adapter.**"},   // ** is anything
                    .stored_as = {{"embed.weight", "wte.weight"}},
                    .dtypes = checkpoint::DTypeChange::kConvert,
                    .unexpected = checkpoint::Unexpected::kIgnore,
                    .check = checkpoint::DataCheck::kBeforeReading,
                    .report = &report});
  return report.bytes_read;
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

TEST(CheckpointDocs, APositionGoesOnWithOtherRanks) {
  const testing::TemporaryDirectory dir;
  testing::Bag model;
  const auto w = model.add("w", DTensor(Tensor::full({2}, 3)));
  optim::SGD optimizer(model.parameters(), {.lr = 0.1});
  std::vector<Range> read;
  for (const int parts : {4, 3}) {
    Generator generator;
    checkpoint::DataPosition data;
    const int64_t steps = parts == 4 ? 3 : 4;
    EXPECT_EQ(go_on(
                  dir / "run", model, optimizer, generator, data, steps, 8,
                  [&](Range samples) { read.push_back(samples); }, 1, parts),
              steps);
  }
  EXPECT_EQ(read, (std::vector<Range>{{2, 4}, {10, 12}, {18, 20}, {27, 30}}));
}

TEST(CheckpointDocs, HuggingFaceDirectoriesComeBack) {
  const testing::TemporaryDirectory dir;
  testing::Bag model;
  const auto w = model.add("w", DTensor(Tensor::full({2}, 3)));
  checkpoint::export_hugging_face(dir / "hf", model);
  kernels::fill(w.value().local_tensor(), 0);
  convert(dir / "hf", dir / "copy", model, "{}");
  EXPECT_EQ(w.value().local_tensor().data<float>()[0], 3);
  EXPECT_EQ(testing::read_file(dir / "copy/model.safetensors"),
            testing::read_file(dir / "hf/model.safetensors"));
}

TEST(CheckpointDocs, OptionsSayWhatIsLoaded) {
  const testing::TemporaryDirectory dir;
  testing::Bag saved;
  saved.add("wte.weight", DTensor(Tensor::full({3}, 5)));
  saved.add("layers.0.w", DTensor(Tensor::full({2}, 6)));
  saved.add("lm_head", DTensor(Tensor::full({2}, 7)));
  checkpoint::save(dir.path(), 1, {.model = saved});
  testing::Bag model;
  const auto embed = model.add("embed.weight", DTensor(Tensor::zeros({3}, DType::kBFloat16)));
  const auto w = model.add("layers.0.w", DTensor(Tensor::zeros({2})));
  const auto adapter = model.add("layers.0.adapter.a", DTensor(Tensor::zeros({2})));
  EXPECT_GT(load_backbone(dir.path(), model), 0);
  EXPECT_EQ(embed.value().local_tensor().to(DType::kFloat32).to_vector<float>(),
            (std::vector<float>{5, 5, 5}));
  EXPECT_EQ(w.value().local_tensor().to_vector<float>(), (std::vector<float>{6, 6}));
  EXPECT_EQ(adapter.value().local_tensor().to_vector<float>(), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace dtensor
