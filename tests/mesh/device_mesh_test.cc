#include "dtensor/mesh/device_mesh.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/root.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Ints = std::vector<int64_t>;

// The ranks (in the root) of a group, by asking its Comm.
Ints members(comm::Comm& group, int rank) {
  const Ints mine{rank};
  Ints all(static_cast<size_t>(group.size()), -1);
  const Ints ones(all.size(), 1);
  group
      .all_gather_v(comm::ConstBuffer(mine.data(), 1, DType::kInt64),
                    comm::Buffer{all.data(), group.size(), DType::kInt64}, comm::Segments(ones))
      .wait();
  return all;
}

TEST(DeviceMesh, KnowsWhereThisRankIs) {
  run_ranks(6, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 3}});
    EXPECT_EQ(mesh.ndim(), 2);
    EXPECT_EQ(mesh.size(), 6);
    EXPECT_EQ(mesh.size("tp"), 3);
    EXPECT_EQ(mesh.rank(), comm.rank());
    EXPECT_EQ(mesh.coordinate("dp"), comm.rank() / 3);
    EXPECT_EQ(mesh.coordinate("tp"), comm.rank() % 3);
    EXPECT_EQ((*mesh.coordinate())[1], comm.rank() % 3);
    EXPECT_EQ(&mesh.root(), &comm);
    EXPECT_THROW(mesh.size("pp"), ArgumentError);
    EXPECT_EQ(comm.counters().calls, 0) << "a mesh sends no message";
  });
}

TEST(DeviceMesh, OnNoMeshThereIsOneHolder) {
  const DeviceMesh none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.ndim(), 0);
  EXPECT_EQ(none.size(), 1);
  EXPECT_EQ(none.rank(), 0);
  EXPECT_TRUE(none.coordinate().has_value());
  EXPECT_EQ(none, DeviceMesh());
  EXPECT_THROW(static_cast<void>(none.root()), InternalError);
}

// pytorch#193224: the order given is the order kept.
TEST(DeviceMesh, KeepsTheRankOrderItWasGiven) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
    const Ints columns = comm.rank() == 3 || comm.rank() == 0 ? Ints{3, 0} : Ints{1, 2};
    const Ints rows = comm.rank() == 3 || comm.rank() == 1 ? Ints{3, 1} : Ints{0, 2};
    const std::vector<int> a{0};
    const std::vector<int> b{1};
    const std::vector<int> both{0, 1};
    const std::vector<int> turned{1, 0};
    EXPECT_EQ(members(mesh.group(a), comm.rank()), columns);
    EXPECT_EQ(members(mesh.group(b), comm.rank()), rows);
    EXPECT_EQ(mesh.group(a).rank(), mesh.coordinate("a"));
    EXPECT_EQ(mesh.group(b).rank(), mesh.coordinate("b"));
    EXPECT_EQ(members(mesh.group(both), comm.rank()), (Ints{3, 1, 0, 2}));
    EXPECT_EQ(members(mesh.group(turned), comm.rank()), (Ints{3, 0, 1, 2}));
    EXPECT_FALSE(mesh == DeviceMesh(comm, {{"a", 2}, {"b", 2}}));
  });
}

TEST(DeviceMesh, MakesAGroupOnceAndWithoutAMessage) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const DeviceMesh handle = mesh;
    const std::vector<int> tp{1};
    comm::Comm& group = mesh.group(tp);
    EXPECT_EQ(&handle.group(tp), &group);
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(DeviceMesh, EqualMeshesHaveGroupsOfTheirOwn) {
  run_ranks(2, [](comm::Comm& comm) {
    const std::vector<int> x{0};
    const DeviceMesh first(comm, {{"x", 2}});
    static_cast<void>(first.group(x));
    for (int i = 0; i < 3; ++i) {  // also after one of them is gone
      const DeviceMesh again(comm, {{"x", 2}});
      EXPECT_EQ(first, again);
      EXPECT_NE(&first.group(x), &again.group(x));
      EXPECT_EQ(members(again.group(x), comm.rank()), (Ints{0, 1}));
    }
    EXPECT_FALSE(first == DeviceMesh(comm, {{"y", 2}}));
    EXPECT_FALSE(first == DeviceMesh(comm, {{"x", 2, {2, 1}}}));
    EXPECT_FALSE(first == DeviceMesh());
  });
}

TEST(DeviceMesh, KeepsGroupsOfAnyRanksOfItsRoot) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {2, 0});
    const DeviceMesh again(comm, {{"x", 2}}, {2, 0});
    const std::vector<int> three{0, 2, 3};
    if (comm.rank() == 1) {
      EXPECT_THROW(static_cast<void>(mesh.group_of_ranks(three)), ArgumentError);
      return;
    }
    comm::Comm& group = mesh.group_of_ranks(three);
    EXPECT_EQ(&mesh.group_of_ranks(three), &group);
    EXPECT_NE(&again.group_of_ranks(three), &group);
    EXPECT_EQ(comm.counters().calls, 0);
    EXPECT_EQ(members(group, comm.rank()), (Ints{0, 2, 3}));
  });
}

TEST(DeviceMesh, ARankMayBeOutside) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {2, 0});
    const std::vector<int> x{0};
    if (comm.rank() != 1) {
      EXPECT_EQ(members(mesh.group(x), comm.rank()), (Ints{2, 0}));
      return;
    }
    EXPECT_FALSE(mesh.coordinate().has_value());
    EXPECT_THROW(mesh.coordinate("x"), ArgumentError);
    EXPECT_THROW(static_cast<void>(mesh.group(x)), ArgumentError);
  });
}

TEST(DeviceMesh, TheFirstMakesItsCommTheRootWhereTheContextHasNone) {
  run_ranks(2, [](comm::Comm& comm) {
    EXPECT_EQ(comm::root(), nullptr);
    { const DeviceMesh mesh(comm, {{"x", 2}}); }
    EXPECT_EQ(comm::root(), &comm);
    const auto group = comm.group(std::vector<int>{1, 0}, "other");
    const DeviceMesh mesh(*group, {{"x", 2}});
    EXPECT_EQ(comm::root(), &comm);
  });
}

TEST(DeviceMesh, RefusesARankThatTheRootDoesNotHave) {
  run_ranks(2, [](comm::Comm& comm) {
    try {
      const DeviceMesh mesh(comm, {{"x", 3}});
      FAIL() << "a mesh of three ranks on two";
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("rank 2"), std::string::npos) << e.what();
    }
  });
}

// hyper-parallel#428: a slice is only names; pytorch#169381: also of size-1 dims.
TEST(MeshSlice, NamesDimsOfItsMesh) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}});
    EXPECT_EQ(mesh["c"].dims, std::vector<int>{2});
    EXPECT_EQ(mesh["c"].mesh, mesh);
    EXPECT_EQ(mesh.slice({"c", "b"}).dims, (std::vector<int>{2, 1}));
    EXPECT_EQ(mesh.all().dims, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_THROW(mesh.slice({"a", "a"}), ArgumentError);
    EXPECT_THROW(mesh["x"], ArgumentError);
    const MeshSlice slice = mesh.slice({"b", "c"});
    const Ints want = comm.rank() < 2 ? Ints{0, 1} : Ints{2, 3};
    EXPECT_EQ(members(mesh.group(slice.dims), comm.rank()), want);
  });
}

}  // namespace
}  // namespace dtensor
