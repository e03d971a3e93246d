#include "dtensor/examples/llama/config.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "dtensor/base/error.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::json;

class Fields {
 public:
  Fields(const std::string& path, const Json& json) : path_(path), json_(json) {}

  int64_t positive(const char* name) const {
    const auto it = json_.find(name);
    if (it == json_.end()) fail(name, "is absent; give a positive number");
    return positive_value(name, *it);
  }
  int64_t positive_or(const char* name, int64_t otherwise) const {
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? otherwise : positive_value(name, *it);
  }
  bool has(const char* name) const {
    const auto it = json_.find(name);
    return it != json_.end() && !it->is_null();
  }
  double real_or(const char* name, double otherwise) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null()) return otherwise;
    if (!it->is_number() || it->get<double>() <= 0)
      fail(name, "is " + it->dump() + "; give a positive number");
    return it->get<double>();
  }
  bool flag(const char* name) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null()) return false;
    if (!it->is_boolean()) fail(name, "is " + it->dump() + "; give true or false");
    return it->get<bool>();
  }
  void only(const char* name, const Json& value) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null() || *it == value) return;
    fail(name, "is " + it->dump() + "; this example knows only " + value.dump());
  }
  [[noreturn]] void fail(const char* name, const std::string& what) const {
    throw ArgumentError(fmt::format("{}: field \"{}\" {}", path_, name, what));
  }

 private:
  int64_t positive_value(const char* name, const Json& value) const {
    constexpr int64_t kMost = int64_t{1} << 31;
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost) {
      fail(name, "is " + value.dump() + "; give a whole number from 1 to 2^31");
    }
    return value.get<int64_t>();
  }

  const std::string& path_;
  const Json& json_;
};

Json parse(const std::string& path, const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) throw ArgumentError(path + ": is not a JSON object");
    return json;
  } catch (const Json::exception& error) {
    throw ArgumentError(path + ": is not JSON: " + error.what());
  }
}

// Newer files have it in "rope_parameters", older ones beside the sizes.
double rope_theta(const std::string& path, const Json& json, const Fields& f) {
  if (!f.has("rope_parameters")) return f.real_or("rope_theta", 10000.0);
  const Json& inner = json["rope_parameters"];
  if (!inner.is_object()) f.fail("rope_parameters", "is " + inner.dump() + "; give an object");
  const std::string inside = path + ": rope_parameters";
  const Fields rope(inside, inner);
  rope.only("rope_type", "default");
  rope.only("type", "default");
  for (const auto& [name, value] : inner.items()) {
    if (name != "rope_theta" && name != "rope_type" && name != "type") {
      rope.only(name.c_str(), nullptr);
    }
  }
  if (!rope.has("rope_theta") && !f.has("rope_theta")) {
    rope.fail("rope_theta", "is absent; give a positive number");
  }
  const double theta = rope.real_or("rope_theta", f.real_or("rope_theta", 0));
  if (f.real_or("rope_theta", theta) != theta) {
    f.fail("rope_theta", "differs from that of rope_parameters; give one of them");
  }
  return theta;
}

}  // namespace

LlamaConfig read_config(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ArgumentError(path + ": cannot be opened; give a Hugging Face config.json");
  LlamaConfig c;
  c.json.assign(std::istreambuf_iterator<char>(in), {});
  const Json json = parse(path, c.json);
  const Fields f(path, json);
  c.vocab_size = f.positive("vocab_size");
  c.hidden_size = f.positive("hidden_size");
  c.intermediate_size = f.positive("intermediate_size");
  c.num_hidden_layers = f.positive("num_hidden_layers");
  c.num_attention_heads = f.positive("num_attention_heads");
  c.num_key_value_heads = f.positive_or("num_key_value_heads", c.num_attention_heads);
  c.max_position_embeddings = f.positive_or("max_position_embeddings", 2048);
  c.rms_norm_eps = f.real_or("rms_norm_eps", 1e-6);
  c.rope_theta = rope_theta(path, json, f);
  c.tie_word_embeddings = f.flag("tie_word_embeddings");
  c.attention_bias = f.flag("attention_bias");
  c.mlp_bias = f.flag("mlp_bias");
  f.only("hidden_act", "silu");
  f.only("rope_scaling", nullptr);
  f.only("model_type", "llama");
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    f.fail("num_key_value_heads", fmt::format("is {}, which does not divide num_attention_heads {}",
                                              c.num_key_value_heads, c.num_attention_heads));
  }
  if (!json.contains("head_dim") && c.hidden_size % c.num_attention_heads != 0) {
    f.fail("num_attention_heads",
           fmt::format("is {}, which does not divide hidden_size {}; give head_dim",
                       c.num_attention_heads, c.hidden_size));
  }
  c.head_dim = f.positive_or("head_dim", c.hidden_size / c.num_attention_heads);
  if (c.head_dim % 2 != 0)
    f.fail("head_dim", fmt::format("is {}; rotary embedding needs an even one", c.head_dim));
  return c;
}

}  // namespace dtensor::examples
