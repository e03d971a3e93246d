#include "dtensor/examples/llama/flags.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "dtensor/base/error.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/examples/llama/parallel.h"

namespace dtensor::examples {

namespace po = boost::program_options;

bool parse_flags(int argc, char** argv, const po::options_description& description,
                 po::variables_map& values) {
  try {
    const po::positional_options_description none;
    po::store(
        po::command_line_parser(argc, argv)
            .options(description)
            .positional(none)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .run(),
        values);
    if (values.count("help") != 0) {
      std::ostringstream text;
      text << description;
      std::fputs(text.str().c_str(), stdout);
      return false;
    }
    po::notify(values);
  } catch (const po::error& error) {
    throw ArgumentError(fmt::format("{}; see --help", error.what()));
  }
  return true;
}

void RanksFlags::describe(po::options_description& description) {
  auto add = description.add_options();
  add("mesh", po::value(&mesh_), "dp=2,tp=2; without it one process on no mesh");
  add("comm", po::value(&options_.comm), "gloo, local (threads), or a URL");
  add("threads", po::value(&options_.threads), "per rank");
  add("timeout", po::value(&timeout_), "SECONDS that an operation may take");
}

void RanksFlags::apply() {
  if (options_.threads < 1) throw ArgumentError("--threads: give 1 or more");
  if (!(timeout_ > 0 && timeout_ < 1e9)) {
    throw ArgumentError("--timeout: give seconds, more than 0");
  }
  options_.timeout = std::chrono::milliseconds(std::llround(timeout_ * 1000));
  if (!mesh_.empty()) {
    options_.mesh = parse_mesh(mesh_);
    check_mesh(*options_.mesh);
  }
  comm::register_all();
  try {
    comm::check_backend(options_.comm);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("--comm {}: {}", options_.comm, error.what()));
  }
}

}  // namespace dtensor::examples
