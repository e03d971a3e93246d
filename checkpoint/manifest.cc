#include "dtensor/checkpoint/manifest.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"

namespace dtensor::checkpoint {
namespace {

// Where the manifest would be longer, the records are read one by one.
constexpr int64_t kMaxManifestBytes = int64_t{1} << 31;

std::string manifest_path(const Attempt& attempt) { return attempt.path + "/" + kManifestName; }

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool is_of(const Record& record, const Attempt& attempt) {
  return record.id == attempt.id && record.step == attempt.step;
}

}  // namespace

bool write_manifest(const Attempt& attempt, const std::shared_ptr<FileSystem>& system) {
  std::string text;
  int world = 1;  // until the first record says how many
  for (int rank = 0; rank < world; ++rank) {
    const std::string path = attempt.path + "/" + record_name(rank);
    if (!is_there(path)) return false;
    const std::string line = read_text(path, kMaxRecordBytes);
    const Record record = parse_record(line, path);
    if (!is_of(record, attempt) || record.rank != rank || (rank > 0 && record.world != world)) {
      throw CheckpointError(fmt::format(
          "{} is of attempt {}, rank {} of {}; no manifest is made of it for rank {} of {}", path,
          record.id, record.rank, record.world, rank, attempt.name));
    }
    world = record.world;
    // The last record is looked for before all are read: most ranks find that it is too early.
    if (rank == 0 && !is_there(attempt.path + "/" + record_name(world - 1))) return false;
    text += line;
  }
  AtomicFile file(manifest_path(attempt), system);
  file.append(bytes_of(text));
  file.prepare();
  file.commit(Existing::kReplace);
  return true;
}

std::map<int, Record> read_manifest(const Attempt& attempt) {
  std::map<int, Record> records;
  const std::string path = manifest_path(attempt);
  if (!is_there(path)) return records;
  std::string text;
  try {
    text = read_text(path, kMaxManifestBytes);
  } catch (const CheckpointError&) {
    return records;  // the records themselves count
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.empty() ? rest.size() : line.size());
    try {
      Record record = parse_record(line, path);
      if (!is_of(record, attempt)) continue;
      const int rank = record.rank;
      records.insert_or_assign(rank, std::move(record));
    } catch (const Error&) {
      continue;  // the record itself counts
    }
  }
  return records;
}

}  // namespace dtensor::checkpoint
