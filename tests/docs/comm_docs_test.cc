// The C++ blocks of docs/comm.md.

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/trace.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

void average(comm::Comm& comm, std::vector<float>& gradient) {
  const comm::Buffer buffer{gradient.data(), static_cast<int64_t>(gradient.size()),
                            DType::kFloat32};
  comm::Work work = comm.all_reduce(buffer, buffer, comm::ReduceOp::kAvg, {.label = "gradient"});
  work.wait();
}

std::vector<int64_t> gather_lines(comm::Comm& comm, const std::vector<int64_t>& mine,
                                  const std::vector<int64_t>& counts) {
  const comm::Segments segments(counts);  // equal on all ranks; counts[rank] == mine.size()
  std::vector<int64_t> all(static_cast<size_t>(segments.total()));
  comm.all_gather_v({mine.data(), segments.count(comm.rank()), DType::kInt64},
                    {all.data(), segments.total(), DType::kInt64}, segments)
      .wait();
  return all;
}

float sum_in_place(comm::Comm& comm, int64_t n) {
  const comm::Memory memory = comm.allocate(4 * n);  // freed with its last copy
  std::fill_n(memory.as<float>(), n, 1.0F);
  const comm::Buffer x = memory.buffer(n, DType::kFloat32);
  comm.all_reduce(x, x, comm::ReduceOp::kSum).wait();
  return memory.as<float>()[n - 1];
}

std::string why(comm::Comm& comm) {
  try {
    comm.barrier({.deadline = Deadline::after(std::chrono::seconds(5)), .label = "step"}).wait();
  } catch (const comm::CommError& e) {
    const comm::CommError::Fields& f = e.fields();
    return std::string(name_of(f.kind)) + " by rank " + std::to_string(f.culprit);
  }
  return "all well";
}

void save_trace(const comm::Comm& comm) { comm::write_trace(comm.trace(), "traces"); }

std::string scrape(const comm::Comm& comm) { return comm.metrics(); }

TEST(CommDocs, TheBlocksDoWhatThePageSays) {
  std::filesystem::current_path(::testing::TempDir());
  std::barrier every_rank_is_here(3);  // an abort may overtake the barrier of a Comm
  run_ranks(3, [&](comm::Comm& comm) {
    std::vector<float> gradient = {static_cast<float>(comm.rank()), 6};
    average(comm, gradient);
    EXPECT_EQ(sum_in_place(comm, 1000), 3);
    EXPECT_EQ(gradient, (std::vector<float>{1, 6}));

    const std::vector<int64_t> counts = {2, 0, 1};
    const std::vector<int64_t> mine(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]),
                                    comm.rank());
    EXPECT_EQ(gather_lines(comm, mine, counts), (std::vector<int64_t>{0, 0, 2}));

    save_trace(comm);
    EXPECT_NE(scrape(comm).find("dtensor_comm_calls_total"), std::string::npos);

    EXPECT_EQ(why(comm), "all well");
    every_rank_is_here.arrive_and_wait();
    if (comm.rank() == 2) comm.abort("enough");
    EXPECT_EQ(why(comm), "Aborted by rank 2");
  });
}

}  // namespace
}  // namespace dtensor::testing
