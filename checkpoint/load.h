// Loading: any mesh and placements, from whatever mesh the checkpoint was saved on.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/state.h"

namespace dtensor::checkpoint {

// May a tensor of one floating dtype be stored as another? Its values are then rounded to nearest.
enum class DTypeChange : uint8_t { kRefuse, kConvert };
// Stored tensors that the state has no place for.
enum class Unexpected : uint8_t { kRefuse, kIgnore };
// When damaged data is found. kWhileReading: by the blocks that are read, as they are read: an
// error, after which the tensors that it names are no longer what they were. kBeforeReading: by
// reading the whole attempt first, its files shared out among the ranks; one that is damaged is
// passed over like one that is not complete.
enum class DataCheck : uint8_t { kWhileReading, kBeforeReading };

// Who reads a block that several ranks of a host need: each of them, or one, which passes it on
// through the Comm. The second spares a disk that is slower than the Comm.
enum class Reading : uint8_t { kByEachRank, kOncePerHost };

// What load() did. Of this rank, but for the step and the attempt.
struct LoadReport {
  int64_t step = 0;
  std::string attempt = {};                   // "step-20.20260301T101500Z-1f2e3d4c-g0-s3"
  std::vector<std::string> passed_over = {};  // newer attempts with the reason; on rank 0 only
  // Tensors whose replicas were not equal when they were saved, with the ranks. Looked at where the
  // save compared them (SaveOptions::replicas).
  std::vector<std::string> differing = {};
  std::vector<std::string> left_alone = {};  // the state's tensors that were not asked for
  int64_t bytes_read = 0;                    // of data files
};

struct LoadOptions {
  std::optional<int64_t> step = {};  // this one; else the newest complete
  int64_t buffer_bytes = 16 << 20;   // the most that is read at once; a block of 1 MiB per thread
  int io_threads = 2;                // that read, on each rank; 1 to 256
  // Patterns of the names of the state's tensors: what is loaded. "*" stands for a part of a name,
  // "**" for anything: {"layers.0.**"}. All where empty. `exclude` counts more. Other tensors are
  // left alone, and what is stored for them is not unexpected.
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
  // Name in the state -> name in the checkpoint, where they differ. A parameter's optimizer state
  // follows it. ArgumentError for a name that the state has not.
  std::map<std::string, std::string> stored_as = {};
  DTypeChange dtypes = DTypeChange::kRefuse;
  Unexpected unexpected = Unexpected::kRefuse;
  DataCheck check = DataCheck::kWhileReading;
  Reading reading = Reading::kByEachRank;
  std::string host = {};  // with kOncePerHost: ranks of equal text share; empty: the machine's name
  LoadReport* report = nullptr;  // filled in where given
};

// Loads into the tensors that `state` has, whatever their mesh and placements, and returns the
// step. nullopt where no step was named and the directory holds no complete checkpoint: a first
// start. CheckpointError where it holds none but one that the system does not let be read.
// Newer attempts that are not complete are named in the log, with the reason.
// A collective: every rank of the root Comm calls it. Rank 0 chooses and tells the others, and an
// error on one rank is an error on all: where rank 0 sees no checkpoint and another rank does, that
// is no first start. A rank whose own arguments are wrong gets its ArgumentError or PlacementError,
// the others a CheckpointError that names it. All metadata is checked before anything is written,
// the files' headers with their CRC: CheckpointError listing what is missing, unexpected and
// mismatched. A damaged block found later is a CheckpointError that names file, block and tensor,
// what had been overwritten, and an older step that is complete.
// A checkpoint with optimizer state, or moving averages, loads into a model alone; one without does
// not load where an optimizer, or an Ema, is given. Beside the tensors no more memory is taken than
// `buffer_bytes` and what the metadata needs (a strided local tensor needs its own size).
std::optional<int64_t> load(const std::string& run_dir, const State& state,
                            const LoadOptions& options = {});

}  // namespace dtensor::checkpoint
