#include "net.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "random.h"

namespace digits {
namespace {

/// Visits every weight of a 3x3 convolution: visit(index, out, in, dy, dx).
template <size_t kIn, size_t kOut, class Visit>
void for_each_weight(Visit visit) {
  size_t index = 0;
  for (size_t out = 0; out < kOut; ++out)
    for (size_t in = 0; in < kIn; ++in)
      for (size_t dy = 0; dy < 3; ++dy)
        for (size_t dx = 0; dx < 3; ++dx) visit(index++, out, in, dy, dx);
}

/// Inner values of `sums` from all of `input`.
template <class T, size_t kIn, size_t kOut, size_t kWidth>
void convolve(const T* weights, const T* biases, const Maps<T, kIn, kWidth>& input,
              Maps<T, kOut, kWidth>& sums) {
  for (size_t out = 0; out < kOut; ++out)
    for (size_t y = 1; y <= kWidth; ++y) std::fill_n(&sums[out][y][1], kWidth, biases[out]);
  for_each_weight<kIn, kOut>([&](size_t index, size_t out, size_t in, size_t dy, size_t dx) {
    const T weight = weights[index];
    for (size_t y = 0; y < kWidth; ++y)
      for (size_t x = 0; x < kWidth; ++x)
        sums[out][y + 1][x + 1] += weight * input[in][y + dy][x + dx];
  });
}

/// Adds to the gradients of weights and biases, given those of the sums.
template <class T, size_t kIn, size_t kOut, size_t kWidth>
void convolve_backward(const Maps<T, kIn, kWidth>& input,
                       const Maps<T, kOut, kWidth>& sum_gradients, T* weight_gradients,
                       T* bias_gradients) {
  for (size_t out = 0; out < kOut; ++out)
    for (size_t y = 1; y <= kWidth; ++y)
      for (size_t x = 1; x <= kWidth; ++x) bias_gradients[out] += sum_gradients[out][y][x];
  for_each_weight<kIn, kOut>([&](size_t index, size_t out, size_t in, size_t dy, size_t dx) {
    T gradient = 0;
    for (size_t y = 0; y < kWidth; ++y)
      for (size_t x = 0; x < kWidth; ++x)
        gradient += sum_gradients[out][y + 1][x + 1] * input[in][y + dy][x + dx];
    weight_gradients[index] += gradient;
  });
}

/// The gradients of a convolution's input, given those of its sums. What falls on the border is of
/// no use.
template <class T, size_t kIn, size_t kOut, size_t kWidth>
void convolve_to_input(const T* weights, const Maps<T, kOut, kWidth>& sum_gradients,
                       Maps<T, kIn, kWidth>& input_gradients) {
  input_gradients = {};
  for_each_weight<kIn, kOut>([&](size_t index, size_t out, size_t in, size_t dy, size_t dx) {
    const T weight = weights[index];
    for (size_t y = 0; y < kWidth; ++y)
      for (size_t x = 0; x < kWidth; ++x)
        input_gradients[in][y + dy][x + dx] += weight * sum_gradients[out][y + 1][x + 1];
  });
}

/// 2x2 max pool, then ReLU. `from` gets which of the four was largest.
template <class T, size_t kChannels, size_t kWidth>
void pool(const Maps<T, kChannels, 2 * kWidth>& sums, Maps<T, kChannels, kWidth>& pooled,
          std::array<uint8_t, kChannels * kWidth * kWidth>& from) {
  size_t index = 0;
  for (size_t c = 0; c < kChannels; ++c)
    for (size_t y = 0; y < kWidth; ++y)
      for (size_t x = 0; x < kWidth; ++x) {
        uint8_t best = 0;
        T largest = -std::numeric_limits<T>::infinity();
        for (uint8_t k = 0; k < 4; ++k) {
          const T value = sums[c][2 * y + k / 2 + 1][2 * x + k % 2 + 1];
          if (value > largest) largest = value, best = k;
        }
        pooled[c][y + 1][x + 1] = std::max(largest, T{0});
        from[index++] = best;
      }
}

/// The gradients of the sums, given those of the pooled values.
template <class T, size_t kChannels, size_t kWidth>
void pool_backward(const Maps<T, kChannels, kWidth>& pooled,
                   const std::array<uint8_t, kChannels * kWidth * kWidth>& from,
                   const Maps<T, kChannels, kWidth>& gradients,
                   Maps<T, kChannels, 2 * kWidth>& sum_gradients) {
  sum_gradients = {};
  size_t index = 0;
  for (size_t c = 0; c < kChannels; ++c)
    for (size_t y = 0; y < kWidth; ++y)
      for (size_t x = 0; x < kWidth; ++x) {
        const size_t k = from[index++];
        if (pooled[c][y + 1][x + 1] > 0)
          sum_gradients[c][2 * y + k / 2 + 1][2 * x + k % 2 + 1] = gradients[c][y + 1][x + 1];
      }
}

template <class T>
void softmax(std::array<T, kClasses>& scores) {
  const T largest = *std::ranges::max_element(scores);
  T sum = 0;
  for (T& score : scores) sum += score = std::exp(score - largest);
  for (T& score : scores) score /= sum;
}

/// The first element of tensor `which` in a flat run.
template <class T>
constexpr size_t start_of(size_t which) {
  size_t start = 0;
  for (size_t i = 0; i < which; ++i) start += Net<T>::kTensors[i];
  return start;
}

}  // namespace

template <class T>
std::vector<std::span<T>> Net<T>::tensors(std::span<T> flat) {
  std::vector<std::span<T>> result;
  for (size_t i = 0; i < kTensors.size(); ++i)
    result.push_back(flat.subspan(start_of<T>(i), kTensors[i]));
  return result;
}

template <class T>
void Net<T>::initialize(std::span<T> parameters, uint64_t seed) {
  constexpr std::array<double, 6> kInputs = {9, 0, kChannels1 * 9, 0, kFeatures, 0};
  Random random(seed);
  const auto all = tensors(parameters);
  for (size_t i = 0; i < all.size(); ++i) {
    const double reach = kInputs[i] > 0 ? std::sqrt(6 / kInputs[i]) : 0;
    for (T& parameter : all[i]) parameter = static_cast<T>((2 * uniform(random) - 1) * reach);
  }
}

template <class T>
void Net<T>::forward(std::span<const T> parameters, const Image& image) {
  const T* p = parameters.data();
  for (size_t y = 0; y < kSide; ++y)
    for (size_t x = 0; x < kSide; ++x) input_[0][y + 1][x + 1] = image.pixels[y * kSide + x];
  convolve<T, 1, kChannels1, 8>(p + start_of<T>(0), p + start_of<T>(1), input_, sums1_);
  pool<T, kChannels1, 4>(sums1_, pooled1_, from1_);
  convolve<T, kChannels1, kChannels2, 4>(p + start_of<T>(2), p + start_of<T>(3), pooled1_, sums2_);
  pool<T, kChannels2, 2>(sums2_, pooled2_, from2_);
  const T* weight = p + start_of<T>(4);
  for (size_t k = 0; k < kClasses; ++k) {
    T score = p[start_of<T>(5) + k];
    for (size_t i = 0; i < kFeatures; ++i)
      score += *weight++ * pooled2_[i / 4][i / 2 % 2 + 1][i % 2 + 1];
    probabilities_[k] = score;
  }
  softmax(probabilities_);
}

template <class T>
T Net<T>::loss(std::span<const T> parameters, const Image& image) {
  forward(parameters, image);
  return -std::log(std::max(probabilities_[image.label], std::numeric_limits<T>::min()));
}

template <class T>
size_t Net<T>::classify(std::span<const T> parameters, const Image& image) {
  forward(parameters, image);
  return static_cast<size_t>(std::ranges::max_element(probabilities_) - probabilities_.begin());
}

template <class T>
T Net<T>::learn(std::span<const T> parameters, const Image& image, std::span<T> gradients) {
  const T result = loss(parameters, image);
  const T* p = parameters.data();
  T* g = gradients.data();

  Maps<T, kChannels2, 2> pooled2_gradients{};
  for (size_t k = 0; k < kClasses; ++k) {
    const T gradient = probabilities_[k] - (k == image.label ? 1 : 0);  // of the score
    const size_t row = start_of<T>(4) + k * kFeatures;
    g[start_of<T>(5) + k] += gradient;
    for (size_t i = 0; i < kFeatures; ++i) {
      const size_t c = i / 4, y = i / 2 % 2 + 1, x = i % 2 + 1;
      g[row + i] += gradient * pooled2_[c][y][x];
      pooled2_gradients[c][y][x] += gradient * p[row + i];
    }
  }
  Maps<T, kChannels2, 4> sums2_gradients;
  pool_backward<T, kChannels2, 2>(pooled2_, from2_, pooled2_gradients, sums2_gradients);
  convolve_backward<T, kChannels1, kChannels2, 4>(pooled1_, sums2_gradients, g + start_of<T>(2),
                                                  g + start_of<T>(3));
  Maps<T, kChannels1, 4> pooled1_gradients;
  convolve_to_input<T, kChannels1, kChannels2, 4>(p + start_of<T>(2), sums2_gradients,
                                                  pooled1_gradients);
  Maps<T, kChannels1, 8> sums1_gradients;
  pool_backward<T, kChannels1, 4>(pooled1_, from1_, pooled1_gradients, sums1_gradients);
  convolve_backward<T, 1, kChannels1, 8>(input_, sums1_gradients, g + start_of<T>(0),
                                         g + start_of<T>(1));
  return result;
}

template class Net<float>;
template class Net<double>;

}  // namespace digits
