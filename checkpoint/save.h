// Saving: every rank writes what it owns, and says so in a commit record. Nobody is asked.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtensor/checkpoint/retention.h"
#include "dtensor/checkpoint/state.h"

namespace dtensor::checkpoint {

enum class Manifest : uint8_t {
  kNone,
  // The rank that finds all records there when it has written its own merges them into one file:
  // loading then reads that one (dtensor/checkpoint/manifest.h).
  kByTheLast,
};
// What a save_async does when two saves are under way.
enum class WhenBusy : uint8_t { kWait, kRefuse };

struct SaveOptions {
  int64_t file_bytes = int64_t{8} << 30;  // a rank's data goes into several files of at most this
  Retention retention = {};  // after its part is written, rank 0 removes what it does not keep
  Manifest manifest = Manifest::kNone;
  WhenBusy when_busy = WhenBusy::kWait;
  // kCompared finds tensors that a program has let drift apart: load() and "dtensor checkpoint
  // verify" name them with the ranks. The checkpoint is complete all the same.
  Replicas replicas = Replicas::kTrusted;
};

// Writes an attempt, step-<step>.<id>, into `run_dir`, which is made where it is not there. Every
// rank of the root Comm calls it, those outside the mesh too; no message is sent, no barrier met.
// `step` is the number of updates done. When it returns, this rank's part is on the disk; the
// checkpoint is complete once every rank's is.
// PlacementError for a Partial tensor and ArgumentError for a bad name: nothing was written then.
// CheckpointError naming the file and the system's reason; earlier steps are untouched.
void save(const std::string& run_dir, int64_t step, const State& state,
          const SaveOptions& options = {});

// A save_async that was asked for. Copies are handles of one; thread-safe.
class PendingSave {
 public:
  PendingSave() = default;
  struct State;
  explicit PendingSave(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // False where it was refused: nothing is written.
  bool is_started() const { return state_ != nullptr; }
  bool is_done() const;  // also where it failed; true where it was refused
  // Returns when this rank's part is on the disk; throws what the save failed with.
  void wait() const;
  const std::string& directory() const;  // of the attempt; empty where it was refused

 private:
  std::shared_ptr<State> state_;
};

// The same as save, but returns once this rank's part is copied: the values are those of the call,
// and training may go on while a thread writes. One save may be written and a second one be
// waiting, each in a buffer that is kept for the saves after it; a third waits until one is done,
// or is refused. All ranks have to start the same saves: one that is refused on some ranks only
// stays incomplete.
// Where the system has no thread for it, a CheckpointError, and nothing is written.
// A save that failed makes the next call of save, save_async or wait_for_save throw its error,
// once, unless PendingSave::wait has; a save that throws it has not begun.
PendingSave save_async(const std::string& run_dir, int64_t step, const State& state,
                       const SaveOptions& options = {});

// Returns when every save_async of this Context is on the disk.
void wait_for_save();
// The same, and gives the buffers' memory back.
void release_save_buffers();

}  // namespace dtensor::checkpoint
