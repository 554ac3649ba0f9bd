// Parameters in a file. Little-endian, one behind the other:
//
//   8 bytes   "ropedigs"
//   uint32    version, 1
//   uint32    number of parameters, n
//   n floats
//   16 bytes  BLAKE2b digest of all before
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace digits {

using Digest = std::array<unsigned char, 16>;

/// BLAKE2b.
Digest digest_of(std::span<const std::byte> bytes);
std::string hex(const Digest& digest);

/// Writes beside `path` and renames: there is the old file or the new one, never half of one.
/// Throws ropewalk::Error.
void save_checkpoint(const std::string& path, std::span<const float> parameters);

/// Fills `parameters`, or leaves them alone and throws ropewalk::Error: the file is missing,
/// damaged, of another version or for a net of another size.
void load_checkpoint(const std::string& path, std::span<float> parameters);

}  // namespace digits
