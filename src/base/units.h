// Amounts as people read them: three or four digits and a unit, never an exponent.
#pragma once

#include <cstdint>
#include <string>

namespace ropewalk {

/// "1 byte", "8 bytes", "1.5 MiB", "16 TiB".
std::string bytes_text(uint64_t bytes);
/// "0.25 us", "12.9 ms", "12900 s".
std::string time_text(double us);

}  // namespace ropewalk
