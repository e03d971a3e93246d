#include "dtensor/checkpoint/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/name_glob.h"
#include "dtensor/checkpoint/ownership.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/state.h"
#include "dtensor/checkpoint/stream_chunks.h"
#include "dtensor/checkpoint/world.h"

namespace dtensor::checkpoint {
namespace {

using Sink = std::function<void(std::span<const std::byte>)>;

// The chunks of one file in the order of its entries, and its header.
struct PlannedOutput {
  std::string header;
  std::vector<WantedChunk> chunks;
};
PlannedOutput planned(const std::map<std::string, WantedChunk>& by_key,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<safetensors::Item> items;
  for (const auto& [key, c] : by_key) {
    items.push_back({key, c.dtype, {c.box.size.begin(), c.box.size.end()}, nullptr});
  }
  PlannedOutput out;
  const auto entries = safetensors::entries_of(items);
  out.header = safetensors::header(entries, metadata);
  for (const safetensors::Entry& e : entries) out.chunks.push_back(by_key.at(e.name));
  return out;
}

// The record of one rank of a new attempt, and its data file where it has one.
void write_rank(const Contents& from, const std::string& dir, Record record,
                const std::map<std::string, WantedChunk>& by_key, const ConvertOptions& options) {
  std::optional<NewFile> data;
  if (!by_key.empty()) {
    const PlannedOutput out = planned(by_key, {});
    data.emplace(dir + "/" + data_file_name(record.rank));
    data->append(bytes_of(out.header));
    stream_chunks(from, out.chunks, options.buffer_bytes, [&](std::span<const std::byte> bytes) {
      data->append(bytes);
      if (options.progress) options.progress(static_cast<int64_t>(bytes.size()));
    });
    data->sync();
    record.files = {{data_file_name(record.rank), data->crcs().bytes(), data->crcs().crcs()}};
  }
  AtomicFile file(dir + "/" + record_name(record.rank));
  file.append(bytes_of(to_text(record)));
  file.prepare();
  file.rename(Existing::kRefuse);
  if (data) data->keep();  // a record is there that speaks of it, whatever fails from now on
  sync_directory(*current_file_system(), dir);
}

bool is_of_optimizer(const std::string& name) { return name.starts_with(kOptimizerPrefix); }

}  // namespace

std::vector<std::string> selected(const Contents& contents, const ConvertOptions& options) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : contents.tensors) {
    const bool in = options.include.empty() || matches_any(options.include, name);
    if (in && !matches_any(options.exclude, name)) names.push_back(name);
  }
  return names;
}

Attempt write_attempt(const Contents& from, const std::string& run_dir, int64_t step, int world,
                      const std::function<Layout(const Shape& shape)>& layout_of,
                      const ConvertOptions& options) {
  const std::string id = World().next_attempt_id();
  const auto attempt = attempt_of(run_dir, attempt_name(step, id));
  if (!attempt) throw ArgumentError(fmt::format("checkpoint: {} is no step", step));
  const auto system = current_file_system();
  make_directories(*system, attempt->path);
  const auto names = selected(from, options);
  const std::set<std::string> kept(names.begin(), names.end());
  for (int rank = 0; rank < world; ++rank) {
    Record record;
    record.id = id;
    record.step = step;
    record.rank = rank;
    record.world = world;
    record.numbers = from.numbers;
    record.texts = from.texts;
    for (const auto& [name, first] : from.aliases) {
      if (kept.contains(first)) record.aliases.emplace(name, first);
    }
    std::map<std::string, WantedChunk> by_key;
    for (const std::string& name : names) {
      const StoredTensor& t = from.tensors.at(name);
      const auto box = box_to_write(name, t.dtype, layout_of(t.shape), rank);
      if (!box) continue;
      record.tensors.push_back({name, t.dtype, t.shape, {}});
      if (box->empty()) continue;
      const std::string key = chunk_key(name, 0);
      record.tensors.back().chunks.push_back({0, key, *box});
      by_key.emplace(key, WantedChunk{name, t.dtype, *box});
    }
    write_rank(from, attempt->path, std::move(record), by_key, options);
  }
  sync_directory(*system, run_dir);
  return *attempt;
}

namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

