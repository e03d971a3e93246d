// Hints for shards in a slow tier (FileAllocator); of others they do nothing.

#pragma once

#include "dtensor/nn/module.h"

namespace dtensor::fsdp {

void read_ahead(const nn::Parameter& p);  // it is gathered soon
void let_go(const nn::Parameter& p);      // it has been
void let_go_gradient(const nn::Parameter& p);

}  // namespace dtensor::fsdp
