// The same calls by Ropewalk: planned once, in registered or plain memory. Variants: its
// algorithms.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "measure.h"
#include "ropewalk/communicator.h"

namespace ropewalk::peers {
namespace {

Algorithm algorithm_of(const std::string& variant) {
  if (variant.empty()) return Algorithm::automatic;
  const auto found = algorithm_named(variant);
  if (!found) throw std::invalid_argument("--variant: " + variant);
  return *found;
}

class RopewalkRunner final : public Runner {
 public:
  RopewalkRunner(Communicator& comm, const PeerOptions& options, const tools::BenchShape& shape) {
    const size_t bytes = shape.buffer_count * size_of(options.type);
    in_ = allocate(comm, options, bytes, in_memory_);
    out_ = in_;
    if (!options.kind.in_place_by_default()) out_ = allocate(comm, options, bytes, out_memory_);
    Call call;
    call.collective = options.kind.collective;
    call.count = shape.count;
    call.type = options.type;
    call.in = in_;
    call.out = out_;
    call.algorithm = algorithm_of(options.variant);
    plan_ = comm.plan(call);
  }
  std::byte* in() override { return in_; }
  std::byte* out() override { return out_; }
  void run() override { plan_.run(); }
  Algorithm algorithm() const override { return plan_.algorithm(); }

 private:
  struct Held {
    Buffer<std::byte> registered;
    std::shared_ptr<std::byte[]> plain;
  };
  static std::byte* allocate(Communicator& comm, const PeerOptions& options, size_t bytes,
                             Held& held) {
    if (options.registered) {
      held.registered = comm.allocate<std::byte>(bytes);
      return held.registered.data();
    }
    held.plain = plain_memory(bytes);
    return held.plain.get();
  }

  Held in_memory_, out_memory_;
  std::byte *in_, *out_;
  Plan plan_;  // dies before the memory
};

int run_peer(int argc, char** argv) {
  const PeerOptions options = parse_options(argc, argv);
  const Waiting waiting = bind_to_core(options, launched_rank());
  Options join;
  join.transport = options.transport;
  const auto comm = Communicator::create(join);
  if (comm->size() != options.ranks) {
    std::fprintf(stderr, "ropewalk_peer: %d ranks, want %d\n", comm->size(), options.ranks);
    return 2;
  }
  Segment segment(options.segment);
  const int64_t wrong =
      measure(options, comm->rank(), waiting, segment, [&](const tools::BenchShape& shape) {
        return std::make_unique<RopewalkRunner>(*comm, options, shape);
      });
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("ropewalk_peer", ropewalk::peers::run_peer, argc, argv);
}
