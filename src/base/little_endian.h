// Integers as they travel: little-endian, whatever the machine.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ropewalk::little_endian {

template <class Integer>
Integer convert(Integer value) {
  if constexpr (std::endian::native == std::endian::big) {
    auto bytes = std::bit_cast<std::array<std::byte, sizeof(Integer)>>(value);
    std::ranges::reverse(bytes);
    value = std::bit_cast<Integer>(bytes);
  }
  return value;
}

template <class Integer>
void store(std::byte* at, Integer value) {
  value = convert(value);
  std::memcpy(at, &value, sizeof value);
}

template <class Integer>
Integer load(const std::byte* at) {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  return convert(value);
}

/// Bytes: a vector of std::byte, or a string.
template <class Bytes, class Integer>
void append(Bytes& to, Integer value) {
  for (const char byte : std::bit_cast<std::array<char, sizeof value>>(convert(value)))
    to.push_back(static_cast<typename Bytes::value_type>(byte));
}

/// Takes one after the other; the caller knows that there are enough bytes.
class Cursor {
 public:
  explicit Cursor(const std::byte* at) : at_(at) {}
  template <class Integer>
  Integer take() {
    const auto value = load<Integer>(at_);
    at_ += sizeof(Integer);
    return value;
  }
  void take(std::byte* to, size_t bytes) {
    std::copy_n(at_, bytes, to);
    at_ += bytes;
  }

 private:
  const std::byte* at_;
};

}  // namespace ropewalk::little_endian
