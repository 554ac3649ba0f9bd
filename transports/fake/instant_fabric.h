// A network without a wire: a put is there when `put` returns. For measuring what others spend
// around it; FakeFabric is the one for finding faults.
#pragma once

#include "ropewalk/transport.h"

namespace ropewalk {

struct InstantOptions {
  bool load_store = false;
  size_t moved_bytes_max = SIZE_MAX;  // longer puts notify, and move nothing
  size_t notices_max = 1024;          // unpolled at a rank; then `full`. A power of two
};

class InstantTransport;

/// Owns one transport per rank. One thread.
class InstantFabric {
 public:
  explicit InstantFabric(int ranks, InstantOptions options = {});
  InstantFabric(const InstantFabric&) = delete;
  InstantFabric& operator=(const InstantFabric&) = delete;
  ~InstantFabric();

  Transport& transport(int rank);

 private:
  friend class InstantTransport;
  InstantTransport& at(int rank) { return *transports_[rank]; }

  const InstantOptions options_;
  std::vector<std::unique_ptr<InstantTransport>> transports_;
};

}  // namespace ropewalk
