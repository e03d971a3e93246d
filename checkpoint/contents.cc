#include "dtensor/checkpoint/contents.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/replica_check.h"
#include "dtensor/placement/tiling.h"

namespace dtensor::checkpoint {
namespace {

class Examiner {
 public:
  Examiner(const Attempt& attempt, Records from) : from_(from) { out_.contents.attempt = attempt; }

  Examined run() {
    read_records();
    if (records_.empty()) {
      if (out_.problems.empty()) add({.what = "missing", .text = "no commit record"});
      return std::move(out_);
    }
    check_ranks();
    for (auto& [rank, record] : records_) merge(record);
    if (out_.problems.empty()) check_values_of_all();
    // Without a record what it covered is missing as well: saying so for every tensor helps nobody.
    if (out_.problems.empty()) check_tilings();
    if (out_.problems.empty()) {
      for (DifferingReplicas& d : replicas_.differing()) {
        contents().differing.push_back(
            {.what = "replicas", .tensor = std::move(d.tensor), .text = std::move(d.text)});
      }
    }
    return std::move(out_);
  }

 private:
  Contents& contents() { return out_.contents; }
  void add(Problem problem) { out_.problems.push_back(std::move(problem)); }

  std::vector<std::pair<int, std::string>> record_names() {
    std::vector<std::pair<int, std::string>> names;
    std::error_code error;
    std::filesystem::directory_iterator it(contents().attempt.path, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      std::string name = it->path().filename().string();
      if (const auto rank = rank_of_record_name(name)) names.emplace_back(*rank, std::move(name));
    }
    if (error) {
      add({.what = is_unreadable(error.value()) ? "unreadable" : "missing",
           .text = "cannot read the directory: " + error.message()});
    }
    std::ranges::sort(names);
    return names;
  }

  void read_records() {
    std::map<int, Record> merged;
    if (from_ == Records::kOfManifest) merged = read_manifest(contents().attempt);
    for (const auto& [rank, name] : record_names()) {
      const std::string path = contents().attempt.path + "/" + name;
      try {
        const auto known = merged.find(rank);
        Record record = known != merged.end()
                            ? std::move(known->second)
                            : parse_record(read_text(path, kMaxRecordBytes), path);
        if (record.id != contents().attempt.id || record.step != contents().attempt.step) {
          add({.what = "id",
               .file = name,
               .text = fmt::format("{} is of attempt {} (step {}), the directory of {}", name,
                                   record.id, record.step, contents().attempt.id)});
        } else if (record.rank != rank) {
          add({.what = "record",
               .file = name,
               .text = fmt::format("{} is of rank {}", name, record.rank)});
        } else {
          records_.emplace(rank, std::move(record));
        }
      } catch (const UnreadableError& e) {
        add({.what = "unreadable", .file = name, .text = e.what()});
      } catch (const Error& e) {
        add({.what = "record", .file = name, .text = e.what()});
      }
      refused_.insert(rank);
    }
    for (const auto& [rank, record] : records_) refused_.erase(rank);
  }

  void check_ranks() {
    contents().world = records_.begin()->second.world;
    std::vector<int> missing;
    for (const auto& [rank, record] : records_) {
      if (record.world != contents().world) {
        add({.what = "mismatch",
             .file = record_name(rank),
             .text = fmt::format("{} speaks of {} ranks, {} of {}", record_name(rank), record.world,
                                 record_name(records_.begin()->first), contents().world)});
      }
    }
    // A world is not trusted to be small: stop listing after a few thousand.
    constexpr size_t kMostListed = 4096;
    for (int r = 0; r < contents().world && missing.size() < kMostListed; ++r) {
      if (!records_.contains(r) && !refused_.contains(r)) missing.push_back(r);
    }
    if (!missing.empty()) {
      add({.what = "missing",
           .file = record_name(missing.front()),
           .text = fmt::format("no record of rank{} {} of {}", missing.size() > 1 ? "s" : "",
                               rank_ranges(missing), contents().world)});
    }
  }

