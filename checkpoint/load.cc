#include "dtensor/checkpoint/load.h"

#include <fmt/core.h>

#include <map>
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
    for (size_t i = 0; i < names.size(); ++i) add(wanted_.tensors[i], names[i]);
    locate_chunks();
  }

  void read() {
    std::vector<FillSource> sources;
    for (const StoredFile& f : contents_.files) {
      sources.push_back({f.path, f.bytes, f.block_crcs, nullptr});
    }
    fill(sources, targets_, std::move(pieces_), options_.buffer_bytes);
  }

  void set_numbers() { restore(state_, contents_.numbers, contents_.texts); }

 private:
  struct Place {
    const std::string* name;
    const StoredTensor* tensor;
    const StoredChunk* chunk;
    size_t piece;  // index into pieces_
  };

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
    for (const auto& [name, text] : wanted_.texts) {
      if (contents_.texts.contains(name)) continue;
      throw CheckpointError(fmt::format("{}: missing: the document \"{}\". Nothing was loaded",
                                        contents_.attempt.path, name));
    }
  }

  // The chunks that this rank's piece of a tensor takes from.
  void add(const NamedTensor& t, const std::string& stored_name) {
    if (!t.value.has_local()) return;
    const auto& [name, stored] = *contents_.tensors.find(stored_name);
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
      places_[chunk.file].push_back({&name, &stored, &chunk, pieces_.size()});
      pieces_.push_back({chunk.file, target, 0, chunk.box, move.box});
    }
  }

  // Where the chunks lie in their files, by the files' headers; one file is open at a time.
  void locate_chunks() {
    for (const auto& [index, places] : places_) {
      const StoredFile& stored = contents_.files[static_cast<size_t>(index)];
      const safetensors::File file(stored.path);
      if (file.size_bytes() != stored.bytes) {
        throw CheckpointError(fmt::format("{} has {} bytes, its commit record says {}", stored.path,
                                          file.size_bytes(), stored.bytes));
      }
      for (const Place& place : places) {
        check_entry(file, *place.name, *place.tensor, *place.chunk);
        pieces_[place.piece].begin_bytes =
            file.data_offset_bytes() + file.find(place.chunk->key)->begin_bytes;
      }
    }
  }

  NamedState wanted_;
  const State& state_;
  const LoadOptions& options_;
  Contents contents_;
  std::map<int, std::vector<Place>> places_;  // by file
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
