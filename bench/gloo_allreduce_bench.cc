// Gloo's own all-reduce (f32 sum, ring or bcube, the faster one of each size), between the ranks
// that `dtensor run` started:
//   dtensor run -n 2 --plain -- bazel-bin/bench/gloo_allreduce_bench DIRECTORY 8,4194304
// DIRECTORY is empty: Gloo's store. Rank 0 prints the median microseconds of each size as JSON.

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double median_us(const std::shared_ptr<gloo::Context>& context, int64_t bytes,
                 gloo::AllreduceOptions::Algorithm algorithm) {
  const auto count = static_cast<size_t>(std::max<int64_t>(1, bytes / 4));
  std::vector<float> in(count, 1.0F);
  std::vector<float> out(count);
  const int times = bytes > (16 << 20) ? 7 : bytes > (1 << 18) ? 51 : 501;
  std::vector<double> us;
  for (int i = 0; i < times + 3; ++i) {
    gloo::AllreduceOptions options(context);
    options.setInput(in.data(), count);
    options.setOutput(out.data(), count);
    options.setAlgorithm(algorithm);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    const auto start = Clock::now();
    gloo::allreduce(options);
    if (i >= 3)
      us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::nth_element(us, us.begin() + times / 2);
  return us[static_cast<size_t>(times / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("DTENSOR_RANK");
  const char* size = std::getenv("DTENSOR_WORLD_SIZE");
  if (argc != 3 || rank == nullptr || size == nullptr) {
    std::fputs("usage: dtensor run -n 2 --plain -- gloo_allreduce_bench DIRECTORY BYTES,...\n",
               stderr);
    return 2;
  }
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  auto context = std::make_shared<gloo::rendezvous::Context>(std::atoi(rank), std::atoi(size));
  gloo::rendezvous::FileStore store(argv[1]);
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
  context->connectFullMesh(store, device);
  std::istringstream sizes(argv[2]);
  std::string text;
  for (std::string item; std::getline(sizes, item, ',');) {
    const int64_t bytes = std::stoll(item);
    const double us = std::min(median_us(context, bytes, gloo::AllreduceOptions::Algorithm::RING),
                               median_us(context, bytes, gloo::AllreduceOptions::Algorithm::BCUBE));
    text += (text.empty() ? "[" : ",") + std::string("{\"bytes\":") + std::to_string(bytes) +
            ",\"median_us\":" + std::to_string(us) + "}";
  }
  if (context->rank == 0) std::printf("%s]\n", text.c_str());
  return 0;
}