  // Takes the tensors out of the record: there may be a million.
  void merge(Record& record) {
    const auto first_file = static_cast<int>(contents().files.size());
    for (size_t f = 0; f < record.files.size(); ++f) {
      RecordFile& given = record.files[f];
      contents().files.push_back(StoredFile{given.name, contents().attempt.path + "/" + given.name,
                                            given.bytes, std::move(given.block_crcs)});
      check_size(record, static_cast<int>(f));
    }
    for (size_t i = 0; i < record.tensors.size(); ++i) {
      RecordTensor& tensor = record.tensors[i];
      merge_tensor(tensor, stored_as(tensor, i, record.rank), record.rank, first_file);
    }
    record.tensors = {};
    for (const auto& [name, target] : record.aliases) {
      merge_value(contents().aliases, name, target, record.rank);
    }
    for (const auto& [name, number] : record.numbers) {
      merge_value(contents().numbers, name, number, record.rank);
    }
    for (const auto& [name, text] : record.texts) {
      merge_value(contents().texts, name, text, record.rank);
    }
  }

  void check_size(const Record& record, int index) {
    const StoredFile& file = contents().files.back();
    Problem problem{.file = file.name};
    try {
      const ReadFile open(file.path);
      if (open.size_bytes() == file.bytes) return;
      problem.what = "size";
      problem.text = fmt::format("{} has {} bytes, {} says {}", file.name, open.size_bytes(),
                                 record_name(record.rank), file.bytes);
    } catch (const UnreadableError& e) {
      problem.what = "unreadable";
      problem.text = e.what();
    } catch (const CheckpointError& e) {
      problem.what = "missing";
      problem.text = e.what();
    }
    int others = -1;
    for (const RecordTensor& t : record.tensors) {
      const bool has = std::ranges::any_of(t.chunks, [&](auto& c) { return c.file == index; });
      if (has && others++ < 0) problem.tensor = t.name;
    }
    if (others >= 0) {
      problem.text += fmt::format("; it has values of \"{}\"", problem.tensor);
      if (others > 0) problem.text += fmt::format(" and {} more", others);
    }
    add(std::move(problem));
  }

  // Most records list the same tensors in the same order: where the i-th of the ones before was is
  // looked at first.
  StoredTensor& stored_as(const RecordTensor& tensor, size_t i, int rank) {
    if (i < order_.size() && order_[i]->first == tensor.name) return order_[i]->second;
    const auto [it, is_new] =
        contents().tensors.try_emplace(tensor.name, StoredTensor{tensor.dtype, tensor.shape, {}});
    if (is_new) first_rank_.emplace(it->first, rank);
    if (i == order_.size()) order_.push_back(it);
    order_[i] = it;
    return it->second;
  }

  void merge_tensor(RecordTensor& tensor, StoredTensor& stored, int rank, int first_file) {
    if (stored.dtype != tensor.dtype || stored.shape != tensor.shape) {
      const int first = first_rank_.at(tensor.name);
      add({.what = "mismatch",
           .file = record_name(rank),
           .tensor = tensor.name,
           .text = fmt::format("tensor \"{}\" is {}{} on rank {}, {}{} on rank {}", tensor.name,
                               name_of(stored.dtype), to_string(stored.shape), first,
                               name_of(tensor.dtype), to_string(tensor.shape), rank)});
      return;
    }
    for (RecordChunk& c : tensor.chunks) {
      stored.chunks.push_back({first_file + c.file, std::move(c.key), c.box, -1});
    }
    if (tensor.same_on_all) same_on_all_[tensor.name][rank] = *tensor.same_on_all;
    replicas_.add(tensor, rank);
  }

  template <class T>
  void merge_value(std::map<std::string, T>& values, const std::string& name, const T& value,
                   int rank) {
    const auto [it, is_new] = values.emplace(name, value);
    if (it->second == value) return;
    add({.what = "mismatch",
         .file = record_name(rank),
         .tensor = name,
         .text =
             fmt::format("\"{}\" is {} on rank {}, {} on another", name, value, rank, it->second)});
  }

