// Runs a ReshardPlan for all ranks of its meshes in one process, on plain arrays, and checks that
// it is well formed on the way: every element of a result is written once, a send meets a receive,
// payloads are what moved. The right result comes from loops over the global array.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtensor/placement/reshard_plan.h"

namespace dtensor::test {

// One row-major array per rank that holds something.
using Locals = std::map<int, std::vector<int64_t>>;

// f(global index) over all elements of a box, row-major.
void for_each_index(const Box& box, const std::function<void(const Shape&)>& f);

// The locals of a tensor whose terms depend on the element and on the coordinates on the Partial
// mesh dims.
Locals make_locals(const Layout& layout, uint64_t seed);

// Throws std::logic_error where the plan is not well formed.
Locals run(const ReshardPlan& plan, const Locals& locals);

// What is wrong with `got` as the outcome of from -> to of make_locals(from, seed); empty if
// nothing.
std::string compare(const Layout& from, const Layout& to, uint64_t seed, const Locals& got);

// The least payload, element by element: see least_payload.h.
int64_t least_by_counting(const Layout& from, const Layout& to);

// Plans and runs from -> to, and checks everything of the above. Empty if all is well.
std::string check_plan(const Layout& from, const Layout& to, uint64_t seed);

}  // namespace dtensor::test
