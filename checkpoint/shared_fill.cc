#include "dtensor/checkpoint/shared_fill.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/block_plan.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/fill_work.h"
#include "dtensor/checkpoint/world.h"

namespace dtensor::checkpoint {
namespace {

// Blocks [first, end) of a source, and the ranks that need them, ascending.
struct Needed {
  int64_t source = 0;
  int64_t first = 0;
  int64_t end = 0;
  std::vector<int> ranks;
};

constexpr int64_t kFields = 3;  // source, first, end

// What every rank said that it needs, as stretches that the same ranks need.
std::vector<Needed> overlay(std::span<const int64_t> told, const comm::Segments& segments) {
  // At each edge of a stretch a rank comes or goes.
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int, bool>>> edges;
  for (int rank = 0; rank < segments.size(); ++rank) {
    const auto list = told.subspan(static_cast<size_t>(segments.offset(rank)),
                                   static_cast<size_t>(segments.count(rank)));
    for (size_t i = 0; i + kFields <= list.size(); i += kFields) {
      edges[{list[i], list[i + 1]}].emplace_back(rank, true);
      edges[{list[i], list[i + 2]}].emplace_back(rank, false);
    }
  }
  std::vector<Needed> out;
  std::vector<int> present;
  std::pair<int64_t, int64_t> before = {-1, 0};
  for (const auto& [at, changes] : edges) {
    if (!present.empty()) out.push_back({before.first, before.second, at.second, present});
    for (const auto& [rank, comes] : changes) {
      if (!comes) std::erase(present, rank);
    }
    for (const auto& [rank, comes] : changes) {
      if (comes) present.insert(std::ranges::lower_bound(present, rank), rank);
    }
    before = at;
  }
  return out;
}

class SharedFiller {
 public:
  SharedFiller(comm::Comm& host, std::span<const FillSource> sources, FillWork& work,
               int64_t buffer_bytes)
      : host_(host),
        world_(host),
        sources_(sources),
        work_(work),
        slots_(std::max<int64_t>(1, (buffer_bytes - kConversionBytes) / kBlockBytes)) {
    for (const FileWork& file : work.files()) by_source_[file.number] = &file;
  }

  FillResult run() {
    const auto needed = gather();
    std::vector<int64_t> held(static_cast<size_t>(host_.size()), 0);
    for (const Needed& n : needed) {
      for (int64_t block = n.first; block < n.end; ++block) {
        for (const int rank : n.ranks) {
          if (held[static_cast<size_t>(rank)] < slots_) continue;
          move_blocks();
          std::ranges::fill(held, 0);
          break;
        }
        for (const int rank : n.ranks) ++held[static_cast<size_t>(rank)];
        add(n, block);
      }
    }
    move_blocks();
    // What went wrong while the last blocks were taken.
    world_.together([&] { rethrow(); });
    return {bytes_read_};
  }

 private:
  struct Slot {
    const FillSource* source = nullptr;
    const FileWork* work = nullptr;
    BlockWindow window;
    int owner = 0;
    std::vector<int> ranks;
    std::span<std::byte> bytes;
  };

  std::vector<Needed> gather() {
    std::vector<int64_t> mine;
    for (const FileWork& file : work_.files()) {
      for (const auto& [first, end] : needed_blocks(file.demands, file.block_bytes)) {
        mine.insert(mine.end(), {file.number, first, end});
      }
    }
    const auto n = static_cast<size_t>(host_.size());
    std::vector<int64_t> counts(n, 0);
    int64_t count = std::ssize(mine);
    const comm::CallOptions options{.label = "checkpoint"};
    host_
        .all_gather_v(comm::ConstBuffer{&count, 1, DType::kInt64},
                      comm::Buffer{counts.data(), std::ssize(counts), DType::kInt64},
                      comm::Segments(std::vector<int64_t>(n, 1)), options)
        .wait();
    const comm::Segments segments(counts);
    std::vector<int64_t> told(static_cast<size_t>(segments.total()));
    host_
        .all_gather_v(comm::ConstBuffer{mine.data(), count, DType::kInt64},
                      comm::Buffer{told.data(), segments.total(), DType::kInt64}, segments, options)
        .wait();
    return overlay(told, segments);
  }

