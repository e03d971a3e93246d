#include "dtensor/nn/layers.h"

#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor::nn {
namespace {

// Puts `p` on the weight's mesh, cut where the weight's dim `of` is, by the same levels; R
// elsewhere.
void place_as(const Parameter& weight, int of, const Parameter& p, int d) {
  Layout wanted = p.value().layout();
  for (const Level& level : weight.value().spec().levels(of)) {
    wanted = wanted.with(level.mesh_dim, Shard(d), level.unit);
  }
  p.place(wanted);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const Options& options)
    : weight(add_parameter("weight", {out, in}, {options.out_unit, options.in_unit})) {
  if (options.bias) bias = add_parameter("bias", {out}, {options.out_unit});
}

void Linear::tie_weight(const Parameter& other) {
  tie_parameter("weight", other);
  weight = other;
}

void Linear::add_low_rank(int64_t rank, double scale) {
  const Shape& shape = weight.value().shape();
  lora_a = add_parameter("lora_a", {rank, shape[1]}, {1, weight.unit(1)});
  lora_b = add_parameter("lora_b", {shape[0], rank}, {weight.unit(0), 1});
  low_rank_scale_ = scale;
  if (!weight.value().mesh().defined()) return;
  replicate(*this, weight.value().mesh());
  place_as(weight, 1, lora_a, 1);
  place_as(weight, 0, lora_b, 0);
}

DTensor Linear::forward(const Inputs& inputs) {
  const DTensor& x = inputs[0];
  const DTensor y = linear(x, weight.use(), bias.defined() ? bias.use() : DTensor());
  if (!lora_a.defined()) return y;
  if (merged_) {
    if (grad_enabled() && lora_a.value().requires_grad()) {
      throw ArgumentError("Linear \"" + full_name() +
                          "\": its adapters are merged into the weight and would get no gradient; "
                          "call nn::unmerge_adapters, or run it under NoGrad");
    }
    return y;
  }
  return add(y, mul(linear(linear(x, lora_a.use()), lora_b.use()), low_rank_scale_));
}

Embedding::Embedding(int64_t rows, int64_t width)
    : weight(add_parameter("weight", {rows, width})) {}

DTensor Embedding::forward(const Inputs& inputs) { return embedding(weight.use(), inputs[0]); }

RMSNorm::RMSNorm(int64_t width, double eps) : weight(add_parameter("weight", {width})), eps_(eps) {}

DTensor RMSNorm::forward(const Inputs& inputs) { return rms_norm(inputs[0], weight.use(), eps_); }

DTensor AttentionCore::forward(const Inputs& inputs) {
  return attention(inputs[0], inputs[1], inputs[2], {.causal = true, .query_offset = query_offset});
}

}  // namespace dtensor::nn
