#include "dtensor/examples/llama/train_options.h"

#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <cmath>
#include <sstream>

#include "dtensor/base/error.h"
#include "dtensor/examples/llama/flags.h"

namespace dtensor::examples {
namespace {

namespace po = boost::program_options;

// What needs more than a plain value.
struct Raw {
  std::string dp_mode = "fsdp";
  std::string param_dtype = "f32";
  std::string betas = "0.9,0.95";
  std::string overlap = "yes";
};

po::options_description describe(TrainOptions& o, Raw& raw, RanksFlags& ranks) {
  po::options_description d("train: trains a Llama on a text");
  auto add = d.add_options();
  add("help", "prints this");
  add("model", po::value(&o.model), "DIR in Hugging Face form: config.json and safetensors");
  add("config", po::value(&o.config), "config.json of a new model, in place of --model");
  add("seed", po::value(&o.seed), "of a new model's values");
  add("data", po::value(&o.data)->required(), "FILE whose bytes are the tokens");
  add("batch", po::value(&o.batch), "rows of the global batch");
  add("seq", po::value(&o.seq), "tokens of a row");
  add("steps", po::value(&o.steps), "in all, those before a resume included");
  add("lr", po::value(&o.lr), "learning rate of AdamW");
  add("betas", po::value(&raw.betas), "B1,B2");
  add("eps", po::value(&o.eps), "of AdamW");
  add("weight-decay", po::value(&o.weight_decay), "on every parameter");
  add("clip-norm", po::value(&o.clip_norm), "largest norm of the gradients");
  ranks.describe(d);
  add("dp-mode", po::value(&raw.dp_mode), "fsdp or ddp");
  add("param-dtype", po::value(&raw.param_dtype), "f32 or bf16: computed in");
  add("overlap", po::value(&raw.overlap), "yes or none: for measuring what it is worth");
  add("save", po::value(&o.save), "DIR of checkpoints");
  add("save-every", po::value(&o.save_every), "N steps, and after the last");
  add("resume", po::value(&o.resume), "DIR: goes on from its newest complete step");
  add("export", po::value(&o.export_dir), "DIR: the model in Hugging Face form");
  add("log", po::value(&o.log), "FILE of JSON lines");
  add("dump-grads", po::value(&o.dump_grads), "FILE: step 0's gradients, before clipping");
  return d;
}

void need(bool holds, const char* flag, const std::string& fix) {
  if (!holds) throw ArgumentError(fmt::format("--{}: {}", flag, fix));
}

void check(const TrainOptions& o) {
  need(o.model.empty() != o.config.empty(), "model", "give one of --model DIR and --config FILE");
  need(o.batch >= 1, "batch", "give 1 or more");
  need(o.seq >= 1, "seq", "give 1 or more");
  need(o.steps >= 0, "steps", "give 0 or more");
  need(o.lr >= 0 && std::isfinite(o.lr), "lr", "give a finite number, 0 or more");
  need(o.eps > 0, "eps", "give a positive number");
  need(o.weight_decay >= 0, "weight-decay", "give 0 or more");
  need(o.clip_norm > 0, "clip-norm", "give a positive number");
  need(o.save_every >= 0, "save-every", "give 0 or more");
  need(o.save_every == 0 || !o.save.empty(), "save-every", "needs --save DIR");
}

void apply(const Raw& raw, TrainOptions& o) {
  need(raw.dp_mode == "fsdp" || raw.dp_mode == "ddp", "dp-mode",
       "give fsdp or ddp, not " + raw.dp_mode);
  if (raw.dp_mode == "ddp") o.parallel.data_parallel = DataParallel::kReplicate;
  need(raw.param_dtype == "f32" || raw.param_dtype == "bf16", "param-dtype",
       "give f32 or bf16, not " + raw.param_dtype);
  if (raw.param_dtype == "bf16") o.parallel.param_dtype = DType::kBFloat16;
  need(raw.overlap == "yes" || raw.overlap == "none", "overlap",
       "give yes or none, not " + raw.overlap);
  o.parallel.overlaps = raw.overlap == "yes";
  std::istringstream betas(raw.betas);
  char comma = 0;
  need(betas >> o.beta1 >> comma >> o.beta2 && comma == ',' && betas.eof() && o.beta1 >= 0 &&
           o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
       "betas", "give two numbers from 0 to below 1, as 0.9,0.95");
}

}  // namespace

std::optional<TrainOptions> parse_train_options(int argc, char** argv) {
  TrainOptions o;
  o.ranks.program = "train";
  Raw raw;
  RanksFlags ranks(o.ranks);
  const po::options_description description = describe(o, raw, ranks);
  po::variables_map values;
  if (!parse_flags(argc, argv, description, values)) return std::nullopt;
  ranks.apply();
  apply(raw, o);
  check(o);
  return o;
}

}  // namespace dtensor::examples
