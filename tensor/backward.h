// BackwardPass: one run of backward. DTensor::backward makes it.

#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "dtensor/base/inline_vector.h"
#include "dtensor/base/small_memory.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/move.h"

namespace dtensor {

class BackwardPass {
 public:
  explicit BackwardPass(const DTensor::BackwardOptions& options) : options_(options) {}
  // Leaves (their impl()) whose gradient stays P(sum) where it comes so.
  void keep_partial(std::span<const void* const> leaves) { partial_ = leaves; }
  void run(const DTensor& loss);
  // Only nodes made from now on are this pass's: the gradient of an older one's output goes to the
  // pass that runs already, which runs that node later. For a region that is computed again.
  void stop_at_older_nodes();
  // With a gradient of `y`; also inside another pass, whose callbacks then stay for its end.
  void run(const DTensor& y, const DTensor& grad);

 private:
  struct PendingNode {
    std::shared_ptr<Node> node;
    int missing = 0;  // edges that have not brought their gradient yet
    InlineVector<DTensor, 2> grads;
  };
  struct PendingLeaf {
    DTensor leaf;
    int missing = 0;
    DTensor grad;
  };
  // A leaf's gradient under way to its placement.
  struct Resolving {
    DTensor leaf;
    Layout to;
    DTensor partial;  // as it came
    Move move;
    int64_t bytes = 0;
  };

  void run_from(const DTensor& y, const DTensor& grad);
  void run_all(const DTensor& y, const DTensor& grad);
  void count_edges(const std::shared_ptr<Node>& root);
  bool is_older(const Node& node) const { return node.sequence_ < oldest_; }
  // The gradient of an output, from a pass that does not run its node.
  void take(const std::shared_ptr<Node>& node, int output, const DTensor& grad);
  PendingNode& pending(const std::shared_ptr<Node>& node);
  void run_ready();
  void run_node(PendingNode state);
  void check_twice(const Node& node) const;
  void deliver(const Node& from, const Node::Edge& edge, DTensor grad);
  void finish_leaf(PendingLeaf state);
  void resolve_leaf(const DTensor& t, DTensor& grad, const Layout& to);
  void finish_resolving(int64_t most_bytes);
  void leave_resolving() noexcept;

  template <class Key, class Value>
  using Map = std::unordered_map<Key, Value, std::hash<Key>, std::equal_to<Key>,
                                 SmallAllocator<std::pair<const Key, Value>>>;

  DTensor::BackwardOptions options_;
  int64_t oldest_ = 0;             // by sequence, of the nodes that it runs
  BackwardPass* outer_ = nullptr;  // of stop_at_older_nodes()
  std::span<const void* const> partial_;
  Map<const Node*, PendingNode> nodes_;
  Map<const DTensor::Impl*, PendingLeaf> leaves_;
  // By sequence: the latest is run first.
  std::map<int64_t, const Node*, std::less<>, SmallAllocator<std::pair<const int64_t, const Node*>>>
      ready_;
  std::list<Resolving, SmallAllocator<Resolving>> resolving_;
  int64_t resolving_bytes_ = 0;
};

// The Context's slot: the innermost pass that runs.
struct RunningPass {
  BackwardPass* pass = nullptr;
};

// The Context's slot that numbers the nodes of a rank. All ranks of a mesh make the same nodes in
// the same order.
struct NodeClock {
  int64_t next = 0;
};

// The Context's slot: the node whose backward function runs.
struct RunningNode {
  const Node* node = nullptr;
  std::weak_ptr<Node> recorded = {};  // in a pass with create_graph
};

// What on_backward_end was given: a slot of the Context, empty outside a pass.
struct BackwardEnd {
  std::vector<std::function<void()>> callbacks;
};

namespace internal {

// The gradient of a tensor of this layout, brought to what may go on: cut like the tensor, R where
// that is P(sum), and R where it is R unless `passes` lets P(sum) be. PlacementError for a tensor
// that is P(min), P(max) or P(prod).
Layout dual(const Layout& grad, const Layout& tensor, bool passes, std::string_view op);

// `grad` by a new layout: no autograd, entered as an adjoint.
DTensor move_grad(const DTensor& grad, const Layout& to, std::string_view op, std::string_view of,
                  CallSite site);

}  // namespace internal
}  // namespace dtensor
