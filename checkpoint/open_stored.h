// The tensors of any checkpoint on disk, whoever wrote it, as chunks whose places are known. For
// programs that work on a directory alone: nothing of a Comm is needed.

#pragma once

#include <string>

#include "dtensor/checkpoint/contents.h"

namespace dtensor::checkpoint {

// What `path` is: a run's directory (its newest complete attempt counts), an attempt's, a Hugging
// Face directory (model.safetensors, or the index and its files), a directory that PyTorch's DCP
// wrote with its HuggingFaceStorageWriter (shard-00001-model-00001-of-00001.safetensors, ... each
// with its offsets), or one safetensors file.
// Every chunk has its begin_bytes; only files of an attempt have CRCs; `attempt` and `world` are
// set for an attempt. CheckpointError for whatever is not complete and whole, as far as headers
// show.
Contents open_stored(const std::string& path);

// Is it a directory that open_stored takes for a Hugging Face one or one of DCP? CheckpointError
// for a safetensors file whose header it cannot read.
bool is_foreign_directory(const std::string& path);

// Reads the headers of the files of an attempt, compares them with their CRCs and with the records,
// and fills in where the chunks lie.
void locate_chunks(Contents& contents);

// The attempt that a path is the directory of; nullopt where its name is not one's.
std::optional<Attempt> attempt_at(const std::string& path);

}  // namespace dtensor::checkpoint
