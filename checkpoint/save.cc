#include "dtensor/checkpoint/save.h"

#include <fmt/core.h>

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/ownership.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/world.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {
namespace {

// A part of a local tensor under a key of the data file; a view, copied only while it is written.
struct Part {
  safetensors::Item item;
  Tensor view;
};

std::span<const std::byte> bytes_of_tensor(const Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.raw()),
          static_cast<size_t>(contiguous.size_bytes())};
}

void make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw CheckpointError(fmt::format("cannot make the directory {}: {}", path, error.message()));
  }
}

// What one rank writes of one attempt.
class Saver {
 public:
  Saver(const World& world, int64_t step) {
    record_.id = world.next_attempt_id();
    record_.step = step;
    record_.rank = world.rank();
    record_.world = world.size();
  }

  // Finds out what this rank writes; nothing is written where it throws.
  void plan(const NamedState& state) {
    for (const NamedTensor& t : state.tensors) {
      if (!t.value.mesh().defined()) {
        add_plain(t);
      } else if (const auto box = box_to_write(t.name, t.value.dtype(), t.value.layout(), rank())) {
        add(t, t.value.layout().box_of(rank()), *box);
      }
    }
    record_.aliases = state.aliases;
    record_.numbers = state.numbers;
    to_text(record_);  // refuses names that are not UTF-8
  }

  // Copies what will be written, so that the tensors may change.
  void stage() {
    for (Part& part : parts_) part.view = part.view.clone();
  }

  void write(const std::string& run_dir) {
    const std::string name = attempt_name(record_.step, record_.id);
    const std::string dir = (std::filesystem::path(run_dir) / name).string();
    make_directory(dir);
    std::optional<NewFile> data;
    if (!parts_.empty()) {
      data.emplace(dir + "/" + data_file_name(rank()));
      write_data(*data);
    }
    AtomicFile record(dir + "/" + record_name(rank()));
    record.append(bytes_of(to_text(record_)));
    record.prepare();
    record.commit(Existing::kRefuse);
    sync_directory(run_dir);
    if (data) data->keep();
  }

 private:
  int rank() const { return record_.rank; }

  void add(const NamedTensor& t, const Box& have, const Box& box) {
    RecordTensor& entry = record_.tensors.emplace_back(
        RecordTensor{t.name, t.value.dtype(), t.value.shape(), {}, {}});
    if (box.empty()) return;
    Tensor view = t.value.local_tensor();
    if (!(have == box)) view = view.narrow(0, box.offset[0] - have.offset[0], box.size[0]);
    const std::string key = chunk_key(t.name, 0);
    entry.chunks.push_back({0, key, box});
    parts_.push_back({{key, view.dtype(), {box.size.begin(), box.size.end()}, nullptr}, view});
  }

  // A tensor on no mesh counts as one that every rank of the world holds. Every record has the CRC
  // of the value, so that one rank's cannot be lost in silence where they differ.
  void add_plain(const NamedTensor& t) {
    const MeshLayout all({{"world", record_.world}});
    const auto layout = Layout::replicated(all, t.value.shape());
    const auto box = box_to_write(t.name, t.value.dtype(), layout, rank());
    if (!box) {
      record_.tensors.push_back({t.name, t.value.dtype(), t.value.shape(), {}, {}});
    } else {
      add(t, layout.box_of(rank()), *box);
    }
    if (record_.world == 1) return;
    const Tensor whole = t.value.local_tensor().contiguous();
    record_.tensors.back().same_on_all = crc32c(bytes_of_tensor(whole));
  }

  void write_data(NewFile& file) {
    std::vector<safetensors::Item> items;
    std::map<std::string, Tensor> views;
    for (Part& part : parts_) {
      views.emplace(part.item.name, part.view);
      items.push_back(std::move(part.item));
    }
    const auto entries = safetensors::entries_of(items);
    BlockCrcs crcs;
    const auto append = [&](std::span<const std::byte> bytes) {
      crcs.update(bytes);
      file.append(bytes);
    };
    append(bytes_of(safetensors::header(entries)));
    for (const safetensors::Entry& e : entries) {
      append(bytes_of_tensor(views.at(e.name).contiguous()));
    }
    parts_.clear();
    views.clear();
    file.sync();
    record_.files = {{data_file_name(rank()), crcs.bytes(), crcs.crcs()}};
  }

  Record record_;
  std::vector<Part> parts_;
};

// The Context's slot. The destructor of the future waits for the thread.
struct SaveUnderWay {
  std::future<void> done;
};

Saver planned(const std::string& run_dir, int64_t step, const State& state) {
  if (step < 0 || run_dir.empty()) {
    throw ArgumentError(fmt::format(
        "checkpoint::save(\"{}\", {}): give a directory and a step of 0 or more", run_dir, step));
  }
  const NamedState named = named_state(state);
  Saver saver(World::of(named), step);
  saver.plan(named);
  return saver;
}

}  // namespace

void save(const std::string& run_dir, int64_t step, const State& state) {
  Saver saver = planned(run_dir, step, state);
  wait_for_save();
  saver.write(run_dir);
}

void save_async(const std::string& run_dir, int64_t step, const State& state) {
  auto saver = std::make_shared<Saver>(planned(run_dir, step, state));
  wait_for_save();  // before the copy: two copies at once would double the memory
  saver->stage();
  Context::current().slot<SaveUnderWay>().done =
      std::async(std::launch::async, [saver, run_dir] { saver->write(run_dir); });
}

void wait_for_save() {
  auto& done = Context::current().slot<SaveUnderWay>().done;
  if (done.valid()) done.get();  // leaves it invalid: an error is thrown once
}

}  // namespace dtensor::checkpoint
