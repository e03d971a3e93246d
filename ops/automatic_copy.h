// Copies that automatic moves made (RedistributePolicy::kAuto), for as long as they live. A view of
// one shares its memory and not that of the tensor that was moved, so writing into it in place
// would be lost.

#pragma once

#include <string>
#include <string_view>

#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// `copy` is what `original` was moved to for `op`. Nothing where they share memory.
void note_automatic_copy(const DTensor& original, const DTensor& copy, std::string_view op);

// The op for which the memory of `t` was made by a move; "" where it was not.
std::string automatic_copy_for(const DTensor& t);

}  // namespace dtensor::ops
