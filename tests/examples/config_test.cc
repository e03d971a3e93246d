// Reading config.json: what is taken, and the errors that name file and field.

#include "dtensor/examples/llama/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "dtensor/base/error.h"

namespace dtensor::examples {
namespace {

std::string file_with(const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/config.json";
  std::ofstream(path) << text;
  return path;
}

constexpr const char* kSmall =
    R"("vocab_size":10,"hidden_size":12,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":3)";

TEST(Config, TakesSizesAndDefaults) {
  const LlamaConfig c = read_config(file_with("{" + std::string(kSmall) + "}"));
  EXPECT_EQ(c.head_dim, 4);
  EXPECT_EQ(c.num_key_value_heads, 3);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_FALSE(c.tie_word_embeddings);
}

TEST(Config, TakesTheThetaOfEitherForm) {
  const auto theta = [](const std::string& fields) {
    return read_config(file_with("{" + std::string(kSmall) + fields + "}")).rope_theta;
  };
  EXPECT_EQ(theta(""), 10000);
  EXPECT_EQ(theta(R"(,"rope_theta":5e5)"), 5e5);
  EXPECT_EQ(theta(R"(,"rope_parameters":{"rope_theta":5e5,"rope_type":"default"})"), 5e5);
  EXPECT_EQ(theta(R"(,"rope_parameters":{"rope_theta":7},"rope_theta":7)"), 7);
  EXPECT_EQ(theta(R"(,"rope_parameters":{"rope_type":"default"},"rope_theta":7)"), 7);
  EXPECT_EQ(theta(R"(,"rope_parameters":null)"), 10000);
}

TEST(Config, NamesFileAndFieldOfWhatItCannotTake) {
  const std::pair<const char*, const char*> bad[] = {
      {R"("vocab_size":0)", "vocab_size"},
      {R"("vocab_size":1.5)", "vocab_size"},
      {R"("vocab_size":99999999999)", "vocab_size"},
      {R"("hidden_act":"gelu")", "hidden_act"},
      {R"("rope_scaling":{"type":"linear"})", "rope_scaling"},
      {R"("rope_parameters":{"rope_theta":5e5,"rope_type":"llama3","factor":8})", "rope_type"},
      {R"("rope_parameters":{"rope_theta":5e5,"factor":8})", "factor"},
      {R"("rope_parameters":{"rope_theta":"5e5","rope_type":"default"})", "rope_theta"},
      {R"("rope_parameters":{"rope_theta":5e5},"rope_theta":1e4)", "rope_theta"},
      {R"("rope_parameters":{"rope_type":"default"})", "rope_theta"},
      {R"("rope_parameters":5e5)", "rope_parameters"},
      {R"("num_key_value_heads":2)", "num_key_value_heads"},
      {R"("num_attention_heads":5)", "num_attention_heads"},
      {R"("head_dim":3)", "head_dim"},
      {R"("rms_norm_eps":-1)", "rms_norm_eps"},
      {R"("tie_word_embeddings":1)", "tie_word_embeddings"}};
  for (const auto& [field, name] : bad) {
    // A later field of one name wins in JSON, as in Python.
    const std::string path = file_with("{" + std::string(kSmall) + "," + field + "}");
    try {
      read_config(path);
      ADD_FAILURE() << field;
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_config(file_with("{}")), ArgumentError);
  EXPECT_THROW(read_config(file_with("[1]")), ArgumentError);
  EXPECT_THROW(read_config(file_with("{")), ArgumentError);
  EXPECT_THROW(read_config("/nonexistent/config.json"), ArgumentError);
}

}  // namespace
}  // namespace dtensor::examples
