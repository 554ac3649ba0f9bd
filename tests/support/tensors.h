// What tests of policies train: lists of tensors, and what their errors are.
#pragma once

#include <cstddef>
#include <span>
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
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::span<T> tensor : spans_)
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
