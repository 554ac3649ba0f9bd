// How many files this process may have open.
#pragma once

#include <sys/resource.h>

#include <string>

namespace ropewalk {

/// Of open files: the limit that holds (soft), and the highest that the process may set (hard).
rlimit descriptor_limits();
/// Sets the limit as high as the process may, except for what no job needs: programs that close all
/// descriptors one by one take their time. Leaves it where that fails.
void raise_descriptor_limit();
/// Makes the kernel's table of this process's descriptors large enough for so many, at least one,
/// or as many as the limit allows. It grows by itself, but in a process with several threads each
/// growth waits for an RCU grace period: 10 ms or more.
void reserve_descriptors(int count);
/// What to do where `error`, an errno, says that there is no descriptor left; else empty.
std::string advice_for_descriptors(int error);

}  // namespace ropewalk
