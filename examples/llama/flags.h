// Flags: what the command lines of train and generate have in common.

#pragma once

#include <boost/program_options.hpp>
#include <string>

#include "dtensor/examples/llama/ranks.h"

namespace dtensor::examples {

// Reads a command line: no stray words, no abbreviated flags. False where --help was asked for and
// printed. ArgumentError naming what is wrong.
bool parse_flags(int argc, char** argv,
                 const boost::program_options::options_description& description,
                 boost::program_options::variables_map& values);

// --mesh, --comm, --threads and --timeout: where the ranks run, and how long they wait.
class RanksFlags {
 public:
  // Both must stay until the flags are read.
  explicit RanksFlags(RanksOptions& options) : options_(options) {}
  void describe(boost::program_options::options_description& description);
  // After parse_flags. ArgumentError naming the flag; also for a backend that is not in this
  // program, on a mesh or not.
  void apply();

 private:
  RanksOptions& options_;
  std::string mesh_;
  double timeout_ = 300;
};

}  // namespace dtensor::examples
