// What the machine allows this process: CPUs by affinity and cgroup quota, NUMA, identity.
// Thread-safe. Nothing here fails because /proc or /sys is missing or partly hidden, as in some
// containers: what cannot be read sets no limit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ropewalk {

/// CPUs this process may use: the affinity mask, cut by the cgroup's cpu.max (rounded up); >= 1.
int allowed_cpus();
/// The CPUs of the affinity mask, in order.
std::vector<int> allowed_cpu_list();
/// Binds the calling thread to `cpu`. Throws Error(invalid_argument) where that is not allowed.
void bind_thread_to_cpu(int cpu);
/// Binds [address, address + bytes) to the NUMA node of the calling thread's CPU, where the machine
/// has more than one; best effort (returns false and changes nothing when hwloc cannot).
bool bind_memory_near_caller(void* address, size_t bytes);
/// Of the CPUs that this process may use, the share (0 to 1) that is local to the device whose
/// folder in /sys this is: where its bus is attached. 1 where the machine does not say.
double local_share(const std::string& device_folder);
/// Equal on two processes exactly where one can map the other's memory files through /proc:
/// boot id, pid namespace, user namespace, effective user id. Printable, at most 512 bytes.
std::string host_identity();
std::string host_name();

}  // namespace ropewalk
