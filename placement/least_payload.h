// The least number of elements that have to be sent to bring a tensor from one layout to another.

#pragma once

#include <cstdint>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

// On one mesh, mesh dims that stay R or P are left alone: at each of their coordinates the others
// move by themselves. There, within the groups of the mesh dims that are resolved (P -> R or S), of
// n ranks each:
// an element that one of the group wants is reduced with n - 1 sends and handed on with one more
// for each further rank; an element that a group wants and does not hold comes with one send per
// rank, after it was reduced somewhere. Without P: one send for each element that a rank wants and
// lacks. Ranks that differ on mesh dims that become Partial want an element once together: of R ->
// P(sum) at coordinate 0, of S -> P wherever one has it.
// Between two meshes an element that is wanted is reduced once, by n - 1 sends, to a rank that
// wants it where one of those that hold it does, and goes on with one send to every other.
// Terms of a reduction over all of the same ranks are sent nowhere (`keeps_terms`).
// Mesh dims of `at_zero_dims` want the value at coordinate 0 only. One shape.
int64_t least_payload(const Layout& from, const Layout& to);

// How many boxes least_payload() looks at, at most: one per rank that differs on mesh dims that are
// not left alone; where a Partial is resolved, or made of a cut, one per such rank for each cell
// between all boundaries. Told from the levels alone. INT64_MAX for more than 64 bits count.
int64_t least_payload_boxes(const Layout& from, const Layout& to);

// From one mesh to another of the same ranks, where every mesh dim of both is P of one reduction: a
// rank's term is a term of the new layout as it is, whatever its coordinates are there.
bool keeps_terms(const Layout& from, const Layout& to);

// The mesh dims of `to` of which only coordinate 0 needs the value: they become P(sum) or P(prod)
// and do not from a cut of the same mesh. None for a tensor without elements.
std::vector<int> at_zero_dims(const Layout& from, const Layout& to);

}  // namespace dtensor
