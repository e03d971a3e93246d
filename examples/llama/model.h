// A Llama as Hugging Face names it, in single-device code: no mesh, rank or placement stands here.
// What tensor parallelism must keep whole (a head group's rows) is said by the units of Linear.

#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dtensor/examples/llama/config.h"
#include "dtensor/nn/kv_cache.h"
#include "dtensor/nn/layers.h"

namespace dtensor::examples {

// (x [b,t,h], cos [t,d], sin [t,d]) -> [b,t,h]
class Attention : public nn::Module {
 public:
  explicit Attention(const LlamaConfig& c);
  std::string_view kind() const override { return "Attention"; }
  // From now on keys and values are kept, and queries stand behind those kept. No gradients.
  void start_cache();

 protected:
  DTensor forward(const nn::Inputs& inputs) override;

 private:
  int64_t groups_;  // key/value heads
  int64_t heads_per_group_;
  int64_t head_dim_;
  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
  nn::AttentionCore core_;
  std::optional<nn::KvCache> cache_;
};

// [..., h] -> [..., h]
class Mlp : public nn::Module {
 public:
  explicit Mlp(const LlamaConfig& c);
  std::string_view kind() const override { return "Mlp"; }

 protected:
  DTensor forward(const nn::Inputs& inputs) override;

 private:
  nn::Linear gate_proj_, up_proj_, down_proj_;
};

class Layer : public nn::Module {
 public:
  explicit Layer(const LlamaConfig& c);
  std::string_view kind() const override { return "Layer"; }
  Attention& attention() { return self_attn_; }

 protected:
  DTensor forward(const nn::Inputs& inputs) override;

 private:
  nn::RMSNorm input_layernorm_;
  Attention self_attn_;
  nn::RMSNorm post_attention_layernorm_;
  Mlp mlp_;
};

// ids [b,t] -> hidden states [b,t,h]
class Decoder : public nn::Module {
 public:
  explicit Decoder(const LlamaConfig& c);
  std::string_view kind() const override { return "Decoder"; }
  const nn::Parameter& embedding() const { return embed_tokens_.weight; }
  std::vector<std::unique_ptr<Layer>>& layers() { return layers_; }
  int64_t position = 0;  // of the first token of the next call

 protected:
  DTensor forward(const nn::Inputs& inputs) override;

 private:
  int64_t max_positions_;
  nn::Embedding embed_tokens_;
  std::vector<std::unique_ptr<Layer>> layers_;
  nn::RMSNorm norm_;
  DTensor* cos_;  // buffers [max_positions, d]
  DTensor* sin_;
};

// ids [b,t] -> logits [b,t,v]
class Llama : public nn::Module {
 public:
  explicit Llama(const LlamaConfig& c);
  std::string_view kind() const override { return "Llama"; }
  std::vector<std::unique_ptr<Layer>>& layers() { return model_.layers(); }

  // Generation: the next calls go on where the one before ended, and give the logits of their last
  // position only.
  void start_generation();

 protected:
  DTensor forward(const nn::Inputs& inputs) override;

 private:
  Decoder model_;
  nn::Linear lm_head_;
  bool generating_ = false;
};

}  // namespace dtensor::examples
