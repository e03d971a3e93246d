// From one checkpoint on disk to another, without a model and without other ranks, in bounded
// memory. What `dtensor checkpoint` does.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

struct ConvertOptions {
  int64_t buffer_bytes = 16 << 20;
  // Patterns of names (checkpoint/name_glob.h): what is taken, all where `include` is empty.
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
  std::function<void(int64_t bytes)> progress = {};  // called with the bytes written since
};

// The names that the options leave.
std::vector<std::string> selected(const Contents& contents, const ConvertOptions& options);

// Writes a new attempt of `step` into run_dir, as ranks 0 to world - 1 would have saved it: each
// tensor has the layout that `layout_of` gives for its shape. Returns it. What is there already
// stays. CheckpointError for damaged data or a failed write; what was begun is then not complete.
Attempt write_attempt(const Contents& from, const std::string& run_dir, int64_t step, int world,
                      const std::function<Layout(const Shape& shape)>& layout_of,
                      const ConvertOptions& options = {});

struct HuggingFaceOptions {
  // A file ends before the tensor that would make its data longer. One file, model.safetensors,
  // where all fits; else model-00001-of-0000N.safetensors, ... with model.safetensors.index.json.
  int64_t max_file_bytes = int64_t{5} << 30;
  std::optional<DType> floating = {};  // floating tensors are converted to this
};
// Writes the parameters (nothing of an optimizer) under their own names. Returns the names of the
// files. Every file is whole on the disk before the first takes its name, so that a directory may
// be written over that is read from; a process that is killed leaves the old model or the new one,
// or, where both are of the same number of several files, possibly no index. What is no longer part
// of the model is removed.
std::vector<std::string> write_hugging_face(const Contents& from, const std::string& dir,
                                            const HuggingFaceOptions& format,
                                            const ConvertOptions& options = {});

}  // namespace dtensor::checkpoint
