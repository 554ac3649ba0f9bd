// What is printed must arrive, or the exit status says that it did not.
#pragma once

namespace ropewalk::tools {

constexpr int kStatusOutputLost = 74;  // as EX_IOERR of sysexits.h

/// Writes out what standard output holds; false, with a line on standard error, where that, or
/// something earlier, could not be written.
bool flush_standard_output();

}  // namespace ropewalk::tools
