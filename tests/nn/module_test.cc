#include "dtensor/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::nn {
namespace {

using Names = std::vector<std::string>;

template <class T>
Names names(const std::vector<std::pair<std::string, T>>& list) {
  Names out;
  for (const auto& [name, value] : list) out.push_back(name);
  return out;
}

// Hands its input on.
class Leaf : public Module {
 public:
  explicit Leaf(const Shape& shape) : weight(add_parameter("weight", shape)) {}
  std::string_view kind() const override { return "Leaf"; }
  void tie(const Parameter& other) {
    tie_parameter("weight", other);
    weight = other;
  }
  void add_named(const std::string& name) { add_parameter(name, {1}); }
  Parameter weight;

 protected:
  DTensor forward(const Inputs& inputs) override { return inputs[0]; }
};

class LastNorm : public Leaf {
 public:
  explicit LastNorm(int64_t n) : Leaf({n}) {}
  std::string_view kind() const override { return "LastNorm"; }
};

class Tree : public Module {
 public:
  Tree() : first_({2, 3}), head_({2, 3}), norm_(4) {
    head_.tie(first_.weight);
    add_child("first", first_);
    for (int i = 0; i < 2; ++i) {
      blocks_.push_back(std::make_unique<Leaf>(Shape{5}));
      add_child("blocks." + std::to_string(i), *blocks_.back());
    }
    add_child("head", head_);
    add_child("norm", norm_);
    bias = add_parameter("bias", {7});
    add_buffer("table", DTensor(Tensor::arange(6)));
  }
  std::string_view kind() const override { return "Tree"; }
  Leaf& first() { return first_; }
  Leaf& head() { return head_; }
  void adopt(const std::string& name, Module& child) { add_child(name, child); }
  Parameter bias;

 protected:
  DTensor forward(const Inputs& inputs) override { return head_(first_(inputs[0])); }

 private:
  Leaf first_;
  std::vector<std::unique_ptr<Leaf>> blocks_;
  Leaf head_;
  LastNorm norm_;
};

TEST(Module, NamesParametersInOrderAndTiedOnesOnce) {
  Tree tree;
  EXPECT_EQ(names(tree.named_modules()),
            (Names{"", "first", "blocks.0", "blocks.1", "head", "norm"}));
  EXPECT_EQ(names(tree.named_parameters()),
            (Names{"bias", "first.weight", "blocks.0.weight", "blocks.1.weight", "norm.weight"}));
  EXPECT_EQ(names(tree.named_buffers()), Names{"table"});
  const std::vector<std::pair<std::string, std::string>> want{
      {"bias", "bias"},
      {"first.weight", "first.weight"},
      {"blocks.0.weight", "blocks.0.weight"},
      {"blocks.1.weight", "blocks.1.weight"},
      {"head.weight", "first.weight"},
      {"norm.weight", "norm.weight"}};
  EXPECT_EQ(tree.aliases(), want);
  EXPECT_TRUE(tree.first().weight == tree.head().weight);
}

TEST(Module, KnowsItsFullNameWhateverOrderTheTreeIsBuiltIn) {
  Tree tree;
  EXPECT_EQ(tree.head().weight.name(), "first.weight");
  class Outer : public Leaf {
   public:
    Outer() : Leaf({1}) {}
    void take(Module& m) { add_child("model", m); }
  };
  std::optional<Outer> outer;
  outer.emplace();
  outer->take(tree);
  EXPECT_EQ(tree.head().weight.name(), "model.first.weight");
  EXPECT_EQ(tree.first().full_name(), "model.first");
  outer.reset();
  EXPECT_EQ(tree.first().full_name(), "first");
  EXPECT_EQ(tree.parent(), nullptr);
}

TEST(Module, AParameterKeepsItsNameWhenTheModuleIsGone) {
  Parameter kept;
  {
    Tree tree;
    kept = tree.first().weight;
  }
  EXPECT_EQ(kept.name(), "first.weight");
}

TEST(Module, RefusesNamesTwiceAndTwoParents) {
  Tree tree;
  Leaf other({1});
  EXPECT_THROW(tree.adopt("head", other), ArgumentError);
  EXPECT_THROW(tree.adopt("", other), ArgumentError);
  EXPECT_THROW(tree.adopt("again", tree.first()), ArgumentError);
  EXPECT_THROW(other.add_named("weight"), ArgumentError);
  EXPECT_THROW(other.tie(tree.first().weight), ArgumentError);  // another shape
}

TEST(Module, RunsHooksAroundForwardAndCleansUpWhenOneThrows) {
  Leaf leaf({1});
  std::string order;
  const auto note = [&](char c) {
    return [&order, c](const Inputs& in) {
      order += c;
      return in;
    };
  };
  leaf.add_pre_hook(note('b'));
  leaf.add_pre_hook(note('c'));
  leaf.add_pre_hook_first(note('a'));
  leaf.add_post_hook([&](const DTensor& y) {
    order += 'd';
    return y;
  });
  leaf.add_cleanup_hook([&] { order += 'e'; });
  leaf(DTensor(Tensor::zeros({1})));
  EXPECT_EQ(order, "abcde");
  leaf.add_pre_hook([](const Inputs&) -> Inputs { throw ArgumentError("no"); });
  order.clear();
  EXPECT_THROW(leaf(DTensor(Tensor::zeros({1}))), ArgumentError);
  EXPECT_EQ(order, "abce");
}

TEST(Parameter, ChecksUnits) {
  const DTensor x(Tensor::zeros({2, 3}));
  EXPECT_THROW(Parameter(x, {1}), ArgumentError);
  EXPECT_THROW(Parameter(x, {1, 0}), ArgumentError);
  EXPECT_EQ(Parameter(x).unit(1), 1);
  EXPECT_EQ(Parameter(x, {2, 3}).unit(1), 3);
}

TEST(Parameter, IsNotUsedOutsideTheForwardOfWhatGathersIt) {
  Leaf leaf({1});
  leaf.weight.set_gathered_by("Layer \"x\"");
  EXPECT_THROW(leaf.weight.use(), PlacementError);
  leaf.weight.set_use(DTensor(Tensor::zeros({1})));
  EXPECT_NO_THROW(leaf.weight.use());
}

TEST(Replicate, PutsParametersAndBuffersOnTheMeshAndKeepsPlacedOnes) {
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    Tree tree;
    init_normal(tree, 1);
    const std::vector<float> before = tree.first().weight.value().local_tensor().to_vector<float>();
    replicate(tree, mesh);
    const DTensor& w = tree.head().weight.value();
    EXPECT_TRUE(w.mesh() == mesh);
    EXPECT_TRUE(w.spec().is_replicated());
    EXPECT_TRUE(w.requires_grad());
    EXPECT_EQ(w.local_tensor().to_vector<float>(), before);
    EXPECT_TRUE(tree.named_buffers()[0].second->mesh() == mesh);
    tree.bias.place(tree.bias.value().layout().with(1, Shard(0)));
    replicate(tree, mesh);
    EXPECT_EQ(tree.bias.value().layout().placement(1), Shard(0));
    const DeviceMesh other(world, {{"x", 4}});
    EXPECT_THROW(replicate(tree, other), PlacementError);
  });
}

