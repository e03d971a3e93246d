#include "dtensor/examples/llama/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>

#include "dtensor/base/error.h"
#include "dtensor/examples/llama/parallel.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor::examples {
namespace {

// The logits of the last of these tokens, whole, as float32 [v].
Tensor next_logits(Llama& model, const DeviceMesh& mesh, std::span<const int64_t> tokens) {
  const Tensor ids = Tensor::of<int64_t>(tokens, {1, static_cast<int64_t>(tokens.size())});
  const DTensor logits = model(place_batch(ids, mesh));
  return full(logits).to(DType::kFloat32).contiguous().view({logits.size(-1)});
}

void check_prompt(const std::vector<int64_t>& prompt, const LlamaConfig& config) {
  if (prompt.empty()) throw ArgumentError("generate: the prompt is empty; give at least one id");
  for (const int64_t id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      throw ArgumentError(fmt::format("generate: the prompt has id {}; ids are 0 to {}", id,
                                      config.vocab_size - 1));
    }
  }
}

// NaN is neither larger nor smaller than another: none is the next id.
void check_numbers(const Tensor& logits, int64_t position) {
  const auto values = logits.to_vector<float>();
  const auto nan = std::ranges::find_if(values, [](float x) { return std::isnan(x); });
  if (nan == values.end()) return;
  throw Error(
      fmt::format("generate: the logit of id {} at position {} is NaN; are the model's parameters "
                  "numbers, and within the range of --dtype?",
                  nan - values.begin(), position));
}

}  // namespace

std::vector<std::pair<int64_t, float>> largest(const Tensor& logits, int64_t count) {
  const auto values = logits.to_vector<float>();
  std::vector<int64_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto by_value = [&](int64_t a, int64_t b) {
    const float x = values[static_cast<size_t>(a)];
    const float y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto kept = std::min<int64_t>(count, static_cast<int64_t>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), by_value);
  std::vector<std::pair<int64_t, float>> out;
  for (int64_t i = 0; i < kept; ++i) {
    const int64_t id = ids[static_cast<size_t>(i)];
    out.emplace_back(id, values[static_cast<size_t>(id)]);
  }
  return out;
}

Generation generate(Llama& model, const LlamaConfig& config, const DeviceMesh& mesh,
                    const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  check_prompt(prompt, config);
  // The last id is not fed in.
  const auto given = static_cast<int64_t>(prompt.size());
  const int64_t room = config.max_position_embeddings - given + 1;
  const int64_t wanted = options.stop_id ? std::min<int64_t>(options.max_new, 1) : options.max_new;
  if (wanted > room || room < 1) {
    throw ArgumentError(fmt::format(
        "generate: {} prompt ids and {} new ones need {} positions, but "
        "max_position_embeddings is {}; give fewer",
        given, wanted, given + std::max<int64_t>(wanted - 1, 0), config.max_position_embeddings));
  }
  const int64_t most = std::min(options.max_new, room);
  const NoGrad no_grad;
  model.start_generation();
  Tensor logits = next_logits(model, mesh, prompt);
  check_numbers(logits, given);
  Generation out;
  out.last_logits_top5 = largest(logits, 5);
  const auto began = std::chrono::steady_clock::now();
  while (static_cast<int64_t>(out.ids.size()) < most) {
    out.ids.push_back(largest(logits, 1).front().first);
    if (options.stop_id && out.ids.back() == *options.stop_id) break;
    const auto made = static_cast<int64_t>(out.ids.size());
    out.at_limit = made == most && most < options.max_new;
    if (made == most) break;
    logits = next_logits(model, mesh, std::span(&out.ids.back(), 1));
    check_numbers(logits, given + made);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto timed = static_cast<double>(out.ids.size()) - 1;  // the first came with the prompt
  out.tokens_per_s = timed > 0 && took.count() > 0 ? timed / took.count() : 0;
  return out;
}

}  // namespace dtensor::examples
