// Texts that users name by a path: profiles, descriptions.
#pragma once

#include <string>

namespace ropewalk {

/// All of the file at `path`. Never waits: a FIFO and a device are refused, and so are files that
/// are empty or have more than `bytes_max` bytes. Throws Error(invalid_argument) of `operation`:
/// "cannot read PATH: it is empty".
std::string read_text_file(const std::string& path, size_t bytes_max, const std::string& operation,
                           const std::string& advice);

}  // namespace ropewalk
