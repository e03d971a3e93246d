#include "dtensor/examples/llama/model.h"

#include <cmath>
#include <string>

#include "dtensor/base/error.h"

namespace dtensor::examples {

Attention::Attention(const LlamaConfig& c)
    : groups_(c.num_key_value_heads),
      heads_per_group_(c.num_attention_heads / c.num_key_value_heads),
      head_dim_(c.head_dim),
      q_proj_(c.hidden_size, c.num_attention_heads * c.head_dim,
              {.bias = c.attention_bias, .out_unit = heads_per_group_ * c.head_dim}),
      k_proj_(c.hidden_size, groups_ * c.head_dim,
              {.bias = c.attention_bias, .out_unit = c.head_dim}),
      v_proj_(c.hidden_size, groups_ * c.head_dim,
              {.bias = c.attention_bias, .out_unit = c.head_dim}),
      o_proj_(c.num_attention_heads * c.head_dim, c.hidden_size,
              {.bias = c.attention_bias, .in_unit = heads_per_group_ * c.head_dim}) {
  add_child("q_proj", q_proj_);
  add_child("k_proj", k_proj_);
  add_child("v_proj", v_proj_);
  add_child("o_proj", o_proj_);
  add_child("core", core_);
}

void Attention::start_cache() { cache_.emplace(); }

DTensor Attention::forward(const nn::Inputs& inputs) {
  const DTensor& x = inputs[0];
  const DTensor& cos = inputs[1];
  const DTensor& sin = inputs[2];
  const int64_t b = x.size(0);
  const int64_t t = x.size(1);
  DTensor q = rope(reshape(q_proj_(x), {b, t, groups_, heads_per_group_, head_dim_}), cos, sin);
  DTensor k = rope(reshape(k_proj_(x), {b, t, groups_, head_dim_}), cos, sin);
  DTensor v = reshape(v_proj_(x), {b, t, groups_, head_dim_});
  core_.query_offset = 0;
  if (cache_) {
    core_.query_offset = cache_->length();
    cache_->append(k, v);
    k = cache_->keys();
    v = cache_->values();
  }
  return o_proj_(reshape(core_(q, k, v), {b, t, groups_ * heads_per_group_ * head_dim_}));
}

Mlp::Mlp(const LlamaConfig& c)
    : gate_proj_(c.hidden_size, c.intermediate_size, {.bias = c.mlp_bias}),
      up_proj_(c.hidden_size, c.intermediate_size, {.bias = c.mlp_bias}),
      down_proj_(c.intermediate_size, c.hidden_size, {.bias = c.mlp_bias}) {
  add_child("gate_proj", gate_proj_);
  add_child("up_proj", up_proj_);
  add_child("down_proj", down_proj_);
}

DTensor Mlp::forward(const nn::Inputs& inputs) {
  const DTensor& x = inputs[0];
  return down_proj_(silu_mul(gate_proj_(x), up_proj_(x)));
}

Layer::Layer(const LlamaConfig& c)
    : input_layernorm_(c.hidden_size, c.rms_norm_eps),
      self_attn_(c),
      post_attention_layernorm_(c.hidden_size, c.rms_norm_eps),
      mlp_(c) {
  add_child("input_layernorm", input_layernorm_);
  add_child("self_attn", self_attn_);
  add_child("post_attention_layernorm", post_attention_layernorm_);
  add_child("mlp", mlp_);
}

DTensor Layer::forward(const nn::Inputs& inputs) {
  const DTensor x = add(inputs[0], self_attn_(input_layernorm_(inputs[0]), inputs[1], inputs[2]));
  return add(x, mlp_(post_attention_layernorm_(x)));
}

namespace {

// cos or sin of position * theta^(-2i/d), each angle twice: [positions, d].
DTensor rotary_table(const LlamaConfig& c, double (*function)(double)) {
  const int64_t d = c.head_dim;
  Tensor table = Tensor::empty({c.max_position_embeddings, d});
  auto* out = table.data<float>();
  for (int64_t p = 0; p < c.max_position_embeddings; ++p) {
    for (int64_t i = 0; i < d; ++i) {
      const auto exponent = static_cast<double>(2 * (i % (d / 2))) / static_cast<double>(d);
      // The inverse frequency and the angle are rounded to float32, as the reference has them.
      const auto frequency = static_cast<float>(1.0 / std::pow(c.rope_theta, exponent));
      const float angle = static_cast<float>(p) * frequency;
      out[p * d + i] = static_cast<float>(function(static_cast<double>(angle)));
    }
  }
  return DTensor(table);
}

}  // namespace

Decoder::Decoder(const LlamaConfig& c)
    : max_positions_(c.max_position_embeddings),
      embed_tokens_(c.vocab_size, c.hidden_size),
      norm_(c.hidden_size, c.rms_norm_eps) {
  add_child("embed_tokens", embed_tokens_);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers_.push_back(std::make_unique<Layer>(c));
    add_child("layers." + std::to_string(i), *layers_.back());
  }
  add_child("norm", norm_);
  cos_ = &add_buffer("rotary_cos", rotary_table(c, std::cos));
  sin_ = &add_buffer("rotary_sin", rotary_table(c, std::sin));
}

DTensor Decoder::forward(const nn::Inputs& inputs) {
  const DTensor& ids = inputs[0];
  const int64_t t = ids.size(1);
  if (position + t > max_positions_) {
    throw ArgumentError("Llama: positions " + std::to_string(position) + " to " +
                        std::to_string(position + t) + ", but max_position_embeddings is " +
                        std::to_string(max_positions_) + "; shorten the sequence");
  }
  DTensor x = embed_tokens_(ids);
  const DTensor cos = narrow(*cos_, 0, position, t);
  const DTensor sin = narrow(*sin_, 0, position, t);
  for (auto& layer : layers_) x = (*layer)(x, cos, sin);
  return norm_(x);
}

Llama::Llama(const LlamaConfig& c) : model_(c), lm_head_(c.hidden_size, c.vocab_size) {
  if (c.tie_word_embeddings) lm_head_.tie_weight(model_.embedding());
  add_child("model", model_);
  add_child("lm_head", lm_head_);
}

void Llama::start_generation() {
  generating_ = true;
  model_.position = 0;
  for (auto& layer : layers()) layer->attention().start_cache();
}

DTensor Llama::forward(const nn::Inputs& inputs) {
  DTensor x = model_(inputs[0]);
  if (generating_) {
    model_.position += x.size(1);
    x = narrow(x, 1, x.size(1) - 1, 1);
  }
  return lm_head_(x);
}

}  // namespace dtensor::examples
