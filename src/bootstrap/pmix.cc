#include "bootstrap/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "bootstrap/ended_ranks.h"
#include "bootstrap/pmix_events.h"
#include "bootstrap/pmix_library.h"

namespace ropewalk::bootstrap {
namespace {

/// A call may fail because a rank has ended, before the launcher says so.
constexpr std::chrono::seconds kTellMax(1);

/// Waits for the end of a call, or the launcher's word that a rank has ended.
class WaitForCall {
 public:
  WaitForCall(std::shared_ptr<pmix::PendingCall> call, EndedRanks& ranks)
      : call_(std::move(call)), listening_(ranks, [this](const EndedRank& told) {
          const std::lock_guard lock(call_->mutex);
          ended_ = told;
          call_->changed.notify_all();
        }) {}

  /// The status of the call; nothing: it has none yet. Throws Error(peer_lost) that names the rank.
  std::optional<pmix::Status> end(std::chrono::nanoseconds timeout, int own_rank) {
    std::unique_lock lock(call_->mutex);
    call_->changed.wait_for(lock, timeout, [this] { return call_->status || ended_; });
    if (call_->status.value_or(pmix::kSuccess) != pmix::kSuccess)
      call_->changed.wait_for(lock, kTellMax, [this] { return ended_.has_value(); });
    if (ended_) throw Error(ended_before_joining(*ended_, own_rank));
    return call_->status;
  }

 private:
  const std::shared_ptr<pmix::PendingCall> call_;
  std::optional<EndedRank> ended_;  // guarded by call_->mutex
  const EndedRanks::Listening listening_;
};

}  // namespace

Pmix::Pmix(std::chrono::nanoseconds timeout)
    : timeout_(timeout), library_(std::make_unique<pmix::Library>()) {
  library_->check("PMIx_Init (PMIX_NAMESPACE, PMIX_RANK, PMIX_SERVER_*)",
                  library_->init(&library_->own, nullptr, 0));
  events_ = std::make_unique<pmix::EndEvents>(*library_);
}

Pmix::~Pmix() {
  if (process_.is_forked()) return;
  events_->close();
  library_->finalize(nullptr, 0);
}

EndedRanks* Pmix::ended_ranks() {
  return &events_->ended_ranks();
}

std::string Pmix::library_path() {
  const pmix::Library library;
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(library.init), &info);
  return info.dli_fname == nullptr ? "libpmix.so.2" : info.dli_fname;
}

int Pmix::rank() const {
  return static_cast<int>(library_->own.rank);
}

int Pmix::size() {
  pmix::Value* value = library_->get(library_->everyone(), "pmix.job.size", timeout_);
  const bool is_number = value->type == pmix::kTypeUint32;
  const uint32_t size = value->uint32;
  std::free(value);
  if (!is_number || size == 0 || size > INT32_MAX)
    pmix::fail(ErrorCode::unavailable, "the launcher's PMIx does not tell the job's size");
  return static_cast<int>(size);
}

void Pmix::put(const std::string& key, const std::string& value) {
  pmix::Value text(pmix::kTypeString);
  text.string = const_cast<char*>(value.c_str());  // it is copied
  library_->check("PMIx_Put", library_->put(pmix::kScopeGlobal, key.c_str(), &text));
  library_->check("PMIx_Commit", library_->commit());
}

std::string Pmix::get(const std::string& key) {
  const auto call = std::make_shared<pmix::PendingCall>();
  call->of = library_->own;
  call->of.rank = 0;
  call->key = key;
  call->limit = pmix::time_limit(timeout_);
  const pmix::Status begun = pmix::PendingCall::begin(call, [&](void* owner) {
    return library_->get_nb(&call->of, call->key.c_str(), &*call->limit, 1,
                            pmix::PendingCall::on_value, owner);
  });
  library_->check("PMIx_Get_nb", begun);
  const auto status = WaitForCall(call, events_->ended_ranks()).end(timeout_, rank());
  if (status != pmix::kSuccess)
    throw Error({ErrorCode::timeout, "pmix",
                 fmt::format("rank 0 has not said where it listens (PMIx_Get of {}: {})", key,
                             status ? library_->error_string(*status) : "no answer"),
                 "look at rank 0's own output", rank(), 0});
  if (!call->text)
    pmix::fail(ErrorCode::unavailable, fmt::format("rank 0's {} is no text in PMIx", key));
  return *call->text;
}

/// As the ranks meet that are left, also where the fence tells that others have ended, but not
/// which: rank 0 names who does not join.
void Pmix::barrier() {
  const auto fence = std::make_shared<pmix::PendingCall>();
  const pmix::Info collect("pmix.collect", pmix::flag());
  const pmix::Status begun = pmix::PendingCall::begin(fence, [&](void* owner) {
    return library_->fence(nullptr, 0, &collect, 1, pmix::PendingCall::on_end, owner);
  });
  std::optional<pmix::Status> status(pmix::kSuccess);
  if (begun != pmix::kOperationSucceeded) {
    library_->check("PMIx_Fence_nb", begun);
    status = WaitForCall(fence, events_->ended_ranks()).end(timeout_, rank());
  }
  if (!status)
    pmix::fail(
        ErrorCode::timeout,
        fmt::format("the launcher's PMIx_Fence has not ended within {:.3g} s: have all ranks "
                    "started?",
                    std::chrono::duration<double>(timeout_).count()));
  if (*status == pmix::kPartialSuccess)
    log(LogLevel::warn, rank(), "ranks have ended before all had joined; PMIx does not say which");
  else
    library_->check("PMIx_Fence", *status);
  events_->note_met();
}

}  // namespace ropewalk::bootstrap
