// The digits: 8x8 grey images with a label, one a line, 64 pixels (0 to 16) and the label (0 to 9)
// separated by commas; the file may be gzipped.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace digits {

inline constexpr size_t kSide = 8, kPixels = kSide * kSide, kClasses = 10;

struct Image {
  std::array<float, kPixels> pixels;  // 0 to 1, row by row
  uint8_t label;
};

/// Throws ropewalk::Error that names `name` and the line, where `text` is not such a file.
std::vector<Image> parse_images(std::string_view text, const std::string& name);

/// Reads a file, gzipped or not. Throws ropewalk::Error.
std::vector<Image> load_images(const std::string& path);

/// The data file: beside the sources, or where it was installed. Throws ropewalk::Error that lists
/// the places looked at.
std::string find_data();

/// Every fifth image of a fixed shuffle is held out, whatever the run's seed: a checkpoint trained
/// with one seed can be judged in a run with another.
struct Split {
  std::vector<Image> training, held_out;
};
Split split_images(std::vector<Image> images);

/// The part of rank `rank` of `size`: contiguous; the first ranks have one more where it does not
/// divide.
std::span<const Image> part_of_rank(std::span<const Image> images, int rank, int size);

}  // namespace digits
