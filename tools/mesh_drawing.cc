#include "dtensor/tools/mesh_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace dtensor::tools {
namespace {

constexpr int kMaxColumns = 16;
constexpr int kMaxRows = 16;
constexpr int kMaxGrids = 4;
constexpr size_t kLineWidth = 100;

using Row = std::pair<std::string, std::vector<std::string>>;  // a label and cells

// Rows below each other, cells of one width.
std::string lined_up(const std::vector<std::string>& header, const std::vector<Row>& rows) {
  size_t label = 0;
  size_t width = 0;
  for (const auto& [name, cells] : rows) {
    label = std::max(label, name.size());
    for (const std::string& cell : cells) width = std::max(width, cell.size());
  }
  for (const std::string& name : header) width = std::max(width, name.size());
  const auto line = [&](const std::string& name, const std::vector<std::string>& cells) {
    std::string text = fmt::format("  {:<{}}", name, label);
    for (const std::string& cell : cells) text += fmt::format("  {:<{}}", cell, width);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text;
  if (!header.empty()) text += line("", header);
  for (const auto& [name, cells] : rows) text += line(name, cells);
  return text;
}

std::string named(const MeshLayout& mesh, int m, int coordinate) {
  return fmt::format("{} {}", mesh.name(m), coordinate);
}

class Drawing {
 public:
  Drawing(const MeshLayout& mesh, const std::function<std::string(int)>& cell)
      : mesh_(mesh), cell_(cell) {
    at_.ndim = mesh.ndim();
  }

  std::string run() {
    std::string text;
    if (mesh_.ndim() < 2) {
      text = one_line_after_another();
    } else {
      const int outer = mesh_.size() / (mesh_.size(rows()) * mesh_.size(columns()));
      for (int g = 0; g < std::min(outer, kMaxGrids); ++g) text += grid(g);
    }
    const int left = mesh_.size() - drawn_;
    if (left > 0) text += fmt::format("  and {} more rank{}\n", left, left == 1 ? "" : "s");
    return text;
  }

 private:
  int rows() const { return mesh_.ndim() - 2; }
  int columns() const { return mesh_.ndim() - 1; }

  std::string cell() {
    ++drawn_;
    const int rank = mesh_.rank_at(at_);
    return fmt::format("{}: {}", rank, cell_(rank));
  }

  // How many cells as long as the first and the last fit beside each other.
  int fitting(size_t label) const {
    const auto width = [&](int rank) {
      return fmt::format("{}: {}", rank, cell_(rank)).size() + 2;
    };
    const size_t wide = std::max(width(mesh_.ranks().front()), width(mesh_.ranks().back()));
    const size_t count = (kLineWidth - std::min(kLineWidth, label + 2)) / wide;
    return std::clamp(static_cast<int>(count), 1, kMaxColumns);
  }

  std::string one_line_after_another() {
    const int size = mesh_.size();
    const std::string name = mesh_.ndim() == 0 ? "" : mesh_.name(0);
    const int fit = fitting(name.size() + 8);
    std::vector<Row> lines;
    for (int first = 0; first < size && std::cmp_less(lines.size(), kMaxRows); first += fit) {
      const int last = std::min(size, first + fit) - 1;
      Row& row = lines.emplace_back();
      if (!name.empty()) {
        row.first = first == last ? fmt::format("{} {}", name, first)
                                  : fmt::format("{} {}-{}", name, first, last);
      }
      for (int c = first; c <= last; ++c) {
        if (mesh_.ndim() > 0) at_[0] = c;
        row.second.push_back(cell());
      }
    }
    return lined_up({}, lines);
  }

  // Number g, row-major over all dims but the last two.
  std::string grid(int g) {
    std::string text;
    for (int m = rows() - 1; m >= 0; --m) {
      at_[m] = g % mesh_.size(m);
      g /= mesh_.size(m);
    }
    for (int m = 0; m < rows(); ++m) text += (m == 0 ? "  " : ", ") + named(mesh_, m, at_[m]);
    if (!text.empty()) text += "\n";
    const int fit = std::min(mesh_.size(columns()), fitting(mesh_.name(rows()).size() + 4));
    std::vector<std::string> header;
    header.reserve(static_cast<size_t>(fit));
    for (int c = 0; c < fit; ++c) header.push_back(named(mesh_, columns(), c));
    std::vector<Row> lines;
    for (int r = 0; r < std::min(mesh_.size(rows()), kMaxRows); ++r) {
      at_[rows()] = r;
      Row& row = lines.emplace_back(named(mesh_, rows(), r), std::vector<std::string>{});
      for (int c = 0; c < fit; ++c) {
        at_[columns()] = c;
        row.second.push_back(cell());
      }
      if (fit < mesh_.size(columns())) row.second.emplace_back("...");
    }
    return text + lined_up(header, lines);
  }

  const MeshLayout& mesh_;
  const std::function<std::string(int)>& cell_;
  Coordinate at_;
  int drawn_ = 0;
};

}  // namespace

std::string draw_mesh(const MeshLayout& mesh, const std::function<std::string(int rank)>& cell) {
  return Drawing(mesh, cell).run();
}

}  // namespace dtensor::tools
