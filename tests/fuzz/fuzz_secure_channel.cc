// Feeds the opening end of a SecureChannel with what somebody on the path makes of sealed records.
//
// Input: again and again one byte that chooses, and what it asks for: a message of so many bytes is
// sealed; bytes of what is on its way are changed, left out, repeated or put in; some of it
// arrives. What is opened is always the beginning of what was sealed, no more of it than what
// arrived unchanged; and after the first record that is not what was sealed nothing is.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bootstrap/secure_channel.h"

using namespace ropewalk;

namespace {

using Bytes = std::vector<std::byte>;

void require(bool condition) {
  if (!condition) std::abort();
}

/// The input, which gives zeros when it is used up.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t byte() { return size_ == 0 ? uint8_t{0} : (--size_, *data_++); }
  size_t below(size_t limit) {
    const size_t value = static_cast<size_t>(byte()) << 8 | byte();
    return limit == 0 ? 0 : value % limit;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

class Path {
 public:
  void seal(size_t bytes) {
    const size_t at = plain_.size();
    for (size_t i = 0; i < bytes; ++i) plain_.push_back(static_cast<std::byte>((at + i) * 7));
    sender_.seal(std::span(plain_).subspan(at), way_);
  }
  void change(Choices& choices) {
    if (way_.empty()) return;
    const size_t at = choices.below(way_.size()), bytes = 1 + choices.below(way_.size() - at);
    const auto begin = way_.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    Bytes as_it_was(begin, end);
    switch (choices.byte() % 4) {
      case 0:
        way_[at] ^= std::byte{choices.byte()};
        break;
      case 1:
        way_.erase(begin, end);
        break;
      case 2:
        way_.insert(end, as_it_was.begin(), as_it_was.end());
        break;
      default:
        way_.insert(begin, std::byte{choices.byte()});
    }
  }
  void arrive(size_t bytes) {
    const auto end = way_.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, way_.size()));
    received_.insert(received_.end(), way_.begin(), end);
    way_.erase(way_.begin(), end);
    const size_t opened = opened_.size();
    const bool sound = receiver_.open(received_, opened_);
    require(opened_.size() == opened || !broken_);
    require(sound ? !broken_ : true);
    broken_ = !sound;
    require(opened_.size() <= plain_.size());
    require(std::equal(opened_.begin(), opened_.end(), plain_.begin()));
  }
  void arrive_whole() { arrive(way_.size()); }
  /// Of a way on which nothing was changed.
  void require_all() const { require(!broken_ && received_.empty() && opened_ == plain_); }

 private:
  SecureChannel sender_{{Key{1}, Key{2}}}, receiver_{{Key{2}, Key{1}}};
  Bytes plain_, way_, received_, opened_;
  bool broken_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices(data, size);
  Path path;
  bool is_changed = false;
  while (!choices.empty()) {
    switch (choices.byte() % 4) {
      case 0:
        path.seal(choices.below(40'000));
        break;
      case 1:
        path.change(choices);
        is_changed = true;
        break;
      default:
        path.arrive(choices.below(50'000));
    }
  }
  path.arrive_whole();
  if (!is_changed) path.require_all();
  return 0;
}
