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

/// A fence that ranks have left ends before the launcher says which.
constexpr std::chrono::seconds kTellMax(1);

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
  pmix::Proc rank_zero = library_->own;
  rank_zero.rank = 0;
  pmix::Value* value = library_->get(rank_zero, key.c_str(), timeout_);
  const bool is_text = value->type == pmix::kTypeString && value->string != nullptr;
  const std::string text = is_text ? value->string : "";
  if (is_text) std::free(value->string);
  std::free(value);
  if (!is_text)
    pmix::fail(ErrorCode::unavailable, fmt::format("rank 0's {} is no text in PMIx", key));
  return text;
}

/// As the ranks meet that are left, also where the fence tells that others have ended, but not
/// which: rank 0 names who does not join.
void Pmix::barrier() {
  const auto fence = std::make_shared<pmix::PendingCall>();
  const pmix::Info collect("pmix.collect", pmix::flag());
  const pmix::Status begun = pmix::PendingCall::begin(fence, [&](void* owner) {
    return library_->fence(nullptr, 0, &collect, 1, pmix::PendingCall::on_end, owner);
  });
  if (begun == pmix::kOperationSucceeded) return;
  library_->check("PMIx_Fence_nb", begun);
  std::optional<EndedRank> ended;  // guarded by fence->mutex
  const EndedRanks::Listening listening(events_->ended_ranks(), [&](const EndedRank& told) {
    const std::lock_guard lock(fence->mutex);
    ended = told;
    fence->changed.notify_all();
  });
  std::unique_lock lock(fence->mutex);
  fence->changed.wait_for(lock, timeout_, [&] { return fence->status || ended; });
  const bool is_partial = fence->status == pmix::kPartialSuccess;
  if (is_partial) fence->changed.wait_for(lock, kTellMax, [&] { return ended.has_value(); });
  if (ended) throw Error(ended_before_joining(*ended, rank()));
  if (!fence->status)
    pmix::fail(
        ErrorCode::timeout,
        fmt::format("the launcher's PMIx_Fence has not ended within {:.3g} s: have all ranks "
                    "started?",
                    std::chrono::duration<double>(timeout_).count()));
  if (is_partial)
    log(LogLevel::warn, rank(), "ranks have ended before all had joined; PMIx does not say which");
  else
    library_->check("PMIx_Fence", *fence->status);
  events_->note_met();
}

}  // namespace ropewalk::bootstrap
