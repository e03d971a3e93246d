#include "dtensor/checkpoint/load.h"

#include <fmt/core.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/names.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/checkpoint/world.h"
#include "dtensor/placement/tiling.h"

namespace dtensor::checkpoint {
namespace {

// What rank 0 tells the others: a letter, then the name of an attempt or a text.
constexpr char kNothing = 'n';
constexpr char kChosen = 'c';
constexpr char kFailed = 'f';

std::string choose(const std::string& run_dir, std::optional<int64_t> step) {
  try {
    const Found found = find_complete(run_dir, step);
    std::string reasons;
    for (const Examined& examined : found.passed_over) {
      reasons += (reasons.empty() ? "" : "; ") + examined.reason();
      log(LogLevel::kWarn, fmt::format("checkpoint: passed over {}", examined.reason()));
    }
    if (found.complete) return kChosen + found.complete->attempt.name;
    if (!step) return std::string(1, kNothing);
    return fmt::format("{}{} has no complete checkpoint of step {}{}", kFailed, run_dir, *step,
                       reasons.empty() ? "" : ": " + reasons);
  } catch (const Error& e) {
    return kFailed + std::string(e.what());
  }
}

class Loader {
 public:
  Loader(NamedState wanted, const State& state, const LoadOptions& options)
      : wanted_(std::move(wanted)), state_(state), options_(options) {}

  // Everything that can be checked without reading data.
  void plan(const Attempt& attempt) {
    Examined examined = examine(attempt);
    if (!examined.is_complete()) {
      throw CheckpointError(fmt::format("{} is not complete: {}", attempt.path, examined.reason()));
    }
    contents_ = std::move(examined.contents);
    const auto names = match_names(wanted_, stored_names(), attempt.path,
                                   {.converts = false, .optional = [this](const std::string& name) {
                                      return is_optional(name);
                                    }});
    check_numbers();
    files_.resize(contents_.files.size());
    for (size_t i = 0; i < names.size(); ++i) add(wanted_.tensors[i], names[i]);
  }

  void read() {
    std::vector<FillSource> sources;
    for (size_t i = 0; i < files_.size(); ++i) {
      sources.push_back({files_[i].get(), contents_.files[i].block_crcs});
    }
    fill(sources, targets_, std::move(pieces_), options_.buffer_bytes);
  }

  void set_numbers() {
    if (state_.optimizer.optimizer != nullptr) {
      state_.optimizer.optimizer->set_steps(contents_.numbers.at(kOptimizerSteps));
    }
    if (state_.numbers.numbers == nullptr) return;
    constexpr std::string_view kPrefix = kNumberPrefix;
    for (const auto& [name, number] : contents_.numbers) {
      if (name.starts_with(kPrefix))
        (*state_.numbers.numbers)[name.substr(kPrefix.size())] = number;
    }
  }

 private:
  StoredNames stored_names() const {
    StoredNames stored;
    for (const auto& [name, tensor] : contents_.tensors) {
      stored.tensors[name] = {tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}};
    }
    stored.aliases = contents_.aliases;
    return stored;
  }

  bool is_optional(const std::string& name) const {
    const bool of_optimizer = name.starts_with(kOptimizerPrefix);
    return of_optimizer ? state_.optimizer.optimizer == nullptr : state_.model.module == nullptr;
  }

  void check_numbers() const {
    for (const auto& [name, number] : wanted_.numbers) {
      if (contents_.numbers.contains(name)) continue;
      throw CheckpointError(fmt::format("{}: missing: the number \"{}\". Nothing was loaded",
                                        contents_.attempt.path, name));
    }
  }

  // The chunks that this rank's piece of a tensor takes from.
  void add(const NamedTensor& t, const std::string& name) {
    if (!t.value.has_local()) return;
    const StoredTensor& stored = contents_.tensors.at(name);
    const bool plain = !t.value.mesh().defined();
    const Box whole{Shape::filled(t.value.ndim(), 0), t.value.shape()};
    const Box box = plain ? whole : t.value.layout().box_of(t.value.mesh().rank());
    if (box.empty()) return;
    Tiling from{stored.shape, {}};
    for (const StoredChunk& c : stored.chunks) {
      from.tiles.push_back({c.box, static_cast<int>(from.tiles.size())});
    }
    const Tiling to{stored.shape, {{box, -1}}};  // no chunk has this number
    const auto target = static_cast<int>(targets_.size());
    targets_.push_back({t.name, t.value.local_tensor(), box, stored.dtype});
    for (const BoxMove& move : moves(from, to)) {
      const StoredChunk& chunk = stored.chunks[static_cast<size_t>(move.src)];
      const safetensors::File& file = open(chunk.file);
      check_entry(file, name, stored, chunk);
      const int64_t begin = file.data_offset_bytes() + file.find(chunk.key)->begin_bytes;
      pieces_.push_back({chunk.file, target, begin, chunk.box, move.box});
    }
  }

  const safetensors::File& open(int index) {
    auto& file = files_[static_cast<size_t>(index)];
    if (file) return *file;
    const StoredFile& stored = contents_.files[static_cast<size_t>(index)];
    file = std::make_unique<safetensors::File>(stored.path);
    if (file->size_bytes() != stored.bytes) {
      throw CheckpointError(fmt::format("{} has {} bytes, its commit record says {}", stored.path,
                                        file->size_bytes(), stored.bytes));
    }
    return *file;
  }

  NamedState wanted_;
  const State& state_;
  const LoadOptions& options_;
  Contents contents_;
  std::vector<std::unique_ptr<safetensors::File>> files_;  // opened where they are needed
  std::vector<FillTarget> targets_;
  std::vector<FillPiece> pieces_;
};

}  // namespace

std::optional<int64_t> load(const std::string& run_dir, const State& state,
                            const LoadOptions& options) {
  NamedState wanted = named_state(state);
  refuse_partial(wanted);
  const World world = World::of(wanted);
  const std::string told =
      world.told_by_first(world.rank() == 0 ? choose(run_dir, options.step) : "");
  const char answer = told.empty() ? kFailed : told[0];
  const std::string rest = told.empty() ? "" : told.substr(1);
  if (answer == kNothing) return std::nullopt;
  if (answer == kFailed) throw CheckpointError(rest);
  Loader loader(std::move(wanted), state, options);
  int64_t step = 0;
  world.together([&] {
    const auto attempt = attempt_of(run_dir, rest);
    if (!attempt) throw CheckpointError(fmt::format("\"{}\" is no attempt's name", rest));
    step = attempt->step;
    loader.plan(*attempt);
  });
  world.together([&] { loader.read(); });
  loader.set_numbers();
  return step;
}

}  // namespace dtensor::checkpoint
