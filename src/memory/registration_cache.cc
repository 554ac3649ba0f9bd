#include "memory/registration_cache.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/log.h"

namespace ropewalk {
namespace {

/// How often `acquire` gives the CPU to a thread that is about to return from unmapping.
constexpr int kYieldsMax = 1000;

Region region_of(const PageRange& range, bool source_only) {
  return {.base = reinterpret_cast<std::byte*>(range.begin),
          .bytes = range.bytes(),
          .source_only = source_only};
}

}  // namespace

struct RegistrationCache::Entry {
  PageRange range;
  size_t used_at = 0;  // ticks
  uint32_t users = 0;
  State state = State::free;
  bool source_only = false;
  bool gone = false;  // some of its pages are no longer what was registered
  std::unique_ptr<PinnedPages> pinned;
};

RegistrationCache::RegistrationCache(Pin pin, RegistrationLimits limits)
    : pin_(std::move(pin)),
      limits_(limits),
      watch_(UnmapWatch::of_process()),
      entries_(limits.registrations_max) {
  if (!watch_->refusal().empty())
    log(LogLevel::info, -1, "plain memory is registered again for every operation: {}; advice: {}",
        watch_->refusal(), watch_->advice());
  watch_->add(*this);
}

RegistrationCache::~RegistrationCache() {
  while (end_one(/*only_gone=*/false)) {
  }
  watch_->remove(*this);
  assert(counts_.kept == 0);
}

void RegistrationCache::forget(const PageRange& gone) noexcept {
  for (Entry& entry : entries_)
    if (entry.state != State::free && entry.range.overlaps(gone)) entry.gone = true;
}

std::unique_ptr<RegistrationCache::Use> RegistrationCache::acquire(const Region& region) {
  while (end_one(/*only_gone=*/true)) {
  }
  assert(region.bytes > 0);
  const PageRange range = PageRange::around(region.base, region.bytes, page_bytes());
  bool certain = false;
  for (int yields = 0; !certain && yields < kYieldsMax; ++yields) {
    if (yields > 0) sched_yield();
    if (Entry* hit = find(range, region.source_only, certain))
      return std::make_unique<Use>(*this, *hit);
  }
  // Watched before it is reserved, reserved before it is pinned: nothing escapes in between.
  const Region pages = region_of(range, region.source_only);
  if (certain && watch_->watch(range))
    if (Entry* entry = reserve(range, region.source_only)) return pin_and_keep(pages, *entry);
  return std::make_unique<Use>(pages, pin(pages));
}

/// The entry, with one user more, or null. `certain`: null is the last word.
RegistrationCache::Entry* RegistrationCache::find(const PageRange& range, bool source_only,
                                                  bool& certain) {
  const std::lock_guard lock(watch_->mutex());
  certain = watch_->settled();
  if (!certain) return nullptr;
  for (Entry& entry : entries_) {
    if (entry.state != State::ready || entry.gone || !entry.range.contains(range)) continue;
    if (entry.source_only && !source_only) continue;
    ++entry.users;
    entry.used_at = ++ticks_;
    ++counts_.hits;
    return &entry;
  }
  ++counts_.misses;
  return nullptr;
}

bool RegistrationCache::fits(size_t bytes) const {
  return counts_.kept < limits_.registrations_max && bytes <= limits_.bytes_max &&
         counts_.kept_bytes <= limits_.bytes_max - bytes;
}

/// A place for `range`, or null where those that are kept are in use.
RegistrationCache::Entry* RegistrationCache::reserve(const PageRange& range, bool source_only) {
  while (true) {
    std::unique_lock lock(watch_->mutex());
    if (!fits(range.bytes())) {
      lock.unlock();
      if (!end_one(/*only_gone=*/false)) return nullptr;
      continue;
    }
    const auto free = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& entry) { return entry.state == State::free; });
    assert(free != entries_.end());
    free->range = range;
    free->source_only = source_only;
    free->gone = false;
    free->users = 1;
    free->used_at = ++ticks_;
    free->state = State::pinning;
    ++counts_.kept;
    counts_.kept_bytes += range.bytes();
    return &*free;
  }
}

std::unique_ptr<RegistrationCache::Use> RegistrationCache::pin_and_keep(const Region& pages,
                                                                        Entry& entry) {
  std::unique_ptr<PinnedPages> pinned;
  try {
    pinned = pin(pages);
  } catch (...) {
    const std::lock_guard lock(watch_->mutex());
    entry.users = 0;
    entry.gone = true;  // the next call ends it
    entry.state = State::ready;
    throw;
  }
  {
    const std::lock_guard lock(watch_->mutex());
    entry.pinned = std::move(pinned);
    entry.state = State::ready;
  }
  return std::make_unique<Use>(*this, entry);
}

/// Gives up what is idle where the machine has no more to give.
std::unique_ptr<PinnedPages> RegistrationCache::pin(const Region& pages) {
  while (true) {
    try {
      return pin_(pages);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted || !end_one(/*only_gone=*/false)) throw;
    }
  }
}

/// Ends a registration that nobody uses; the least recently used. False where there is none.
bool RegistrationCache::end_one(bool only_gone) {
  std::unique_ptr<PinnedPages> pinned;
  {
    const std::lock_guard lock(watch_->mutex());
    Entry* oldest = nullptr;
    for (Entry& entry : entries_)
      if (entry.state == State::ready && entry.users == 0 && (entry.gone || !only_gone) &&
          (oldest == nullptr || entry.used_at < oldest->used_at))
        oldest = &entry;
    if (oldest == nullptr) return false;
    pinned = std::move(oldest->pinned);
    oldest->state = State::free;
    --counts_.kept;
    counts_.kept_bytes -= oldest->range.bytes();
  }
  return true;  // here, without the mutex, `pinned` ends
}

RegistrationCache::Counts RegistrationCache::counts() const {
  const std::lock_guard lock(watch_->mutex());
  return counts_;
}

RegistrationCache::Use::Use(RegistrationCache& cache, Entry& entry)
    : cache_(&cache),
      entry_(&entry),
      pinned_(entry.pinned.get()),
      pages_(region_of(entry.range, entry.source_only)) {}

RegistrationCache::Use::Use(const Region& pages, std::unique_ptr<PinnedPages> own)
    : own_(std::move(own)), pinned_(own_.get()), pages_(pages) {}

RegistrationCache::Use::~Use() {
  if (entry_ == nullptr) return;
  bool is_gone = false;
  {
    const std::lock_guard lock(cache_->watch_->mutex());
    is_gone = --entry_->users == 0 && entry_->gone;
  }
  if (is_gone) cache_->end_one(/*only_gone=*/true);
}

bool RegistrationCache::Use::current() const {
  if (entry_ == nullptr) return false;
  const std::lock_guard lock(cache_->watch_->mutex());
  return cache_->watch_->settled() && !entry_->gone;
}

}  // namespace ropewalk
