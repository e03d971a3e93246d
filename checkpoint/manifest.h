// The manifest: all commit records of an attempt in one file, so that a reader opens one file
// instead of one for each rank. A line that is whole and of this attempt is the record of its rank
// where that record's own file is there too; any other line, or a manifest that is not there,
// changes nothing.

#pragma once

#include <map>
#include <memory>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/record.h"

namespace dtensor::checkpoint {

inline constexpr char kManifestName[] = "manifest.jsonl";

// Puts the records of all ranks one after the other into <attempt>/manifest.jsonl. False, and
// nothing is written, where a record is not there yet. CheckpointError where one is damaged or
// the file cannot be written.
bool write_manifest(const Attempt& attempt, const std::shared_ptr<FileSystem>& system);

// The records of the manifest by rank: those that are intact and of this attempt. None where there
// is no manifest.
std::map<int, Record> read_manifest(const Attempt& attempt);

}  // namespace dtensor::checkpoint
