#include "c/boundary.h"

#include <fmt/format.h>

#include <new>

namespace ropewalk::c {
namespace {

struct LastError {
  Failure failure;
  std::string text;
};
thread_local LastError last;

constexpr size_t kStructureMax = 4096;  // none grows so large: the size was not set

Failure failure_of_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error.failure();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::exhausted, "", "there is no memory left", "give the process more"};
  } catch (const std::exception& error) {
    return {ErrorCode::system, "", error.what(), ""};
  } catch (...) {
    return {ErrorCode::system, "", "a foreign exception", ""};
  }
}

}  // namespace

static_assert(static_cast<int>(RW_NO_QUORUM) == static_cast<int>(ErrorCode::no_quorum));

rw_status note_exception(const char* operation) noexcept {
  try {
    Failure failure = failure_of_exception();
    if (failure.operation.empty()) failure.operation = operation;
    last.text = failure.text();
    last.failure = std::move(failure);
  } catch (...) {  // no memory for the text
    last.failure.code = ErrorCode::exhausted;
    last.text = "no memory left";  // short: allocates nothing
  }
  return static_cast<rw_status>(last.failure.code);
}

void reject(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, "", std::move(reason), std::move(advice));
}

rw_failure view_of(const Failure& failure) {
  return {sizeof(rw_failure),
          static_cast<rw_status>(failure.code),
          failure.rank,
          failure.peer,
          failure.peers.data(),
          failure.peers.size(),
          failure.operation.c_str(),
          failure.reason.c_str(),
          failure.advice.c_str()};
}

void require_array(const void* data, size_t count, std::string_view name) {
  if (data == nullptr && count > 0)
    reject(fmt::format("{} is NULL, and its count is {}", name, count));
}

std::optional<bool> switch_of(rw_switch value) {
  const auto known = enumerator<rw_switch>(value, RW_OFF + 1, "rw_switch");
  return known == RW_DEFAULT ? std::nullopt : std::optional(known == RW_ON);
}

std::chrono::nanoseconds limit_of(int64_t limit_ns) {
  if (limit_ns < 0) reject(fmt::format("{} ns is no time to wait", limit_ns));
  return std::chrono::nanoseconds(limit_ns);
}

std::optional<std::chrono::nanoseconds> timeout_of(int64_t timeout_ns) {
  return timeout_ns == 0 ? std::nullopt : std::optional(limit_of(timeout_ns));
}

std::optional<std::string> text_of(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

void check_structure(const void* given, size_t size, size_t known) {
  if (size < 2 * sizeof(size_t) || size > kStructureMax)
    reject(fmt::format("the structure's size is {}", size), "set it to sizeof the structure");
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < size; ++i)
    if (bytes[i] != 0)
      reject("a structure has values that this version of the library does not know",
             "install the version that the program was compiled with");
}

}  // namespace ropewalk::c

using namespace ropewalk;
using namespace ropewalk::c;

extern "C" {

const char* rw_last_error() {
  return last.text.c_str();
}

rw_status rw_last_failure(rw_failure* failure) {
  return guarded(__func__, [&] {
    required(failure, "failure");
    Filled<rw_failure>(failure).fill(view_of(last.failure));
  });
}

const char* rw_status_name(rw_status status) {
  return name_of(static_cast<ErrorCode>(status)).data();
}

bool rw_is_survivable(rw_status status) {
  bool survivable = false;
  guarded(__func__,
          [&] { survivable = Error(static_cast<ErrorCode>(status), "", "").is_survivable(); });
  return survivable;
}

const char* rw_version() {
  return ROPEWALK_VERSION;
}

}  // extern "C"