TEST(Replicate, APlacedPieceHasMemoryOfItsOwn) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Tree tree;
    replicate(tree, mesh);
    tree.bias.place(tree.bias.value().layout().with(0, Shard(0)));
    const Tensor& piece = tree.bias.value().local_tensor();
    EXPECT_EQ(piece.numel(), world.rank() == 0 ? 4 : 3);  // 7 over 2
    EXPECT_EQ(piece.storage()->size_bytes(), piece.size_bytes());
    EXPECT_TRUE(tree.bias.value().requires_grad());
  });
}

// std * philox_normal at the global index of an element, under the parameter's full name.
TEST(InitNormal, GivesTheSameValuesOnEveryMesh) {
  const auto want = [](int64_t index) {
    return 0.5F * philox_normal(11, stream_of("first.weight"), static_cast<uint64_t>(index));
  };
  Tree single;
  init_normal(single, 11, 0.5);
  const auto values = single.first().weight.value().local_tensor().to_vector<float>();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], want(i));
  EXPECT_EQ(single.bias.value().local_tensor().to_vector<float>(), std::vector<float>(7, 0.0F));
  const auto norm = single.named_parameters().back().second.value();
  EXPECT_EQ(norm.local_tensor().to_vector<float>(), std::vector<float>(4, 1.0F));
  testing::run_ranks(4, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    Tree tree;
    replicate(tree, mesh);
    const Parameter& w = tree.first().weight;  // [2,3]: columns 2 and 1 over tp, rows over dp
    w.place(w.value().layout().with(1, Shard(1)).with(0, Shard(0)));
    init_normal(tree, 11, 0.5);
    const int row = mesh.coordinate("dp");
    const std::vector<int64_t> columns =
        mesh.coordinate("tp") == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2};
    std::vector<float> mine;
    for (const int64_t c : columns) mine.push_back(want(row * 3 + c));
    EXPECT_EQ(w.value().local_tensor().to_vector<float>(), mine);
  });
}

}  // namespace
}  // namespace dtensor::nn
