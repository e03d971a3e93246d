// train: trains a Llama in Hugging Face form on the bytes of a file, on any dp x tp mesh.

#include <cstdio>
#include <exception>

#include "dtensor/examples/llama/ranks.h"
#include "dtensor/examples/llama/train_options.h"
#include "dtensor/examples/llama/trainer.h"

int main(int argc, char** argv) {
  using namespace dtensor::examples;  // NOLINT(google-build-using-namespace)
  try {
    const auto options = parse_train_options(argc, argv);
    if (!options) return 0;
    return run_ranks(options->ranks, argc, argv,
                     [&](const dtensor::DeviceMesh& mesh) { train(*options, mesh); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 2;
  }
}
