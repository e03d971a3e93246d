#include "dtensor/checkpoint/hugging_face.h"

#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/names.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/state.h"
#include "dtensor/checkpoint/tensor_index.h"
#include "dtensor/checkpoint/world.h"
#include "dtensor/tensor/local.h"

namespace dtensor::checkpoint {
namespace {

// What this rank reads of a directory into the tensors of a model.
class Importer {
 public:
  Importer(const std::string& dir, const NamedState& wanted) : index_(read_tensor_index(dir)) {
    StoredNames stored;
    for (const auto& [name, place] : index_.tensors) {
      stored.tensors[name] = {place.dtype, place.shape};
    }
    const auto names = match_names(wanted, stored, dir, {.converts = true});
    for (size_t i = 0; i < names.size(); ++i) add(wanted.tensors[i], index_.tensors.at(names[i]));
  }

  void read(const ImportOptions& options) {
    std::vector<FillSource> sources;
    for (const TensorIndex::File& file : index_.files) sources.push_back({file.path, file.bytes});
    fill(sources, targets_, std::move(pieces_),
         {.buffer_bytes = options.buffer_bytes, .threads = options.io_threads});
  }

 private:
  void add(const NamedTensor& t, const TensorIndex::Place& place) {
    if (!t.value.has_local()) return;
    const Box whole{Shape::filled(t.value.ndim(), 0), t.value.shape()};
    const bool plain = !t.value.mesh().defined();
    const Box box = plain ? whole : t.value.layout().box_of(t.value.mesh().rank());
    const auto target = static_cast<int>(targets_.size());
    targets_.push_back({t.name, t.value.local_tensor(), box, place.dtype});
    if (!box.empty()) pieces_.push_back({place.file, target, place.begin_bytes, whole, box});
  }

  TensorIndex index_;
  std::vector<FillTarget> targets_;
  std::vector<FillPiece> pieces_;
};

// Writes the file of an export, on the rank that does; on the others all calls do nothing. An error
// is kept, not thrown: the gathers go on, so that no rank waits for another.
class Exporter {
 public:
  Exporter(const std::string& dir, const std::vector<safetensors::Entry>& entries, bool writes)
      : dir_(dir) {
    if (!writes) return;
    attempt([&] {
      make_directories(*current_file_system(), dir);
      file_ = std::make_unique<AtomicFile>(path("model.safetensors"));
      file_->append(bytes_of(safetensors::header(entries, {{"format", "pt"}})));
    });
  }

  void append(const Tensor& whole) {
    if (!file_) return;
    attempt([&] {
      const Tensor dense = whole.contiguous();
      file_->append(
          {static_cast<const std::byte*>(dense.raw()), static_cast<size_t>(dense.size_bytes())});
    });
  }

  void finish(const ExportOptions& options) {
    if (failure_) throw CheckpointError(*failure_);
    if (!file_) return;
    // Both are whole on the disk before the first takes its name.
    std::optional<AtomicFile> config;
    if (!options.config_json.empty()) {
      config.emplace(path("config.json"));
      config->append(bytes_of(options.config_json));
      config->prepare();
    }
    file_->prepare();
    file_->commit(Existing::kReplace);
    if (config) config->commit(Existing::kReplace);
  }

 private:
  std::string path(const char* name) const { return (std::filesystem::path(dir_) / name).string(); }

  template <class F>
  void attempt(F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      failure_ = e.what();
      file_.reset();  // removes the temporary
    }
  }

  std::string dir_;
  std::unique_ptr<AtomicFile> file_;
  std::optional<std::string> failure_;
};

// The rank that writes: 0, or the mesh's first one where 0 is outside of it.
bool writes(const NamedState& state, const World& world) {
  for (const NamedTensor& t : state.tensors) {
    const DeviceMesh& mesh = t.value.mesh();
    if (mesh.defined() && !mesh.layout().contains(0)) {
      return world.rank() == mesh.layout().ranks().front();
    }
  }
  return world.rank() == 0;
}

}  // namespace

void import_hugging_face(const std::string& dir, nn::Module& model, const ImportOptions& options) {
  const NamedState wanted = named_state({.model = model});
  const World world = World::of_tensors(wanted);
  refuse_partial(wanted);
  std::optional<Importer> importer;
  world.together_with_own([&] {
    check_io_threads("checkpoint::import_hugging_face", options.io_threads);
    importer.emplace(dir, wanted);
  });
  world.together([&] { importer->read(options); });
}

void export_hugging_face(const std::string& dir, nn::Module& model, const ExportOptions& options) {
  const NamedState state = named_state({.model = model});
  const World world = World::of_tensors(state);
  std::map<std::string, DTensor> by_name;
  std::vector<safetensors::Item> items;
  for (const NamedTensor& t : state.tensors) {
    by_name.emplace(t.name, t.value);
    const Shape& shape = t.value.shape();
    items.push_back({t.name, t.value.dtype(), {shape.begin(), shape.end()}, nullptr});
  }
  const auto entries = safetensors::entries_of(items);
  Exporter exporter(dir, entries, writes(state, world));
  for (const safetensors::Entry& e : entries) {
    const DTensor& value = by_name.at(e.name);
    if (value.has_local()) exporter.append(full(value));
  }
  world.together([&] { exporter.finish(options); });
}

}  // namespace dtensor::checkpoint
