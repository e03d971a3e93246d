#include "dtensor/tensor/communication.h"

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

using internal::CommunicationScope;
using internal::CurrentCommunication;

std::shared_ptr<CommunicationScope> open(bool forbids, CallSite site) {
  auto scope = std::make_shared<CommunicationScope>();
  scope->forbids = forbids;
  scope->site = site;
  scope->outer = Context::current().slot<CurrentCommunication>().scope;
  return scope;
}

std::string text_of(CallSite site) {
  if (site.line == 0) return "an unknown place";
  return std::string(site.file) + ":" + std::to_string(site.line);
}

}  // namespace

void internal::check_may_communicate(std::string_view op, CallSite site, std::string_view what) {
  const CommunicationScope* scope = Context::current().slot<CurrentCommunication>().scope.get();
  for (; scope != nullptr; scope = scope->outer.get()) {
    if (!scope->forbids) continue;
    throw PlacementError(std::string(op) + " at " + text_of(site) + " needs " + std::string(what) +
                         ", inside NoCommunication of " + text_of(scope->site) +
                         "; nothing was sent. Place its operands so that it needs none, or move "
                         "it out of the scope");
  }
}

bool internal::count_communication(CommunicationScope* scope, int64_t payload_bytes,
                                   int64_t wire_bytes) {
  bool counted = false;
  for (; scope != nullptr; scope = scope->outer.get()) {
    if (scope->forbids) continue;
    ++scope->totals.moves;
    scope->totals.payload_bytes += payload_bytes;
    scope->totals.wire_bytes += wire_bytes;
    counted = true;
  }
  return counted;
}

NoCommunication::NoCommunication(CallSite site) : scope_({open(true, site)}) {}

CommunicationCount::CommunicationCount(CallSite site)
    : counted_(open(false, site)), scope_({counted_}) {}

}  // namespace dtensor
