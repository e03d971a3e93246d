// Draws a mesh in text: a grid of its last two dims for each coordinate of the others.

#pragma once

#include <functional>
#include <string>

#include "dtensor/mesh/mesh_layout.h"

namespace dtensor::tools {

//             tp 0            tp 1
//   dp 0   0: [0:6,0:2]    1: [0:6,2:4]
//   dp 1   2: [6:11,0:2]   3: [6:11,2:4]
// `cell` is asked for the text of a rank. A mesh of one dim is wrapped to lines of 100 characters.
// Of large meshes the first ranks are drawn, and the last line says how many are not.
std::string draw_mesh(const MeshLayout& mesh, const std::function<std::string(int rank)>& cell);

}  // namespace dtensor::tools
