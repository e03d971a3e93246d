#include "dtensor/checkpoint/save_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/ownership.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/placement/holders.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {
namespace {

// A box of a tensor under a key of a data file, and the local elements.
struct Chunk {
  safetensors::Item item;
  Tensor view;
};

class Planner {
 public:
  Planner(Record about, const PlanOptions& options) : options_(options) {
    plan_.record = std::move(about);
  }

  SavePlan run(const NamedState& state) {
    for (const NamedTensor& t : state.tensors) {
      if (!t.value.mesh().defined()) {
        add_plain(t);
      } else if (const auto box = box_to_write(t.name, t.value.dtype(), t.value.layout(), rank())) {
        add(t, t.value.layout().box_of(rank()), *box);
      }
      if (options_.replicas == Replicas::kCompared) add_replica(t);
    }
    end_file();
    plan_.record.aliases = state.aliases;
    plan_.record.numbers = state.numbers;
    plan_.record.texts = state.texts;
    check_record_bytes();
    return std::move(plan_);
  }

 private:
  int rank() const { return plan_.record.rank; }

  // With the files, whose sizes and CRCs are found while they are written. Refuses what is not
  // UTF-8.
  void check_record_bytes() const {
    Record whole = plan_.record;
    for (const PlannedFile& file : plan_.files) {
      int64_t bytes = std::ssize(file.header);
      for (const Tensor& t : file.parts) bytes += t.size_bytes();
      const int64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
      whole.files.push_back({file.name, bytes, std::vector<uint32_t>(static_cast<size_t>(blocks))});
    }
    const int64_t size = std::ssize(to_text(whole));
    if (size <= options_.record_bytes) return;
    throw ArgumentError(fmt::format(
        "checkpoint: the record of rank {} would have {} bytes, more than the {} that are read of "
        "one: {} tensors and {} documents; save over more ranks, or keep large documents elsewhere",
        rank(), size, options_.record_bytes, whole.tensors.size(), whole.texts.size()));
  }

  void add(const NamedTensor& t, const Box& have, const Box& box) {
    RecordTensor& entry = plan_.record.tensors.emplace_back(
        RecordTensor{t.name, t.value.dtype(), t.value.shape(), {}});
    if (box.empty()) return;
    const Tensor& local = local_of(t, have);
    const int64_t rows = box.size.ndim() == 0 ? 1 : box.size[0];
    const int64_t row_bytes = box.numel() / rows * size_of(local.dtype());
    const int64_t rows_at_once = std::clamp<int64_t>(options_.file_bytes / row_bytes, 1, rows);
    for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
      Box part = box;
      Tensor view = local;
      if (box.size.ndim() > 0) {
        part.offset[0] += begin;
        part.size[0] = std::min(rows_at_once, rows - begin);
        if (!(part == have)) {
          view = local.narrow(0, part.offset[0] - have.offset[0], part.size[0]);
        }
      }
      add_chunk(entry, part, view);
    }
  }

  const Tensor& local_of(const NamedTensor& t, const Box& have) const {
    const Tensor& local = t.value.local_tensor();
    if (local.shape() == have.size) return local;
    throw ArgumentError(
        fmt::format("checkpoint: tensor \"{}\" {} is {}: rank {} has to hold {}, and holds {}",
                    t.name, to_string(t.value.shape()), to_string(t.value.spec()), rank(),
                    to_string(have.size), to_string(local.shape())));
  }

  // Of a part that other ranks hold as well; also where one of those writes it.
  void add_replica(const NamedTensor& t) {
    if (!t.value.mesh().defined() || !t.value.has_local()) return;
    const Layout& layout = t.value.layout();
    const Box box = layout.box_of(rank());
    if (box.empty() || replicas(layout, rank()).size() < 2) return;
    auto& tensors = plan_.record.tensors;
    if (tensors.empty() || tensors.back().name != t.name) {
      tensors.push_back({t.name, t.value.dtype(), t.value.shape(), {}});
    }
    tensors.back().replica = {box, crc_of(local_of(t, box))};
  }

  static uint32_t crc_of(const Tensor& local) {
    const Tensor whole = local.contiguous();
    return crc32c(
        {static_cast<const std::byte*>(whole.raw()), static_cast<size_t>(whole.size_bytes())});
  }

  void add_chunk(RecordTensor& entry, const Box& box, const Tensor& view) {
    const bool full =
        bytes_ + view.size_bytes() > options_.file_bytes || std::ssize(chunks_) >= options_.chunks;
    if (!chunks_.empty() && full) end_file();
    const std::string key = chunk_key(entry.name, static_cast<int>(entry.chunks.size()));
    entry.chunks.push_back({static_cast<int>(plan_.files.size()), key, box});
    chunks_.push_back({{key, view.dtype(), {box.size.begin(), box.size.end()}, nullptr}, view});
    bytes_ += view.size_bytes();
  }

  // A tensor on no mesh counts as one that every rank of the world holds. Every record has the CRC
  // of the value, so that one rank's cannot be lost in silence where they differ.
  void add_plain(const NamedTensor& t) {
    const MeshLayout all({{"world", plan_.record.world}});
    const auto layout = Layout::replicated(all, t.value.shape());
    if (const auto box = box_to_write(t.name, t.value.dtype(), layout, rank())) {
      add(t, layout.box_of(rank()), *box);
    } else {
      plan_.record.tensors.push_back({t.name, t.value.dtype(), t.value.shape(), {}});
    }
    if (plan_.record.world == 1) return;
    plan_.record.tensors.back().same_on_all = crc_of(t.value.local_tensor());
  }

  void end_file() {
    if (chunks_.empty()) return;
    std::vector<safetensors::Item> items;
    std::unordered_map<std::string_view, const Tensor*> views;
    items.reserve(chunks_.size());
    for (Chunk& c : chunks_) items.push_back(std::move(c.item));
    for (size_t i = 0; i < items.size(); ++i) views.emplace(items[i].name, &chunks_[i].view);
    const auto entries = safetensors::entries_of(items);
    PlannedFile& file = plan_.files.emplace_back();
    file.name = data_file_name(rank(), static_cast<int>(plan_.files.size()) - 1);
    file.header = safetensors::header(entries);
    for (const safetensors::Entry& e : entries) file.parts.push_back(*views.at(e.name));
    chunks_.clear();
    bytes_ = 0;
  }

  PlanOptions options_;
  SavePlan plan_;
  std::vector<Chunk> chunks_;  // of the file that is not ended yet
  int64_t bytes_ = 0;          // of their data
};

}  // namespace

int64_t SavePlan::data_bytes() const {
  int64_t bytes = 0;
  for (const PlannedFile& f : files) {
    for (const Tensor& t : f.parts) bytes += t.size_bytes();
  }
  return bytes;
}

SavePlan plan_save(const NamedState& state, Record about, const PlanOptions& options) {
  return Planner(std::move(about), options).run(state);
}

}  // namespace dtensor::checkpoint
