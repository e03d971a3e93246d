// Hugging Face checkpoints: model.safetensors, or model.safetensors.index.json and the files that
// it names; tensor names verbatim.

#pragma once

#include <cstdint>
#include <string>

#include "dtensor/nn/module.h"

namespace dtensor::checkpoint {

struct ImportOptions {
  int64_t buffer_bytes = 16 << 20;  // the most that is read at once
  int io_threads = 2;               // that read, on each rank; 1 to 256
};

// Loads the tensors of a directory into the model's parameters, whatever their mesh and
// placements: each rank reads only what its pieces need. Where the dtypes differ and both are
// floating, values are converted to the model's. Of a tied parameter one of its names has to be
// there; where there are several, the first counts.
// With parameters on a mesh every rank of the root Comm calls it, and an error on one rank is an
// error on all; no other message is sent. ArgumentError for io_threads that are no such number, on
// the others then a CheckpointError that names the rank. CheckpointError: missing, unexpected and
// mismatched tensors, all listed, and nothing was loaded; an index that names a path or a file that
// is not there, or that says a tensor lies where it does not.
void import_hugging_face(const std::string& dir, nn::Module& model,
                         const ImportOptions& options = {});

struct ExportOptions {
  std::string config_json = {};  // written to config.json where not empty
};
// Writes <dir>/model.safetensors: every parameter under its first name. Every rank of the mesh
// calls it; tensors are gathered one at a time, rank 0 (or the mesh's first rank, where 0 is
// outside) writes. The old files stay as they were until the new ones are whole, so a directory may
// be exported over that was imported from. CheckpointError on every rank where writing failed.
void export_hugging_face(const std::string& dir, nn::Module& model,
                         const ExportOptions& options = {});

}  // namespace dtensor::checkpoint
