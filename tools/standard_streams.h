// What is printed must arrive, or the exit status says that it did not.
#pragma once

namespace ropewalk::tools {

/// Opens those of the descriptors 0 to 2 that are closed, so that no socket or file takes their
/// numbers: input is empty, output can be written by nobody. Before anything else is opened.
void open_standard_streams();

/// Writes out what standard output holds; false, with a line on standard error, where that, or
/// something earlier, could not be written.
bool flush_standard_output();

}  // namespace ropewalk::tools
