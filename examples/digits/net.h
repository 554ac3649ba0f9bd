// A small convolutional net for 8x8 images, forward and backward, one image at a time:
//
//   1x8x8 -> 3x3 convolution, 8 channels -> 2x2 max pool, ReLU -> 8x4x4
//         -> 3x3 convolution, 16 channels -> 2x2 max pool, ReLU -> 16x2x2
//         -> fully connected -> 10 classes, softmax
//
// Parameters live with the caller, in one run of kParameters elements; `tensors` cuts it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dataset.h"

namespace digits {

/// A stack of square maps with a border of zeros, so that a 3x3 window fits everywhere.
template <class T, size_t kChannels, size_t kWidth>
using Maps = std::array<std::array<std::array<T, kWidth + 2>, kWidth + 2>, kChannels>;

/// T is float, or double for checking gradients. Not thread-safe (it keeps activations).
template <class T>
class Net {
 public:
  static constexpr size_t kChannels1 = 8, kChannels2 = 16, kFeatures = kChannels2 * 2 * 2;
  /// Weights and biases of the three layers: the lengths of the tensors.
  static constexpr std::array<size_t, 6> kTensors = {
      kChannels1 * 9, kChannels1,          kChannels2* kChannels1 * 9,
      kChannels2,     kClasses* kFeatures, kClasses};
  static constexpr size_t kParameters =
      kTensors[0] + kTensors[1] + kTensors[2] + kTensors[3] + kTensors[4] + kTensors[5];

  /// Cuts kParameters elements (parameters or gradients) into tensors.
  static std::vector<std::span<T>> tensors(std::span<T> flat);

  /// Uniform weights, scaled to the number of inputs (He et al. 2015); biases 0.
  static void initialize(std::span<T> parameters, uint64_t seed);

  /// Adds the gradient of the loss, -log(probability of the label), to `gradients`; returns the
  /// loss.
  T learn(std::span<const T> parameters, const Image& image, std::span<T> gradients);

  /// The loss alone.
  T loss(std::span<const T> parameters, const Image& image);

  /// The most probable class.
  size_t classify(std::span<const T> parameters, const Image& image);

 private:
  void forward(std::span<const T> parameters, const Image& image);

  // Activations of the last image. `from` holds, for each pooled value, which of the four won.
  Maps<T, 1, 8> input_{};
  Maps<T, kChannels1, 8> sums1_{};
  Maps<T, kChannels1, 4> pooled1_{};
  std::array<uint8_t, kChannels1 * 16> from1_{};
  Maps<T, kChannels2, 4> sums2_{};
  Maps<T, kChannels2, 2> pooled2_{};
  std::array<uint8_t, kChannels2 * 4> from2_{};
  std::array<T, kClasses> probabilities_{};
};

}  // namespace digits
