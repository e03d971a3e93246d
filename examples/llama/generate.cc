// generate: the greedy continuation of a prompt by a Llama in Hugging Face form, on any tp mesh.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <string>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/examples/llama/config.h"
#include "dtensor/examples/llama/flags.h"
#include "dtensor/examples/llama/generator.h"
#include "dtensor/examples/llama/model.h"
#include "dtensor/examples/llama/parallel.h"
#include "dtensor/examples/llama/ranks.h"
#include "dtensor/nn/to_dtype.h"

namespace dtensor::examples {
namespace {

namespace po = boost::program_options;

struct Options {
  std::string model;
  std::vector<int64_t> prompt;
  bool is_text = false;  // the ids are bytes
  std::string text;
  GenerateOptions generate;
  RanksOptions ranks;
  DType dtype = DType::kFloat32;  // of the parameters
  bool json = false;
};

std::vector<int64_t> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  std::istringstream in(text);
  std::string item;
  while (std::getline(in, item, ',')) {
    size_t used = 0;
    int64_t id = -1;
    try {
      id = std::stoll(item, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != item.size() || item.empty()) {
      throw ArgumentError("--prompt-ids: '" + item + "' is no id; give numbers, as 504,3575");
    }
    ids.push_back(id);
  }
  return ids;
}

std::optional<Options> parse(int argc, char** argv) {
  Options o;
  o.ranks.program = "generate";
  std::string ids;
  std::string dtype = "f32";
  int64_t stop_id = 0;
  RanksFlags ranks(o.ranks);
  po::options_description d("generate: continues a prompt, greedily");
  auto add = d.add_options();
  add("help", "prints this");
  add("model", po::value(&o.model)->required(), "DIR in Hugging Face form");
  add("prompt-ids", po::value(&ids), "504,3575: the prompt as ids");
  add("prompt", po::value(&o.text), "TEXT, for a model whose tokens are bytes");
  add("max-new", po::value(&o.generate.max_new), "ids to generate");
  add("stop-id", po::value(&stop_id), "the id that ends it");
  add("dtype", po::value(&dtype), "f32 or bf16: what the parameters are held and computed in");
  ranks.describe(d);
  add("json", po::bool_switch(&o.json), "one JSON line");
  po::variables_map values;
  if (!parse_flags(argc, argv, d, values)) return std::nullopt;
  ranks.apply();
  if (dtype != "f32" && dtype != "bf16") {
    throw ArgumentError("--dtype: give f32 or bf16, not " + dtype);
  }
  if (dtype == "bf16") o.dtype = DType::kBFloat16;
  o.is_text = values.count("prompt") != 0;
  if (o.is_text == (values.count("prompt-ids") != 0)) {
    throw ArgumentError("--prompt: give one of --prompt TEXT and --prompt-ids IDS");
  }
  if (o.generate.max_new < 0) throw ArgumentError("--max-new: give 0 or more");
  if (values.count("stop-id") != 0) o.generate.stop_id = stop_id;
  o.prompt = o.is_text ? std::vector<int64_t>() : parse_ids(ids);
  for (const char c : o.text) o.prompt.push_back(static_cast<unsigned char>(c));
  return o;
}

void print(const Options& o, const Generation& g) {
  if (o.json) {
    std::vector<std::string> top;
    for (const auto& [id, value] : g.last_logits_top5)
      top.push_back(fmt::format("[{},{:.9g}]", id, value));
    fmt::print(R"({{"ids":[{}],"last_logits_top5":[{}],"tokens_per_s":{:.9g}}})"
               "\n",
               fmt::join(g.ids, ","), fmt::join(top, ","), g.tokens_per_s);
    return;
  }
  if (!o.is_text) {
    fmt::print("{}\n", fmt::join(g.ids, ","));
    return;
  }
  std::string text = o.text;
  for (const int64_t id : g.ids) text += static_cast<char>(id);
  fmt::print("{}\n", text);
}

void rank_main(const Options& o, const DeviceMesh& mesh) {
  const LlamaConfig config = read_config(o.model + "/config.json");
  if (o.is_text && config.vocab_size > 257) {
    throw ArgumentError(
        fmt::format("--prompt: the model has {} tokens, which are not bytes; give "
                    "--prompt-ids",
                    config.vocab_size));
  }
  Llama model(config);
  if (o.dtype != DType::kFloat32) nn::to_dtype(model, o.dtype);
  parallelize(model, mesh, {.data_parallel = DataParallel::kReplicate});
  checkpoint::import_hugging_face(o.model, model);
  const Generation g = generate(model, config, mesh, o.prompt, o.generate);
  if (mesh.defined() && mesh.rank() != 0) return;
  print(o, g);
  if (g.at_limit) {
    std::fputs(fmt::format("generate: stopped after {} ids without --stop-id {}: "
                           "max_position_embeddings is {}\n",
                           g.ids.size(), *o.generate.stop_id, config.max_position_embeddings)
                   .c_str(),
               stderr);
  }
  if (std::fflush(stdout) != 0) throw Error("the result could not be written to stdout");
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor::examples;  // NOLINT(google-build-using-namespace)
  try {
    const auto options = parse(argc, argv);
    if (!options) return 0;
    return run_ranks(options->ranks, argc, argv,
                     [&](const dtensor::DeviceMesh& mesh) { rank_main(*options, mesh); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 2;
  }
}
