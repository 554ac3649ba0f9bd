// How much memory a process may still take. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ropewalk {

/// Bytes that this process and its children can still allocate before the kernel must kill one: the
/// least of what the machine has available (MemAvailable) and of what each memory cgroup of this
/// process leaves. Swap does not count. Others may take it at any time. Nothing where neither can
/// be read. `root` stands before every path ("" is the machine itself).
std::optional<uint64_t> available_memory_bytes(const std::string& root = "");

}  // namespace ropewalk