  // Blocks are read in turn by the ranks that need them.
  void add(const Needed& n, int64_t block) {
    if (!std::ranges::binary_search(n.ranks, host_.rank())) return;
    Slot slot;
    slot.source = &sources_[static_cast<size_t>(n.source)];
    slot.work = by_source_.at(static_cast<int>(n.source));
    slot.window.begin_bytes = block * kBlockBytes;
    slot.window.end_bytes = std::min((block + 1) * kBlockBytes, slot.source->bytes);
    slot.owner = n.ranks[static_cast<size_t>(block) % n.ranks.size()];
    slot.ranks = n.ranks;
    find_demands(*slot.work, slot.window);
    round_.push_back(std::move(slot));
  }

  // The demands of chunks that have bytes in the window; windows of a file ascend.
  void find_demands(const FileWork& work, BlockWindow& window) {
    const auto chunk_end = [](const BlockDemand& d) { return d.begin_bytes + d.size_bytes; };
    const auto& demands = work.demands;
    const auto first = std::ranges::upper_bound(demands, window.begin_bytes, {}, chunk_end);
    const auto last =
        std::ranges::lower_bound(demands, window.end_bytes, {}, &BlockDemand::begin_bytes);
    window.first = static_cast<int>(first - demands.begin());
    window.last = static_cast<int>(last - demands.begin());
  }

  // One round: each rank reads its own, sends them where they are needed, and takes from all.
  void move_blocks() {
    world_.together([&] {
      rethrow();
      const auto memory = scratch_.bytes(std::ssize(round_) * kBlockBytes);
      for (size_t i = 0; i < round_.size(); ++i) {
        round_[i].bytes = memory.subspan(
            i * static_cast<size_t>(kBlockBytes),
            static_cast<size_t>(round_[i].window.end_bytes - round_[i].window.begin_bytes));
      }
      for (const Slot& slot : round_) {
        if (slot.owner == host_.rank()) read(slot);
      }
    });
    pass_on();
    try {
      for (const Slot& slot : round_) {
        work_.deliver(*slot.work, open(*slot.source), slot.window, {slot.bytes, false}, scratch_);
      }
    } catch (const std::exception& e) {
      // Told to all in the next round: they must not wait for this rank.
      failure_ = e.what();
    }
    round_.clear();
  }

  void read(const Slot& slot) {
    work_.read_checked(*slot.work, open(*slot.source), slot.window, slot.bytes);
    bytes_read_ += std::ssize(slot.bytes);
  }

  const ReadFile& open(const FillSource& source) {
    if (opened_ != &source) {
      file_.emplace(open_source(source));
      opened_ = &source;
    }
    return *file_;
  }

  void pass_on() {
    std::vector<comm::P2P> legs;
    for (const Slot& slot : round_) {
      const comm::Buffer buffer{slot.bytes.data(), std::ssize(slot.bytes), DType::kUInt8};
      if (slot.owner != host_.rank()) {
        legs.push_back({comm::P2P::Direction::kReceive, slot.owner, buffer});
        continue;
      }
      for (const int rank : slot.ranks) {
        if (rank != slot.owner) legs.push_back({comm::P2P::Direction::kSend, rank, buffer});
      }
    }
    host_.exchange(legs, {.label = "checkpoint"}).wait();
  }

  void rethrow() const {
    if (failure_) throw CheckpointError(*failure_);
  }

  comm::Comm& host_;
  World world_;
  std::span<const FillSource> sources_;
  FillWork& work_;
  int64_t slots_;
  std::map<int, const FileWork*> by_source_;
  std::vector<Slot> round_;
  FillScratch scratch_;
  std::optional<ReadFile> file_;
  const FillSource* opened_ = nullptr;
  std::optional<std::string> failure_;
  int64_t bytes_read_ = 0;
};

}  // namespace

FillResult shared_fill(comm::Comm& host, std::span<const FillSource> sources,
                       std::span<const FillTarget> targets, std::vector<FillPiece> pieces,
                       int64_t buffer_bytes) {
  std::optional<FillWork> work;
  // Memory may be out on one rank.
  World(host).together([&] {
    sort_pieces(pieces);
    work.emplace(sources, targets, pieces);
  });
  try {
    const FillResult result = SharedFiller(host, sources, *work, buffer_bytes).run();
    work->finish();
    return result;
  } catch (const CheckpointError& e) {
    work->finish();
    throw CheckpointError(fmt::format("{}. {}", e.what(), work->overwritten()));
  } catch (...) {
    work->finish();
    throw;
  }
}

}  // namespace dtensor::checkpoint
