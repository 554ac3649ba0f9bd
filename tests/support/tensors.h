// What tests of policies train: lists of tensors, and what their errors are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "reduce/element.h"
#include "ropewalk/policies.h"

namespace ropewalk::testing {

/// One tensor, or several of uneven lengths.
template <class T>
class Tensors {
 public:
  explicit Tensors(const std::vector<size_t>& sizes = {3, 0, 1, 5}) {
    for (size_t size : sizes) storage_.emplace_back(size);
    for (std::vector<T>& tensor : storage_) spans_.emplace_back(tensor);
  }
  operator TensorList<T>() const { return spans_; }

  template <class Visit>
  void for_each(Visit visit) {
    for (std::span<T> tensor : spans_)
      for (T& element : tensor) visit(element);
  }
  template <class Value>
  void fill(Value value) {  // value(i) of the i-th element of all
    size_t i = 0;
    for_each([&](T& element) { element = narrow<T>(static_cast<Wide<T>>(value(i++))); });
  }
  /// As `numbers` again and again, from `first` on.
  void repeat(std::span<const T> numbers, size_t first) {
    for (std::span<T> tensor : spans_)
      for (size_t at = 0, piece = 0; at < tensor.size(); at += piece, first += piece) {
        const std::span<const T> next = numbers.subspan(first % numbers.size());
        piece = std::min(next.size(), tensor.size() - at);
        std::copy_n(next.begin(), piece, tensor.begin() + static_cast<std::ptrdiff_t>(at));
      }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::span<T> tensor : spans_)
      if constexpr (std::is_same_v<T, double>)
        all.insert(all.end(), tensor.begin(), tensor.end());
      else
        for (T element : tensor) all.push_back(widen(element));
    return all;
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (std::span<T> tensor : spans_) {
      const auto part = std::as_bytes(tensor);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  std::vector<std::vector<T>> storage_;
  std::vector<std::span<T>> spans_;
};

template <class Body>
ErrorCode code_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::ok;
}

}  // namespace ropewalk::testing
