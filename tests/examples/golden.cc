#include "dtensor/tests/examples/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dtensor/checkpoint/tensor_file.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path);
  return Json::parse(in);
}

std::vector<double> as_double(const Tensor& t) {
  return t.to(DType::kFloat64).contiguous().to_vector<double>();
}

}  // namespace

Golden read_golden(const std::string& name) {
  Golden g;
  g.name = name;
  g.dir = "tests/data/" + name;
  const Json run = read_json(g.dir + "/run.json");
  g.batch = run["batch"];
  g.seq = run["seq"];
  g.steps = run["steps"];
  g.losses = run["losses"].get<std::vector<double>>();
  g.grad_norms = run["grad_norms"].get<std::vector<double>>();
  const safetensors::File file(g.dir + "/expected.safetensors");
  const Tensor tokens = checkpoint::read_tensor(file, "tokens");
  static std::atomic<int> calls{0};  // ranks that are threads do not write one file at a time
  g.text =
      std::string(std::getenv("TEST_TMPDIR")) + "/" + name + "." + std::to_string(++calls) + ".txt";
  std::ofstream(g.text, std::ios::binary)
      .write(static_cast<const char*>(tokens.raw()), tokens.size_bytes());
  g.flags = {"--model",
             g.dir,
             "--data",
             g.text,
             "--batch",
             std::to_string(g.batch),
             "--seq",
             std::to_string(g.seq),
             "--lr",
             fmt::format("{}", run["lr"].get<double>()),
             "--betas",
             fmt::format("{},{}", run["betas"][0].get<double>(), run["betas"][1].get<double>()),
             "--eps",
             fmt::format("{}", run["eps"].get<double>()),
             "--weight-decay",
             fmt::format("{}", run["weight_decay"].get<double>()),
             "--clip-norm",
             fmt::format("{}", run["clip_norm"].get<double>())};
  return g;
}

std::vector<double> expected(const Golden& golden, const std::string& tensor) {
  const safetensors::File file(golden.dir + "/expected.safetensors");
  return as_double(checkpoint::read_tensor(file, tensor));
}

std::vector<std::string> expected_names(const Golden& golden, const std::string& prefix) {
  const safetensors::File file(golden.dir + "/expected.safetensors");
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) {
    if (entry.name.starts_with(prefix)) names.push_back(entry.name.substr(prefix.size()));
  }
  return names;
}

Log read_log(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path);
  Log log;
  std::string line;
  std::getline(in, line);
  const Json start = Json::parse(line);
  if (start.at("event") != "start") throw std::runtime_error("the log does not begin with start");
  log.pids = start.at("pids").get<std::vector<int64_t>>();
  log.mesh = start.at("mesh");
  log.comm = start.at("comm");
  log.params = start.at("params");
  log.first_step = start.at("step");
  for (int64_t step = log.first_step; std::getline(in, line); ++step) {
    const Json j = Json::parse(line);
    if (j.at("step") != step) throw std::runtime_error("a step is missing in the log");
    log.steps.push_back({j.at("loss"), j.at("grad_norm"), j.at("tokens_per_s"), j.at("bytes_sent"),
                         j.at("peak_rss_bytes")});
  }
  return log;
}

ProcessResult run_train(const Golden& golden, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {"examples/llama/train"};
  argv.insert(argv.end(), golden.flags.begin(), golden.flags.end());
  argv.insert(argv.end(), flags.begin(), flags.end());
  return run_process(argv);
}

double worst_error(const Golden& golden, const std::string& prefix, const std::string& path) {
  const safetensors::File file(path);
  double worst = 0;
  for (const auto& name : expected_names(golden, prefix)) {
    const auto want = expected(golden, prefix + name);
    const auto got = as_double(checkpoint::read_tensor(file, name));
    if (got.size() != want.size()) return INFINITY;
    double largest = 0;
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (!std::isfinite(got[i])) return INFINITY;
      largest = std::max(largest, std::abs(want[i]));
      error = std::max(error, std::abs(got[i] - want[i]));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

}  // namespace dtensor::testing
