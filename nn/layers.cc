#include "dtensor/nn/layers.h"

namespace dtensor::nn {

Linear::Linear(int64_t in, int64_t out, const Options& options)
    : weight(add_parameter("weight", {out, in}, {options.out_unit, options.in_unit})) {
  if (options.bias) bias = add_parameter("bias", {out}, {options.out_unit});
}

void Linear::tie_weight(const Parameter& other) {
  tie_parameter("weight", other);
  weight = other;
}

DTensor Linear::forward(const Inputs& inputs) {
  return linear(inputs[0], weight.use(), bias.defined() ? bias.use() : DTensor());
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
