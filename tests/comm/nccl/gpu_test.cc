// Links the real CUDA and NCCL. Where a GPU is, a world of one on it; else it says why not.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"

namespace dtensor::comm {
namespace {

int devices() {
  int count = 0;  // left untouched where there is no driver
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

TEST(Gpu, AWorldOfOneComputes) {
  if (devices() == 0) GTEST_SKIP() << "no CUDA device that works: cudaGetDeviceCount finds none";
  register_all();
  const auto world = create("nccl://?rank=0&size=1");
  std::vector<float> host(1000, 3);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4000), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(memory, host.data(), 4000, cudaMemcpyHostToDevice), cudaSuccess);
  const Buffer b{memory, 1000, DType::kFloat32, {DeviceType::kCuda, 0}};
  world->all_reduce(b, b, ReduceOp::kSum).wait();
  host.assign(1000, 0);
  ASSERT_EQ(cudaMemcpy(host.data(), memory, 4000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(host, std::vector<float>(1000, 3));
  cudaFree(memory);
}

TEST(Gpu, WithoutADeviceTheUrlSaysSo) {
  if (devices() > 0) GTEST_SKIP() << "there is one";
  register_all();
  for (const std::string scheme : {"nccl", "hybrid"}) {
    try {
      create(scheme + "://?rank=0&size=1");
      ADD_FAILURE() << "made a Comm without a device";
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("CUDA device"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace dtensor::comm
