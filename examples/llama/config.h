// LlamaConfig: the sizes of a Llama, read from a Hugging Face config.json.

#pragma once

#include <cstdint>
#include <string>

namespace dtensor::examples {

struct LlamaConfig {
  int64_t vocab_size = 256;
  int64_t hidden_size = 64;
  int64_t intermediate_size = 172;
  int64_t num_hidden_layers = 2;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 2;
  int64_t head_dim = 16;
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::string json;  // the file as it was read, for an export
};

// ArgumentError naming the file and the field: absent, of the wrong type or size, or asking for
// what this example does not have (rope scaling, another activation).
LlamaConfig read_config(const std::string& path);

}  // namespace dtensor::examples
