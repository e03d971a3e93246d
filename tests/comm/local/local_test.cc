#include "dtensor/comm/local/local.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/create.h"

namespace dtensor::comm::local {
namespace {

TEST(Local, ThreadsMeetByUrl) {
  register_backend();
  std::vector<std::thread> ranks;
  std::vector<int> sums(3, 0);
  std::vector<std::string> runs(3);
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([r, &sums, &runs] {
      const auto comm =
          create("local://?name=meet&rank=" + std::to_string(r) + "&size=3&generation=4");
      EXPECT_EQ(comm->rank(), r);
      EXPECT_EQ(comm->size(), 3);
      EXPECT_EQ(comm->generation(), 4);
      int32_t x = r + 1;
      const Buffer buffer{&x, 1, DType::kInt32};
      comm->all_reduce(buffer, buffer, ReduceOp::kSum).wait();
      sums[static_cast<size_t>(r)] = x;
      runs[static_cast<size_t>(r)] = comm->run_id();
      comm->shutdown();
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(sums, std::vector<int>(3, 6));
  EXPECT_FALSE(runs[0].empty());
  EXPECT_EQ(runs, std::vector<std::string>(3, runs[0]));
}

// Paddle#37951: a rank that does not come is an error that names it, not a smaller world.
TEST(Local, AnAbsentRankIsNamed) {
  register_backend();
  try {
    create("local://?name=absent&rank=0&size=2&timeout=1");
    ADD_FAILURE() << "a world of one rank of two";
  } catch (const CommError& e) {
    EXPECT_EQ(e.fields().kind, CommErrorKind::kTimeout);
    EXPECT_EQ(e.fields().culprit, 1);
  }
}

// Enerzyme#107: whoever comes second hears both sizes; the first hears who is absent.
TEST(Local, RanksThatDisagreeOnTheSizeAreToldBothSizes) {
  register_backend();
  std::vector<std::string> refused(2);
  std::vector<std::thread> ranks;
  for (const size_t r : {size_t{0}, size_t{1}}) {
    ranks.emplace_back([r, &refused] {
      const std::string size = r == 0 ? "3" : "4";
      try {
        create("local://?name=sizes&rank=" + std::to_string(r) + "&size=" + size + "&timeout=3");
        ADD_FAILURE() << "two sizes in one world";
      } catch (const ArgumentError& e) {
        refused[r] = e.what();
      } catch (const CommError&) {
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  const std::string what = refused[0] + refused[1];
  EXPECT_NE(what.find("size 4"), std::string::npos) << what;
  EXPECT_NE(what.find("size 3"), std::string::npos) << what;
}

TEST(Local, AWorldOfNoRanksIsRefused) { EXPECT_THROW(make_world(0), ArgumentError); }

}  // namespace
}  // namespace dtensor::comm::local
