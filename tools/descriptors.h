// The descriptors of this process.
#pragma once

namespace ropewalk::tools {

/// Opens /dev/null in place of standard descriptors that are closed: else the next ones that are
/// opened would take their numbers. It is opened for reading, so writes fail as they would.
void occupy_standard_descriptors();

}  // namespace ropewalk::tools
