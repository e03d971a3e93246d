// Options that several subcommands of `dtensor checkpoint` take. Internal.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/convert.h"
#include "dtensor/tools/options.h"
#include "dtensor/tools/progress.h"

namespace dtensor::tools {

// The argument of that number; UsageError where it was not given.
const std::string& argument(const Options& options, size_t index);
// The same, of something that is there.
const std::string& existing_path(const Options& options, size_t index);

ShowProgress show_progress(const Options& options);

// --include, --exclude and --buffer.
checkpoint::ConvertOptions convert_options(const Options& options);

// "20", "1.5MB", "2GiB": bytes. UsageError otherwise.
int64_t read_bytes(const std::string& text, std::string_view what);
// A whole number from `least` on.
int64_t read_count(const std::string& text, std::string_view what, int64_t least);

// The bytes of the tensors that are selected.
int64_t bytes_of_tensors(const checkpoint::Contents& contents,
                         const checkpoint::ConvertOptions& options);

}  // namespace dtensor::tools