std::string shard_name(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

bool is_shard_name(const std::string& name) {
  size_t number = 0;
  size_t count = 0;
  if (std::sscanf(name.c_str(), "model-%zu-of-%zu.safetensors", &number, &count) != 2) return false;
  return name == shard_name(number, count);
}

// The files of a Hugging Face directory, under temporary names until all are whole.
class HuggingFaceWriter {
 public:
  HuggingFaceWriter(const Contents& from, std::string dir, const HuggingFaceOptions& format,
                    const ConvertOptions& options)
      : from_(from), dir_(std::move(dir)), format_(format), options_(options) {}

  std::vector<std::string> run() {
    divide();
    make_directories(*system_, dir_);
    for (size_t i = 0; i < files_.size(); ++i) write_file(i);
    if (files_.size() > 1) write_index();
    put_in_place();
    return names_;
  }

 private:
  std::string path(const std::string& name) const {
    return (std::filesystem::path(dir_) / name).string();
  }

  void divide() {
    int64_t bytes = 0;
    for (const std::string& name : selected(from_, options_)) {
      if (is_of_optimizer(name)) continue;
      const StoredTensor& t = from_.tensors.at(name);
      const bool converts = format_.floating && is_floating(t.dtype);
      const DType dtype = converts ? *format_.floating : t.dtype;
      const Box whole{Shape::filled(t.shape.ndim(), 0), t.shape};
      const int64_t size = whole.numel() * size_of(dtype);
      if (files_.empty() || (bytes > 0 && bytes + size > format_.max_file_bytes)) {
        files_.emplace_back();
        bytes = 0;
      }
      bytes += size;
      total_ += size;
      files_.back().emplace(name, WantedChunk{name, dtype, whole});
    }
    if (files_.empty()) throw CheckpointError("there is no tensor to export");
  }

  void write_file(size_t index) {
    names_.push_back(files_.size() == 1 ? kSingle : shard_name(index + 1, files_.size()));
    const PlannedOutput out = planned(files_[index], {{"format", "pt"}});
    written_.push_back(std::make_unique<AtomicFile>(path(names_.back())));
    AtomicFile& file = *written_.back();
    file.append(bytes_of(out.header));
    stream_chunks(from_, out.chunks, options_.buffer_bytes, [&](std::span<const std::byte> bytes) {
      file.append(bytes);
      if (options_.progress) options_.progress(static_cast<int64_t>(bytes.size()));
    });
    file.prepare();
  }

  void write_index() {
    nlohmann::ordered_json json;
    json["metadata"]["total_size"] = total_;
    std::map<std::string, std::string> map;
    for (size_t i = 0; i < files_.size(); ++i) {
      for (const auto& [name, chunk] : files_[i]) map[name] = names_[i];
    }
    json["weight_map"] = map;
    names_.emplace_back(kIndex);
    written_.push_back(std::make_unique<AtomicFile>(path(names_.back())));
    written_.back()->append(bytes_of(json.dump(2) + "\n"));
    written_.back()->prepare();
  }

  // At every moment a reader finds the old model or the new one, or none where shards of both have
  // the same names: never some of each.
  void put_in_place() {
    const bool sharded = files_.size() > 1;
    const auto shards = std::span(names_).first(files_.size());
    if (sharded && std::ranges::any_of(shards, [&](auto& name) { return is_there(name); })) {
      remove({kIndex});
    }
    for (size_t i = 0; i < files_.size(); ++i) written_[i]->rename(Existing::kReplace);
    sync_directory(*system_, dir_);
    if (sharded) written_.back()->commit(Existing::kReplace);
    // What readers would take for the model, or for its index; then what neither names.
    remove({sharded ? kSingle : kIndex});
    remove(old_shards());
  }

  bool is_there(const std::string& name) const {
    std::error_code error;
    return std::filesystem::symlink_status(path(name), error).type() !=
           std::filesystem::file_type::not_found;
  }

  // model-00001-of-00002.safetensors and so on of an export before this one.
  std::vector<std::string> old_shards() const {
    std::vector<std::string> old;
    std::error_code error;
    std::filesystem::directory_iterator it(dir_, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (is_shard_name(name) && std::ranges::find(names_, name) == names_.end()) {
        old.push_back(name);
      }
    }
    if (error) {
      throw CheckpointError(fmt::format("cannot read the directory {}: {}", dir_, error.message()));
    }
    return old;
  }

  // Those that are there, durably.
  void remove(const std::vector<std::string>& names) const {
    bool removed = false;
    for (const std::string& name : names) {
      const int error = system_->remove(path(name));
      if (error == ENOENT) continue;
      if (error != 0) {
        throw CheckpointError(
            fmt::format("cannot remove {}, which is no longer part of the model: {}", path(name),
                        std::generic_category().message(error)));
      }
      removed = true;
    }
    if (removed) sync_directory(*system_, dir_);
  }

  const Contents& from_;
  std::string dir_;
  const HuggingFaceOptions& format_;
  const ConvertOptions& options_;
  std::shared_ptr<FileSystem> system_ = current_file_system();
  std::vector<std::map<std::string, WantedChunk>> files_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<AtomicFile>> written_;
  int64_t total_ = 0;
};

}  // namespace

std::vector<std::string> write_hugging_face(const Contents& from, const std::string& dir,
                                            const HuggingFaceOptions& format,
                                            const ConvertOptions& options) {
  return HuggingFaceWriter(from, dir, format, options).run();
}

}  // namespace dtensor::checkpoint
