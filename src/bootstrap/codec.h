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
inline constexpr size_t kSharedBytesMax = 255;

/// Of two texts of which one follows the other: how much the second repeats of the first.
inline size_t shared_bytes(std::string_view before, std::string_view text) {
  const size_t most = std::min({before.size(), text.size(), kSharedBytesMax});
  if (before.substr(0, most) == text.substr(0, most)) return most;  // as a rule
  const auto differ = std::mismatch(before.begin(), before.begin() + most, text.begin()).first;
  return static_cast<size_t>(differ - before.begin());
}
/// Empty where there is none.
inline std::string_view item_of(const std::vector<std::string>& list, size_t i) {
  return i < list.size() ? std::string_view(list[i]) : std::string_view();
}
inline std::string_view item_of(const TransportInfos& map, const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? std::string_view() : std::string_view(found->second);
}

class Writer {
 public:
  /// `bytes`: that will do, as a rule.
  explicit Writer(size_t bytes = 256) : bytes_(bytes) {}

  void raw(ByteSpan bytes) { std::ranges::copy(bytes, more(bytes.size())); }
  void magic() { raw(std::as_bytes(std::span(kMagic))); }
  void zeros(size_t count) {
    for (size_t i = 0; i < count; ++i) integer(uint8_t{0});
  }
  template <std::integral T>
  void integer(T value, T = 0, T = 0) {
    little_endian::store(more(sizeof value), value);
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
  /// What it does not share with `before`.
  void text_after(std::string_view before, std::string_view text, size_t) {
    const size_t shared = shared_bytes(before, text);
    integer(static_cast<uint8_t>(shared));
    this->text(text.substr(shared), text.size());
  }
  void texts_after(const std::vector<std::string>& before, const std::vector<std::string>& list,
                   size_t, size_t bytes_max) {
    integer(static_cast<uint16_t>(list.size()));
    for (size_t i = 0; i < list.size(); ++i) text_after(item_of(before, i), list[i], bytes_max);
  }
  void texts_by_name_after(const TransportInfos& before, const TransportInfos& map, size_t,
                           size_t bytes_max) {
    integer(static_cast<uint16_t>(map.size()));
    for (const auto& [name, item] : map) {
      text(name, kNameBytesMax);
      text_after(item_of(before, name), item, bytes_max);
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
  /// write(item, the one before it or null).
  void until_end(const auto& items, const auto& write) {
    for (size_t i = 0; i < items.size(); ++i) write(items[i], i > 0 ? &items[i - 1] : nullptr);
  }
  void require(bool condition) {
    assert(condition);
    static_cast<void>(condition);
  }

  Bytes take() {
    bytes_.resize(end_);
    return std::move(bytes_);
  }

 private:
  /// Where so many go.
  std::byte* more(size_t count) {
    if (bytes_.size() - end_ < count) bytes_.resize(std::max(2 * bytes_.size(), end_ + count));
    return bytes_.data() + std::exchange(end_, end_ + count);
  }

  Bytes bytes_;
  size_t end_ = 0;  // of what is written
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
  /// Shares with `before` all that is equal.
  void text_after(std::string_view before, std::string& text, size_t bytes_max) {
    uint8_t shared = 0;
    uint16_t length = 0;
    integer(shared, uint8_t{0}, static_cast<uint8_t>(std::min(before.size(), kSharedBytesMax)));
    integer(length, uint16_t{0}, static_cast<uint16_t>(bytes_max));
    const ByteSpan taken = take(ok_ ? length : 0);
    if (!ok_) return;
    const std::string_view rest(reinterpret_cast<const char*>(taken.data()), taken.size());
    text.reserve(shared + rest.size());
    text.assign(before.substr(0, shared)).append(rest);
    const bool shares_more = shared < std::min(before.size(), kSharedBytesMax) && !rest.empty() &&
                             before[shared] == rest[0];
    require(text.size() <= bytes_max && !shares_more);
  }
  void texts_after(const std::vector<std::string>& before, std::vector<std::string>& list,
                   size_t items_max, size_t bytes_max) {
    uint16_t items = 0;
    integer(items, uint16_t{0}, static_cast<uint16_t>(items_max));
    list.reserve(items);
    for (size_t i = 0; i < items && ok_; ++i)
      text_after(item_of(before, i), list.emplace_back(), bytes_max);
  }
  /// In the order of their names, each once.
  void texts_by_name_after(const TransportInfos& before, TransportInfos& map, size_t items_max,
                           size_t bytes_max) {
    uint16_t items = 0;
    integer(items, uint16_t{0}, static_cast<uint16_t>(items_max));
    for (size_t i = 0; i < items && ok_; ++i) {
      std::string name;
      text(name, kNameBytesMax);
      require(map.empty() || name > map.rbegin()->first);
      const std::string_view like = item_of(before, name);
      text_after(like, map.emplace_hint(map.end(), std::move(name), std::string())->second,
                 bytes_max);
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
  /// One at least. read(item, the one before it or null).
  void until_end(auto& items, const auto& read) {
    do {
      const size_t bytes_left = rest_.size();
      items.emplace_back();
      read(items.back(), items.size() > 1 ? &items[items.size() - 2] : nullptr);
      // The first tells what those that follow share, which are as long as the second, or so.
      const size_t bytes = bytes_left - rest_.size();
      if (items.size() == 2 && bytes > 0) items.reserve(3 + rest_.size() / bytes * 9 / 8);
    } while (ok_ && !rest_.empty());
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
