// Handle: "ropewalk:NUMBER:UNIQUE_ID". The key of the meeting is that of the first member's unique
// id, with the uuid and a digest of all handles: so nobody joins who has another list.
#include "reconfigure_rendezvous.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <string_view>
#include <thread>

namespace ropewalk::pytorch {
namespace {

constexpr std::string_view kHandlePrefix = "ropewalk:";
constexpr size_t kNumberDigits = 10;
constexpr auto kComeAgain = std::chrono::milliseconds(10);

/// Hexadecimal digits alone, as a key stays strong with them.
std::string sixteen_digits(uint64_t number) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

std::string unique_id_of(const std::string& handle) {
  const size_t begin = kHandlePrefix.size() + kNumberDigits + 1;
  TORCH_CHECK(handle.starts_with(kHandlePrefix) && handle.size() > begin, "\"",
              handle.substr(0, begin), "...\" is no handle of ropewalk's get_reconfigure_handle");
  return handle.substr(begin);
}

std::string digest_of(const std::vector<std::string>& handles) {
  std::string all;
  for (const std::string& handle : handles) all += handle + '\n';
  return sixteen_digits(std::hash<std::string>()(all));
}

void check_handles(const std::vector<std::string>& handles) {
  TORCH_CHECK(!handles.empty(), "reconfigure expects one handle at least");
  std::vector<std::string> sorted = handles;
  std::ranges::sort(sorted);
  TORCH_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(),
              "reconfigure expects each handle once");
  for (const std::string& handle : handles) unique_id_of(handle);
}

}  // namespace

std::string ReconfigureRendezvous::handle() {
  const std::lock_guard lock(mutex_);
  return own_handle();
}

std::string ReconfigureRendezvous::own_handle() {
  if (!rendezvous_) rendezvous_.emplace();
  std::string number = std::to_string(number_);
  number.insert(0, kNumberDigits - std::min(kNumberDigits, number.size()), '0');
  return std::string(kHandlePrefix) + number + ':' + rendezvous_->unique_id();
}

Joined ReconfigureRendezvous::meet(int64_t uuid, const std::vector<std::string>& handles,
                                   std::chrono::milliseconds limit,
                                   std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  const std::lock_guard lock(mutex_);
  check_handles(handles);
  const auto own = std::ranges::find(handles, own_handle());
  TORCH_CHECK(own != handles.end(),
              "this process's handle is not among those of the new group; a handle is good for one "
              "group: get a new one after each reconfigure");
  TORCH_CHECK(used_.insert(uuid).second, "uuid ", uuid,
              " was already used; each reconfigure needs a fresh one");
  const auto rank = static_cast<int>(own - handles.begin());
  const std::string common = sixteen_digits(static_cast<uint64_t>(uuid)) + digest_of(handles);
  for (;;) try {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      Joined joined = try_once(common, handles, rank, std::max(left, kComeAgain), timeout);
      rendezvous_.reset();
      return joined;
    } catch (const Error& error) {
      // The first member is still in another meeting.
      if (error.code() != ErrorCode::refused) throw;
      if (Clock::now() + kComeAgain >= deadline)
        throw Error(Failure{ErrorCode::timeout, "reconfigure",
                            "the member that is to be rank 0 meets others",
                            "give the same uuid and handles to all members", rank, 0});
      std::this_thread::sleep_for(kComeAgain);
    }
}

Joined ReconfigureRendezvous::try_once(const std::string& common,
                                       const std::vector<std::string>& handles, int rank,
                                       std::chrono::milliseconds limit,
                                       std::chrono::milliseconds timeout) {
  const auto size = static_cast<int>(handles.size());
  Options options;
  options.rank = rank;
  options.size = size;
  options.elastic = false;  // PyTorch says who joins later
  std::string job;
  if (size > 1) {
    options = rank == 0 ? rendezvous_->options(rank, size, options)
                        : Rendezvous::options(unique_id_of(handles[0]), rank, size, options);
    options.key = options.key.value() + common;
    job = std::to_string(std::hash<std::string>()(*options.key));
  }
  options.timeout = timeout;
  options.join_timeout = limit;
  return {Communicator::create(options), job};
}

}  // namespace ropewalk::pytorch