  // Tensors that every rank holds without a mesh.
  void check_values_of_all() {
    for (const auto& [name, crcs] : same_on_all_) {
      const auto& [first, crc] = *crcs.begin();
      for (const auto& [rank, record] : records_) {
        const auto it = crcs.find(rank);
        if (it != crcs.end() && it->second == crc) continue;
        add({.what = "mismatch",
             .file = record_name(rank),
             .tensor = name,
             .text = fmt::format(
                 "tensor \"{}\" lies on no mesh, and rank {} has {} rank {}; put it "
                 "on the mesh, or give it a name of its own on each rank",
                 name, rank, it == crcs.end() ? "none, but" : "another value than", first)});
        break;
      }
    }
  }

  void check_tilings() {
    for (const auto& item : contents().tensors) {
      const std::string& name = item.first;
      const StoredTensor& tensor = item.second;
      Tiling tiling{tensor.shape, {}};
      for (size_t i = 0; i < tensor.chunks.size(); ++i) {
        tiling.tiles.push_back({tensor.chunks[i].box, static_cast<int>(i)});
      }
      const auto fault = find_fault(tiling);
      if (!fault) continue;
      const auto file_of = [&](int holder) {
        const StoredChunk& chunk = tensor.chunks[static_cast<size_t>(holder)];
        return contents().files[static_cast<size_t>(chunk.file)].name;
      };
      Problem problem{.what = "tiling", .tensor = name};
      if (fault->kind == TilingFault::Kind::kNotCovered) {
        problem.text = fmt::format("tensor \"{}\" {}: {} not covered", name,
                                   to_string(tensor.shape), rows_of(fault->box, tensor.shape));
      } else {
        problem.file = file_of(fault->holder);
        problem.text = fmt::format("tensor \"{}\" {}: {} is held twice, in {} and {}", name,
                                   to_string(tensor.shape), rows_of(fault->box, tensor.shape),
                                   problem.file, file_of(fault->other));
      }
      add(std::move(problem));
    }
  }

  // "rows [12,16)" where only dim 0 is cut, else the box.
  static std::string rows_of(const Box& box, const Shape& shape) {
    for (int d = 1; d < shape.ndim(); ++d) {
      if (box.size[d] != shape[d]) return to_string(box);
    }
    if (shape.ndim() == 0) return "the value";
    return fmt::format("rows [{},{})", box.offset[0], box.offset[0] + box.size[0]);
  }

  Records from_;
  Examined out_;
  std::map<int, Record> records_;
  std::set<int> refused_;  // ranks whose record is there, but damaged or of something else
  std::vector<std::map<std::string, StoredTensor>::iterator> order_;  // of contents().tensors
  std::map<std::string_view, int> first_rank_;  // names are those of contents().tensors
  std::map<std::string, std::map<int, uint32_t>> same_on_all_;
  ReplicaCheck replicas_;
};

}  // namespace

bool Examined::is_unreadable() const {
  return std::ranges::any_of(problems, [](const Problem& p) { return p.what == "unreadable"; });
}

std::string Examined::reason() const {
  constexpr size_t kMostListed = 4;
  std::string text = contents.attempt.name + ": ";
  for (size_t i = 0; i < std::min(problems.size(), kMostListed); ++i) {
    text += (i == 0 ? "" : "; ") + problems[i].text;
  }
  if (problems.size() > kMostListed)
    text += fmt::format("; and {} more", problems.size() - kMostListed);
  return text;
}

Examined examine(const Attempt& attempt, Records records) {
  return Examiner(attempt, records).run();
}

Found find_complete(const std::string& run_dir, std::optional<int64_t> step) {
  Found found;
  for (const Attempt& attempt : list_attempts(run_dir)) {
    if (step && attempt.step != *step) continue;
    Examined examined = examine(attempt);
    if (examined.is_complete()) {
      found.complete = std::move(examined.contents);
      break;
    }
    found.passed_over.push_back(std::move(examined));
  }
  return found;
}

Contents newest_complete(const std::string& run_dir) {
  Found found = find_complete(run_dir);
  if (found.complete) return *std::move(found.complete);
  std::string reasons;
  for (const Examined& e : found.passed_over)
    reasons += (reasons.empty() ? ": " : "; ") + e.reason();
  throw CheckpointError(fmt::format("{} holds no complete checkpoint{}", run_dir, reasons));
}

}  // namespace dtensor::checkpoint
