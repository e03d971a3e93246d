// A Store in a directory that all processes see. A key is one file, named by a hash of the key, and
// appears whole or not at all. Nothing is removed: the directory belongs to one run.

#pragma once

#include <memory>
#include <string>

#include "dtensor/comm/store.h"

namespace dtensor::comm {

// Makes the directory where it is not there; Error where it cannot be written.
std::shared_ptr<Store> make_file_store(const std::string& directory);

}  // namespace dtensor::comm
