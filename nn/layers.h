// Layers: Linear, Embedding, RMSNorm, and the attention core as a module of its own.

#pragma once

#include "dtensor/nn/module.h"
#include "dtensor/ops/ops.h"

namespace dtensor::nn {

// x [..., in] -> [..., out]. Units of the weight's dims: see Parameter.
class Linear : public Module {
 public:
  struct Options {
    bool bias = false;
    int64_t out_unit = 1;
    int64_t in_unit = 1;
  };
  Linear(int64_t in, int64_t out, const Options& options);
  Linear(int64_t in, int64_t out) : Linear(in, out, Options{}) {}
  std::string_view kind() const override { return "Linear"; }
  Parameter weight;  // [out, in]
  Parameter bias;    // [out], or undefined
  // Shares another module's weight (lm_head and embed_tokens).
  void tie_weight(const Parameter& other);
  // From now on scale * lora_b (lora_a x) is added to y; lora_b is 0. See dtensor/nn/lora.h.
  void add_low_rank(int64_t rank, double scale);
  double low_rank_scale() const { return low_rank_scale_; }
  // The weight holds the adapters' part: it is not added to y. ArgumentError for a forward that
  // would train them.
  void set_merged(bool merged) { merged_ = merged; }
  bool is_merged() const { return merged_; }
  Parameter lora_a;  // [rank, in], or undefined
  Parameter lora_b;  // [out, rank]

 protected:
  DTensor forward(const Inputs& inputs) override;

 private:
  double low_rank_scale_ = 0.0;
  bool merged_ = false;
};

// ids [...] -> [..., width]
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width);
  std::string_view kind() const override { return "Embedding"; }
  Parameter weight;  // [rows, width]

 protected:
  DTensor forward(const Inputs& inputs) override;
};

class RMSNorm : public Module {
 public:
  RMSNorm(int64_t width, double eps);
  std::string_view kind() const override { return "RMSNorm"; }
  Parameter weight;  // [width]

 protected:
  DTensor forward(const Inputs& inputs) override;

 private:
  double eps_;
};

// (q [b,t,g,r,d], k [b,s,g,d], v [b,s,g,d]) -> [b,t,g,r,d], causal. A module, so that sequence
// parallelism is a hook on its inputs.
class AttentionCore : public Module {
 public:
  std::string_view kind() const override { return "AttentionCore"; }
  int64_t query_offset = 0;  // of the next call: how many keys stand before the first query

 protected:
  DTensor forward(const Inputs& inputs) override;
};

using dtensor::cross_entropy;

}  // namespace dtensor::nn
