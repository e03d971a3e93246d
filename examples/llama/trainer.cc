#include "dtensor/examples/llama/trainer.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/examples/llama/run_log.h"
#include "dtensor/examples/llama/text.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"

namespace dtensor::examples {
namespace {

using Clock = std::chrono::steady_clock;

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// One number of every rank, on every rank. On a Comm of its own, so that what is told of a step is
// not part of what the step sent.
class Gatherer {
 public:
  explicit Gatherer(const DeviceMesh& mesh) {
    if (!mesh.defined()) return;
    std::vector<int> all(static_cast<size_t>(mesh.root().size()));
    std::iota(all.begin(), all.end(), 0);
    comm_ = mesh.root().group(all, "statistics");
  }
  std::vector<int64_t> operator()(int64_t mine) {
    if (!comm_) return {mine};
    std::vector<int64_t> out(static_cast<size_t>(comm_->size()));
    comm_
        ->all_gather_v(comm::ConstBuffer(&mine, 1, DType::kInt64),
                       comm::Buffer{out.data(), comm_->size(), DType::kInt64},
                       comm::Segments::even(comm_->size(), comm_->size()), {.label = "statistics"})
        .wait();
    return out;
  }

 private:
  std::unique_ptr<comm::Comm> comm_;
};

std::unique_ptr<Llama> make_model(const TrainOptions& o, const DeviceMesh& mesh,
                                  const LlamaConfig& config) {
  auto model = std::make_unique<Llama>(config);
  parallelize(*model, mesh, o.parallel);
  if (o.model.empty()) {
    nn::init_normal(*model, o.seed);
  } else if (o.resume.empty()) {
    checkpoint::import_hugging_face(o.model, *model);
  }
  return model;
}

int64_t resume(const TrainOptions& o, Llama& model, optim::AdamW& optimizer) {
  if (o.resume.empty()) return 0;
  const auto step = checkpoint::load(o.resume, {.model = model, .optimizer = optimizer});
  if (!step) {
    throw CheckpointError("--resume " + o.resume +
                          ": holds no complete checkpoint; start without --resume");
  }
  if (*step > o.steps) {
    throw ArgumentError(
        fmt::format("--resume {}: its step {} is beyond --steps {}; give more steps", o.resume,
                    *step, o.steps));
  }
  return *step;
}

void dump_gradients(const std::string& path, Llama& model, bool writes) {
  std::map<std::string, Tensor> gradients;
  for (auto& [name, parameter] : model.named_parameters()) {
    const DTensor grad = parameter.value().grad();
    if (grad.defined()) gradients.emplace(name, full(grad));
  }
  if (writes) checkpoint::write_tensors(path, gradients);
}

class Run {
 public:
  Run(const TrainOptions& o, const DeviceMesh& mesh)
      : o_(o),
        mesh_(mesh),
        leads_(!mesh.defined() || mesh.rank() == 0),
        text_(o.data),
        config_(read_config(o.model.empty() ? o.config : o.model + "/config.json")),
        model_(make_model(o, mesh, config_)),
        optimizer_(model_->parameters(), {.lr = o.lr,
                                          .beta1 = o.beta1,
                                          .beta2 = o.beta2,
                                          .eps = o.eps,
                                          .weight_decay = o.weight_decay}),
        gather_(mesh) {
    if (text_.largest() >= config_.vocab_size) {
      throw ArgumentError(fmt::format("--data {}: holds the byte {}, but vocab_size is {}", o.data,
                                      text_.largest(), config_.vocab_size));
    }
    if (leads_) check_output_directories();
    first_ = resume(o, *model_, optimizer_);
  }

  void go() {
    const auto pids = gather_(getpid());
    if (leads_) {
      log_ = std::make_unique<RunLog>(
          o_.log, RunSteps{.first = first_, .end = o_.steps, .resumed = !o_.resume.empty()});
      log_->start(pids, mesh_.defined() ? to_string(mesh_.layout()) : "",
                  mesh_.defined() ? o_.ranks.comm : "none", count_parameters());
    }
    for (int64_t step = first_; step < o_.steps; ++step) {
      run_step(step);
      const bool last = step + 1 == o_.steps;
      const bool due = o_.save_every > 0 && (step + 1) % o_.save_every == 0;
      if (!o_.save.empty() && (last || due)) {
        checkpoint::save(o_.save, step + 1, {.model = *model_, .optimizer = optimizer_});
      }
    }
    if (!o_.save.empty() && first_ == o_.steps) {
      checkpoint::save(o_.save, first_, {.model = *model_, .optimizer = optimizer_});
    }
    if (!o_.export_dir.empty()) {
      checkpoint::export_hugging_face(o_.export_dir, *model_, {.config_json = config_.json});
    }
  }

 private:
  // Before the training, so that it is not lost where its result cannot be written.
  void check_output_directories() const {
    for (const std::string& dir : {o_.save, o_.export_dir}) {
      if (dir.empty()) continue;
      std::error_code error;
      std::filesystem::create_directories(dir, error);
      if (error || access(dir.c_str(), W_OK) != 0) {
        throw ArgumentError(
            fmt::format("{}: is no directory that can be written to ({}); name another", dir,
                        error ? error.message() : "no permission"));
      }
    }
  }

  int64_t count_parameters() {
    int64_t n = 0;
    for (const auto& parameter : model_->parameters()) n += parameter.value().numel();
    return n;
  }

  int64_t sent() const { return mesh_.defined() ? mesh_.root().counters().wire_bytes_sent : 0; }

  void run_step(int64_t step) {
    const auto began = Clock::now();
    const int64_t sent_before = sent();
    const auto waited_before = fsdp::stats().waited;
    const Batch batch = text_.batch(step, o_.batch, o_.seq);
    const DTensor tokens = place_batch(batch.tokens, mesh_);
    const DTensor targets = place_batch(batch.targets, mesh_);
    StepRecord record{.step = step};
    {
      DTensor loss = cross_entropy(cast((*model_)(tokens), DType::kFloat32), targets,
                                   {.sharded_classes = true});
      loss.backward();
      record.loss = loss.item();
    }
    if (step == 0 && !o_.dump_grads.empty()) dump_gradients(o_.dump_grads, *model_, leads_);
    record.grad_norm =
        optim::clip_grad_norm(optimizer_.parameters(), o_.clip_norm, {.mesh = mesh_});
    optimizer_.step();
    optimizer_.zero_grad();
    const std::chrono::duration<double> took = Clock::now() - began;
    record.tokens_per_s = static_cast<double>(o_.batch * o_.seq) / took.count();
    const auto bytes = gather_(sent() - sent_before);
    const auto peaks = gather_(peak_rss_bytes());
    record.bytes_sent = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    record.peak_rss_bytes = *std::ranges::max_element(peaks);
    record.waited_s = std::chrono::duration<double>(fsdp::stats().waited - waited_before).count();
    if (leads_) log_->step(record);
  }

  const TrainOptions& o_;
  const DeviceMesh& mesh_;
  bool leads_;
  Text text_;
  LlamaConfig config_;
  std::unique_ptr<Llama> model_;
  optim::AdamW optimizer_;
  Gatherer gather_;
  std::unique_ptr<RunLog> log_;
  int64_t first_ = 0;
};

}  // namespace

void train(const TrainOptions& options, const DeviceMesh& mesh) { Run(options, mesh).go(); }

}  // namespace dtensor::examples
