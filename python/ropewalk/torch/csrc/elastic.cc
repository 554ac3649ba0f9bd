// Backend: other members, and hooks.
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "backend.h"

#ifdef C10D_BACKEND_HAS_RECONFIGURE
namespace ropewalk::pytorch {
namespace {

constexpr int kShrinkAborts = 1;  // torch.distributed.SHRINK_ABORT

/// Whose place in the result is the new rank.
std::vector<int64_t> remaining_ranks(const std::vector<int64_t>& excluded, int rank, int size) {
  for (const int64_t one : excluded)
    TORCH_CHECK_VALUE(one >= 0 && one < size, "shrink: there is no rank ", one, " of ", size);
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::erase_if(all, [&](int64_t one) { return std::ranges::count(excluded, one) > 0; });
  TORCH_CHECK_VALUE(std::ranges::count(all, rank) > 0, "shrink: rank ", rank,
                    " is excluded, and must not call it");
  return all;
}

/// By rank.
std::vector<std::string> in_order(const c10d::ReconfigureOptions& options) {
  std::vector<std::string> handles;
  std::visit([&](const auto& given) { handles.assign(given.begin(), given.end()); },
             options.handles);
  if (options.handles.index() == 0) std::ranges::sort(handles);  // a set: in their first order
  return handles;
}

WorkPtr ended_work() {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(Tensors()));
  return c10d::Work::create_from_future(future);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                  const c10::intrusive_ptr<Options>& options) {
  const auto group = parts("shrink").group;
  const std::vector<int64_t> ranks = remaining_ranks(excluded, getRank(), getSize());
  if ((flags & kShrinkAborts) != 0) abort();
  // Of one shrinking alone, of those who exclude the same ranks.
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      c10::str("shrink/", job_, "/", shrinks_++, "/", c10::Join(",", ranks)), store_);
  const auto rank = static_cast<int>(std::ranges::find(ranks, getRank()) - ranks.begin());
  const auto timeout = options ? options->timeout : options_->timeout;
  try {
    return c10::make_intrusive<Backend>(
        store, join(store, rank, static_cast<int>(ranks.size()), timeout), timeout, is_default_);
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, getRank(), "ropewalk:shrink"));
  }
}

c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
  process_.require(getRank(), "get_reconfigure_handle");
  try {
    return rendezvous_->handle();
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, getRank(), "ropewalk:get_reconfigure_handle"));
  }
}

WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions& options) {
  process_.require(getRank(), "reconfigure");
  TORCH_CHECK(!collected_, "reconfigure: calls are being coalesced");
  try {
    enter(rendezvous_->meet(options.uuid, in_order(options),
                            options.timeout.value_or(options_->timeout), options_->timeout));
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, getRank(), "ropewalk:reconfigure"));
  }
  return ended_work();
}

}  // namespace ropewalk::pytorch
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
namespace ropewalk::pytorch {

void Backend::registerAbortHook(int64_t id, c10d::AbortHook hook) {
  hooks_->add(id, Hooks::OnAbort(std::move(hook)));
}

void Backend::registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
  hooks_->add(id, [hook = std::move(hook)](uint64_t key) {
    hook({.completionKey = key, .duration_ms = {}});
  });
}

}  // namespace ropewalk::pytorch
#endif
