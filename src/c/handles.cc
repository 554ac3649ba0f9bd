#include "c/handles.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ropewalk/fork.h"

namespace ropewalk::c {
namespace {

constexpr uintptr_t kFirst = uintptr_t{1} << 63;  // no address of a program is as high

struct HandleEntry {
  std::shared_ptr<void> object;
  std::string_view kind;
  ForkGuard process;
};

/// The lock is held for a few lines, and by the thread that forks.
struct Table {
  Table() {
    pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                   [] { table().mutex.unlock(); });
  }
  /// Never destroyed: threads may outlive main.
  static Table& table() {
    static Table& only = *new Table;
    return only;
  }

  std::mutex mutex;  // guards what follows
  std::unordered_map<uintptr_t, HandleEntry> kept;
  uintptr_t next = kFirst;
};

/// With the lock.
HandleEntry& find_entry(Table& table, uintptr_t key, std::string_view kind) {
  if (key == 0) reject(fmt::format("the {} is NULL", kind));
  const auto found = table.kept.find(key);
  if (found == table.kept.end())
    reject(key >= kFirst && key < table.next
               ? fmt::format("the {} was freed before", kind)
               : fmt::format("{:#x} is no {} of this library", key, kind));
  if (found->second.kind != kind)
    reject(fmt::format("a {} is given where a {} is needed", found->second.kind, kind));
  return found->second;
}

}  // namespace

uintptr_t keep(uintptr_t key, std::shared_ptr<void> object, const char* kind) {
  Table& table = Table::table();
  const std::lock_guard lock(table.mutex);
  if (key == 0) key = table.next;
  table.kept.insert_or_assign(key, HandleEntry{std::move(object), kind, {}});
  if (key == table.next) ++table.next;
  return key;
}

std::shared_ptr<void> look_up(uintptr_t key, const char* kind) {
  Table& table = Table::table();
  const std::lock_guard lock(table.mutex);
  const HandleEntry& kept = find_entry(table, key, kind);
  if (kept.process.is_forked())
    reject(fmt::format("process {} was forked from the one that made the {}", getpid(), kind),
           "make calls in that one; children compute, or join a job of their own");
  return kept.object;
}

std::shared_ptr<void> take_out(uintptr_t key, const char* kind) {
  Table& table = Table::table();
  const std::lock_guard lock(table.mutex);
  HandleEntry& kept = find_entry(table, key, kind);
  std::shared_ptr<void> object = std::move(kept.object);
  if (kept.process.is_forked()) abandon(std::move(object));
  table.kept.erase(key);
  return object;
}

}  // namespace ropewalk::c
