#include "dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>

#include "random.h"
#include "ropewalk/status.h"

namespace digits {
namespace {

using ropewalk::Error;
using ropewalk::ErrorCode;

constexpr size_t kTextBytesMax = 64 << 20;
constexpr int kPixelMax = 16;

[[noreturn]] void fail(ErrorCode code, const std::string& reason) {
  throw Error(code, "data", reason, "give an intact copy of digits.csv.gz with --data");
}

/// Takes an integer of 0 to `max` off the front of `line`, and the comma behind it, if any.
int take_number(std::string_view& line, int max, const std::string& where) {
  int value = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc{} || value < 0 || value > max)
    fail(ErrorCode::invalid_argument, fmt::format("{}: expected a number of 0 to {}", where, max));
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  return value;
}

Image parse_line(std::string_view line, const std::string& where) {
  Image image;
  for (float& pixel : image.pixels) {
    pixel = static_cast<float>(take_number(line, kPixelMax, where)) / kPixelMax;
    if (line.empty() || line.front() != ',')
      fail(ErrorCode::invalid_argument, where + ": expected 64 pixels and a label");
    line.remove_prefix(1);
  }
  image.label = static_cast<uint8_t>(take_number(line, kClasses - 1, where));
  if (!line.empty()) fail(ErrorCode::invalid_argument, where + ": something follows the label");
  return image;
}

}  // namespace

std::vector<Image> parse_images(std::string_view text, const std::string& name) {
  std::vector<Image> images;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    images.push_back(parse_line(line, fmt::format("{} line {}", name, number)));
  }
  if (images.empty()) fail(ErrorCode::invalid_argument, name + " holds no image");
  return images;
}

std::vector<Image> load_images(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) fail(ErrorCode::system, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  std::string text;
  std::array<char, 1 << 16> piece;
  int got = 0;
  while ((got = gzread(file.get(), piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > kTextBytesMax) fail(ErrorCode::invalid_argument, path + " is too long");
  }
  int error = Z_OK;
  const char* reason = gzerror(file.get(), &error);  // a cut file ends with got == 0 and an error
  if (error == Z_ERRNO) reason = std::strerror(errno);
  if (error != Z_OK)
    fail(ErrorCode::invalid_argument, fmt::format("cannot read {}: {}", path, reason));
  return parse_images(text, path);
}

std::string find_data() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path name = "digits.csv.gz";
  const std::vector<fs::path> places = {
      fs::path(DIGITS_SOURCE_DATA) / name,
      program / "../../data/digits" / name,            // build/examples/digits
      program / "../../share/ropewalk/digits" / name,  // libexec/ropewalk/digits
      fs::path(DIGITS_INSTALLED_DATA) / name,
  };
  std::string tried;
  for (const fs::path& place : places) {
    if (fs::exists(place, ignored)) return place.lexically_normal().string();
    tried += (tried.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  fail(ErrorCode::unavailable, "the data file is in none of " + tried);
}

Split split_images(std::vector<Image> images) {
  constexpr uint64_t kSplitSeed = 8;
  Random random(kSplitSeed);
  shuffle(std::span(images), random);
  Split split;
  for (size_t i = 0; i < images.size(); ++i)
    (i % 5 == 0 ? split.held_out : split.training).push_back(images[i]);
  return split;
}

std::span<const Image> part_of_rank(std::span<const Image> images, int rank, int size) {
  const auto r = static_cast<size_t>(rank), n = static_cast<size_t>(size);
  const size_t share = images.size() / n, rest = images.size() % n;
  return images.subspan(r * share + std::min(r, rest), share + (r < rest ? 1 : 0));
}

}  // namespace digits
