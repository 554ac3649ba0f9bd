// What encodes and what decodes, with the same functions, so that a template `fields(c, message)`
// tells each layout once, for both (wire.cc). The limits are the reader's: only texts and runs are
// cut where they are written.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "base/text.h"
#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {

inline constexpr std::string_view kMagic = "ropewalk";

class Writer {
 public:
  void raw(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void magic() { raw(std::as_bytes(std::span(kMagic))); }
  void zeros(size_t count) {
    for (size_t i = 0; i < count; ++i) integer(uint8_t{0});
  }
  template <std::integral T>
  void integer(T value, T = 0, T = 0) {
    little_endian::append(bytes_, value);
  }
  template <class Enum>
  void code(Enum value, Enum, Enum) {
    integer(static_cast<uint8_t>(value));
  }
  void text(std::string_view text, size_t bytes_max) {
    text = cut(text, bytes_max);
    integer(static_cast<uint16_t>(text.size()));
    raw(std::as_bytes(std::span(text)));
  }
  void texts(const std::vector<std::string>& list, size_t, size_t bytes_max) {
    integer(static_cast<uint16_t>(list.size()));
    for (const std::string& item : list) text(item, bytes_max);
  }
  void texts_by_name(const TransportInfos& map, size_t, size_t bytes_max) {
    integer(static_cast<uint16_t>(map.size()));
    for (const auto& [name, item] : map) {
      text(name, kNameBytesMax);
      text(item, bytes_max);
    }
  }
  /// Ranks in runs; those beyond `runs_max` of them are left out.
  void ranks(const std::vector<int>& ascending, int first, size_t runs_max = kRankRunsMax) {
    std::vector<std::array<uint32_t, 2>> runs;  // first, count
    for (const int rank : ascending.empty() && first >= 0 ? std::vector{first} : ascending) {
      const auto next = static_cast<uint32_t>(rank);
      if (!runs.empty() && next == runs.back()[0] + runs.back()[1])
        ++runs.back()[1];
      else
        runs.push_back({next, 1});
    }
    runs.resize(std::min(runs.size(), runs_max));
    integer(static_cast<uint16_t>(runs.size()));
    for (const auto& [start, count] : runs) {
      integer(start);
      integer(count);
    }
  }
  void boolean(bool value) { integer(static_cast<uint8_t>(value)); }
  void resize(const auto&, size_t) {}
  void until_end(const auto& items, const auto& write) {
    for (const auto& item : items) write(item);
  }
  void require(bool condition) {
    assert(condition);
    static_cast<void>(condition);
  }

  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Every read checks; after the first that fails all further ones give nothing and done() is false.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : rest_(bytes) {}

  void raw(std::span<std::byte> into) {
    const ByteSpan taken = take(into.size());
    std::ranges::copy(taken, into.begin());
  }
  void magic() {
    require(std::ranges::equal(take(kMagic.size()), std::as_bytes(std::span(kMagic))));
  }
  void zeros(size_t count) {
    require(std::ranges::all_of(take(count), [](std::byte b) { return b == std::byte{0}; }));
  }
  template <std::integral T>
  void integer(T& value, T least = std::numeric_limits<T>::min(),
               T most = std::numeric_limits<T>::max()) {
    const ByteSpan taken = take(sizeof value);
    value = taken.empty() ? T{0} : little_endian::load<T>(taken.data());
    require(value >= least && value <= most);
  }
  template <class Enum>
  void code(Enum& value, Enum first, Enum last) {
    uint8_t number = 0;
    integer(number, static_cast<uint8_t>(first), static_cast<uint8_t>(last));
    value = static_cast<Enum>(number);
  }
  void text(std::string& text, size_t bytes_max) {
    uint16_t length = 0;
    integer(length, uint16_t{0}, static_cast<uint16_t>(bytes_max));
    const ByteSpan taken = take(ok_ ? length : 0);
    text.assign(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  void texts(std::vector<std::string>& list, size_t items_max, size_t bytes_max) {
    uint16_t items = 0;
    integer(items, uint16_t{0}, static_cast<uint16_t>(items_max));
    for (size_t i = 0; i < items && ok_; ++i) text(list.emplace_back(), bytes_max);
  }
  /// In the order of their names, each once.
  void texts_by_name(TransportInfos& map, size_t items_max, size_t bytes_max) {
    uint16_t items = 0;
    integer(items, uint16_t{0}, static_cast<uint16_t>(items_max));
    for (size_t i = 0; i < items && ok_; ++i) {
      std::string name;
      text(name, kNameBytesMax);
      require(name > (map.empty() ? std::string() : map.rbegin()->first));
      text(map[name], bytes_max);
    }
  }
  /// Ascending, no two runs that could be one.
  void ranks(std::vector<int>& ascending, int& first, size_t runs_max = kRankRunsMax) {
    uint16_t runs = 0;
    integer(runs, uint16_t{0}, static_cast<uint16_t>(runs_max));
    for (uint32_t i = 0, least = 0; i < runs && ok_; ++i) {
      uint32_t start = 0, count = 0;
      integer(start, least, kRanksMax - 1);
      integer(count, 1u, kRanksMax - start);
      if (!ok_) return;
      for (uint32_t rank = start; rank < start + count; ++rank)
        ascending.push_back(static_cast<int>(rank));
      least = start + count + 1;
    }
    first = ascending.empty() ? -1 : ascending.front();
  }
  void boolean(bool& value) {
    uint8_t number = 0;
    integer(number, uint8_t{0}, uint8_t{1});
    value = number != 0;
  }
  void resize(auto& items, size_t count) {
    if (ok_) items.resize(count);
  }
  /// One at least.
  void until_end(auto& items, const auto& read) {
    do read(items.emplace_back());
    while (ok_ && !rest_.empty());
  }
  void require(bool condition) { ok_ = ok_ && condition; }

  bool done() const { return ok_ && rest_.empty(); }

 private:
  ByteSpan take(size_t count) {
    require(count <= rest_.size());
    if (!ok_) return {};
    const ByteSpan taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  ByteSpan rest_;
  bool ok_ = true;
};

}  // namespace ropewalk::bootstrap
