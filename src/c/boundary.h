// What crosses from C and back: errors, structures that grow, texts, times.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ropewalk/ropewalk.h"
#include "ropewalk/status.h"

namespace ropewalk::c {

/// Notes the exception that is being handled as this thread's last error.
rw_status note_exception(const char* operation) noexcept;

/// Every function's body: what it throws becomes the status.
template <class Body>
rw_status guarded(const char* operation, const Body& body) {
  try {
    body();
    return RW_OK;
  } catch (...) {
    return note_exception(operation);
  }
}

/// `guarded` names the operation.
[[noreturn]] void reject(std::string reason, std::string advice = {});

/// What it points at is `failure`'s.
rw_failure view_of(const Failure& failure);

template <class T>
T& required(T* pointer, std::string_view name) {
  if (pointer == nullptr) reject(std::string(name) + " is NULL");
  return *pointer;
}

/// `count` elements at `data`, which may be null where there are none.
void require_array(const void* data, size_t count, std::string_view name);

/// The number of an enumerator that is one of the first `count`.
template <class Enum>
Enum enumerator(int value, int count, std::string_view type) {
  if (value < 0 || value >= count)
    reject("there is no " + std::string(type) + " " + std::to_string(value));
  return static_cast<Enum>(value);
}

std::optional<bool> switch_of(rw_switch value);
std::optional<std::chrono::nanoseconds> timeout_of(int64_t timeout_ns);
/// Zero is one.
std::chrono::nanoseconds limit_of(int64_t limit_ns);
std::optional<std::string> text_of(const char* text);

/// Throws where `size` cannot be that of a structure. What a caller that knows more has set beyond
/// `known` bytes is refused, too.
void check_structure(const void* given, size_t size, size_t known);

/// A structure of the caller's, which may have been compiled with an earlier or a later version:
/// what it does not have is 0.
template <class Struct>
Struct take(const Struct& given) {
  check_structure(&given, given.size, sizeof(Struct));
  Struct taken{};
  std::memcpy(&taken, &given, std::min(given.size, sizeof(Struct)));
  return taken;
}
/// All 0 where it is null.
template <class Struct>
Struct take_optional(const Struct* given) {
  return given == nullptr ? Struct{} : take(*given);
}

/// The other way. Throws before the call whose result it shall hold.
template <class Struct>
class Filled {
 public:
  /// `out` may be null.
  explicit Filled(Struct* out) : out_(out) {
    if (out != nullptr) check_structure(nullptr, out->size, out->size);
  }
  void fill(Struct value) {
    if (out_ == nullptr) return;
    value.size = out_->size;
    std::memcpy(out_, &value, std::min(value.size, sizeof(Struct)));
    if (value.size > sizeof(Struct))
      std::memset(reinterpret_cast<std::byte*>(out_) + sizeof(Struct), 0,
                  value.size - sizeof(Struct));
  }

 private:
  Struct* out_;
};

}  // namespace ropewalk::c
