#pragma once

#include <optional>
#include <string>

namespace ropewalk {

/// The whole text of a small file (at most 1 MiB); nothing where it cannot be read.
std::optional<std::string> read_file(const std::string& path);

}  // namespace ropewalk
