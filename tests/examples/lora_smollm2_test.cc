// Fine-tuning SmolLM2-135M by low-rank adapters on two ranks, fully sharded. By hand:
// docs/examples.md says how the weights come about. The text is a licence, cut into tokens
// greedily: the longest token of the vocabulary that fits, which is not what a tokenizer does, and
// as good a text to learn.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/examples/llama/config.h"
#include "dtensor/examples/llama/model.h"
#include "dtensor/examples/llama/parallel.h"
#include "dtensor/nn/lora.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::testing {
namespace {

constexpr int kSteps = 50;
constexpr int64_t kRows = 4;
constexpr int64_t kLength = 64;

std::string model_dir() {
  const char* dir = std::getenv("SMOLLM2_DIR");
  if (dir == nullptr) throw std::runtime_error("set SMOLLM2_DIR (--test_env=SMOLLM2_DIR=...)");
  return dir;
}

// In a byte-level vocabulary a space is U+0120 and a newline U+010A; other ASCII is itself.
std::string as_in_vocabulary(char c) {
  if (c == ' ') return "\u0120";
  return c == '\n' ? "\u010a" : std::string(1, c);
}

std::vector<int64_t> tokens_of_text() {
  std::ifstream vocabulary(model_dir() + "/tokens.json");
  const auto names = nlohmann::json::parse(vocabulary).at("tokens").get<std::vector<std::string>>();
  std::unordered_map<std::string, int64_t> ids;
  for (size_t i = 0; i < names.size(); ++i) ids.emplace(names[i], static_cast<int64_t>(i));
  std::ifstream file("/usr/share/common-licenses/GPL-3");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<int64_t> tokens;
  for (size_t at = 0; at < text.size();) {
    std::string name;
    size_t taken = 1;
    int64_t best = ids.at(as_in_vocabulary(text[at]));
    for (size_t n = 0; n < 24 && at + n < text.size(); ++n) {
      name += as_in_vocabulary(text[at + n]);
      if (const auto it = ids.find(name); it != ids.end()) {
        best = it->second;
        taken = n + 1;
      }
    }
    tokens.push_back(best);
    at += taken;
  }
  return tokens;
}

// Rows one after the other; `shift` 1 gives the targets.
Tensor batch_of(const std::vector<int64_t>& tokens, int step, int64_t shift) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows * kLength; ++i) {
    const auto at = static_cast<size_t>(step * kRows * kLength + i + shift);
    ids.push_back(tokens[at % tokens.size()]);
  }
  return Tensor::of<int64_t>(ids, {kRows, kLength});
}

double mean_of(std::vector<double>::const_iterator begin, std::vector<double>::const_iterator end) {
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

TEST(LoraSmolLM2, LearnsATextAndChangesTheAdaptersOnly) {
  const std::vector<int64_t> tokens = tokens_of_text();
  run_ranks(2,
            [&](comm::Comm& world) {
              examples::Llama model(examples::read_config(model_dir() + "/config.json"));
              checkpoint::import_hugging_face(model_dir(), model);
              nn::add_lora(model, {.rank = 8, .linears = {"q_proj", "v_proj"}});
              const DeviceMesh mesh(world, {{"dp", 2}});
              examples::parallelize(model, mesh, {});
              std::map<std::string, std::vector<float>> before;
              for (const auto& [name, p] : model.named_parameters())
                before[name] = piece(p.value());
              optim::AdamW optimizer(nn::trainable_parameters(model),
                                     {.lr = 2e-3, .weight_decay = 0.0});
              std::vector<double> losses;
              for (int step = 0; step < kSteps; ++step) {
                const DTensor x = examples::place_batch(batch_of(tokens, step, 0), mesh);
                const DTensor targets = examples::place_batch(batch_of(tokens, step, 1), mesh);
                DTensor loss = nn::cross_entropy(model(x), targets);
                loss.backward();
                optim::clip_grad_norm(nn::trainable_parameters(model), 1.0);
                optimizer.step();
                optimizer.zero_grad();
                losses.push_back(loss.item());
                if (world.rank() == 0) std::printf("step %d loss %.4f\n", step, losses.back());
              }
              const double first = mean_of(losses.begin(), losses.begin() + 10);
              const double last = mean_of(losses.end() - 10, losses.end());
              if (world.rank() == 0) std::printf("first 10: %.4f, last 10: %.4f\n", first, last);
              EXPECT_LT(last, 0.9 * first);
              for (const auto& [name, p] : model.named_parameters()) {
                EXPECT_EQ(piece(p.value()) != before[name], is_adapter(name)) << name;
              }
            },
            {}, {.limit = std::chrono::seconds(1800)});
}

}  // namespace
}  // namespace dtensor::testing
