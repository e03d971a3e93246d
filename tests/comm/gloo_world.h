// Worlds over Gloo in one process, for tests: ranks meet at a memory store.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/comm.h"

namespace dtensor::testing {

// The options of rank r are `options`, and of_ranks[r] where these are given.
std::vector<std::unique_ptr<comm::Comm>> gloo_world(
    int size, const std::map<std::string, std::string>& options,
    const std::vector<std::map<std::string, std::string>>& of_ranks = {});

}  // namespace dtensor::testing
